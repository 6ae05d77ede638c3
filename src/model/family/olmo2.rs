//! OLMo 2: Llama that normalises what sub-layers give, not what they take, and all of a row's queries and keys.

use super::{
    Family, Source, accepted,
    recipe::{HeadNorms, Norms, Recipe},
};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

/// OLMo 2.
pub(super) static OLMO2: Family = Family {
    name: "olmo2",
    models: "OLMo 2",
    beside_llama: "norms after sub-layers, and over all queries and all keys of a row",
    tried: &[],
    classes: &[("olmo2", "Olmo2ForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: accepted::like_llama,
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let llama = Recipe::llama(source.config);
    Ok(Recipe { norms: Norms::After, head_norms: HeadNorms::AllHeads, ..llama })
}
