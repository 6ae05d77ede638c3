//! OLMoE: Llama with all of a row's queries and keys normalised, whose rows each go through some of many small MLPs.

use super::{
    Family, Source, accepted,
    experts::{Experts, Stored},
    recipe::{HeadNorms, Recipe},
};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

/// OLMoE.
pub(super) static OLMOE: Family = Family {
    name: "olmoe",
    models: "OLMoE",
    beside_llama: "norms over all queries and all keys of a row; experts in place of MLPs, whose weights sum to less \
        than one",
    tried: &[],
    classes: &[("olmoe", "OlmoeForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: |fields, config| {
        // A bound of queries, keys and values.
        let clipped = |key: &str| match fields.float(key) {
            Ok(None) => Ok(()),
            Ok(Some(found)) => Err(ModelError::unsupported(
                format_args!("key `{key}`"),
                found,
                "no bound of queries and keys",
            )),
            Err(error) => Err(error),
        };
        clipped("clip_qkv")?;
        clipped("olmoe.attention.clamp_kqv")?;
        accepted::like_llama_with_experts(fields, config)
    },
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let experts = Experts::required(source, Stored::BY_NAME, "mlp.gate", None)?.normalised_by(
        source,
        "norm_topk_prob",
        false,
    )?;
    let llama = Recipe::llama(source.config);
    Ok(Recipe { head_norms: HeadNorms::AllHeads, experts: Some(experts), ..llama })
}
