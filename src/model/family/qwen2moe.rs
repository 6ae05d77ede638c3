//! Qwen 2 with experts: Qwen 2, whose rows each go through some of many small MLPs and, by a gate, through one that all
//! share.

use super::{
    Family, Source, accepted,
    experts::{Experts, Shared, SharedStored, Stored},
    qwen2::optional_window,
    qwen3moe::route_layers,
    recipe::{Biases, Recipe},
};
use crate::model::{
    ModelError,
    config::{only, required},
};
use ygg_kernels::RopePairing;

/// Qwen 2 with experts.
pub(super) static QWEN2MOE: Family = Family {
    name: "qwen2moe",
    models: "Qwen 1.5 and 2 with experts (A2.7B, 57B-A14B)",
    beside_llama: "biases on queries, keys and values; experts in place of MLPs, whose weights sum to less than one, \
        and a shared MLP with a sigmoid as its factor",
    tried: &[],
    classes: &[("qwen2_moe", "Qwen2MoeForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: |fields, config| {
        only("qkv_bias", fields.flag("qkv_bias")?, true, "biases of queries, keys and values")?;
        accepted::like_llama_with_experts(fields, config)
    },
    recipe,
};

/// The MLP that all rows share, with its gate.
pub(super) fn shared(source: &Source<'_>) -> Result<Shared, ModelError> {
    let size = "shared_expert_intermediate_size";
    let key = source.key("expert_shared_feed_forward_length", size);
    let feed_forward = required(Shared::size(source, size)?, &key, "the hidden size of the shared MLP")?;
    let stored = SharedStored::Each { before: "mlp.shared_expert" };
    Ok(Shared { feed_forward, stored, gate: Some("mlp.shared_expert_gate") })
}

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let shared = shared(source)?;
    // GGUF files do not say it: no published model divides by the sum.
    let experts = Experts::required(source, Stored::BY_NAME, "mlp.gate", Some(shared))?.normalised_by(
        source,
        "norm_topk_prob",
        false,
    )?;
    let llama = Recipe::llama(source.config);
    let mut recipe = Recipe { biases: Biases::Inputs, experts: Some(experts), ..llama };
    route_layers(source, &mut recipe)?;
    optional_window(source, recipe)
}
