//! Qwen 3: Llama with every head of queries and keys normalised before it turns.

use super::{
    Family, Source, accepted,
    qwen2::optional_window,
    recipe::{HeadNorms, Recipe},
};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

/// Qwen 3, dense.
pub(super) static QWEN3: Family = Family {
    name: "qwen3",
    models: "Qwen 3, dense",
    beside_llama: "every head of queries and keys is normalised",
    tried: &[],
    classes: &[("qwen3", "Qwen3ForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: accepted::like_llama,
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let recipe = Recipe { head_norms: HeadNorms::EachHead, ..Recipe::llama(source.config) };
    optional_window(source, recipe)
}
