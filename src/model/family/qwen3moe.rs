//! Qwen 3 with experts: Qwen 3, whose rows each go through some of many small MLPs.

use super::{
    Family, Source, accepted,
    experts::{Experts, Stored},
    qwen2::optional_window,
    recipe::{HeadNorms, Recipe},
};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

/// Qwen 3 with experts.
pub(super) static QWEN3MOE: Family = Family {
    name: "qwen3moe",
    models: "Qwen 3 with experts (30B-A3B, 235B-A22B, Coder)",
    beside_llama: "every head of queries and keys is normalised; experts in place of MLPs, chosen by softmax",
    tried: &[],
    classes: &[("qwen3_moe", "Qwen3MoeForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: accepted::like_llama_with_experts,
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    // GGUF files do not say it: all published models divide by the sum.
    let experts = Experts::required(source, Stored::BY_NAME, "mlp.gate", None)?.normalised_by(
        source,
        "norm_topk_prob",
        true,
    )?;
    let mut recipe =
        Recipe { head_norms: HeadNorms::EachHead, experts: Some(experts), ..Recipe::llama(source.config) };
    route_layers(source, &mut recipe)?;
    optional_window(source, recipe)
}

/// Leaves MLPs in the layers in which the configuration says that there are some.
pub(super) fn route_layers(source: &Source<'_>, recipe: &mut Recipe) -> Result<(), ModelError> {
    let every = source.fields.count("decoder_sparse_step")?.unwrap_or(1).max(1);
    let dense = source.fields.counts("mlp_only_layers")?.unwrap_or_default();
    for (layer, rule) in recipe.layers.iter_mut().enumerate() {
        rule.is_routed = (layer + 1).is_multiple_of(every) && !dense.contains(&layer);
    }
    Ok(())
}
