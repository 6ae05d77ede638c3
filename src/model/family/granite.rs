//! Granite: Llama with factors on embeddings, residuals, scores and logits.

use super::{
    Family, Source, accepted,
    experts::{Experts, Shared, SharedStored, Stored},
    recipe::Recipe,
};
use crate::model::{ModelError, config::required};

/// Granite 3, dense.
pub(super) static GRANITE: Family = Family {
    name: "granite",
    models: "Granite 3, dense",
    beside_llama: "factors on embeddings, residuals, scores and logits",
    tried: &[],
    classes: &[("granite", "GraniteForCausalLM")],
    pairing: accepted::adjacent_in_gguf,
    is_tied_by_default: false,
    accept: accepted::like_llama,
    recipe,
};

/// Granite 3 with experts.
pub(super) static GRANITE_MOE: Family = Family {
    name: "granitemoe",
    models: "Granite 3 with experts (1B-A400M, 3B-A800M)",
    beside_llama: "Granite's factors; experts in place of MLPs, chosen by softmax, and a shared MLP, where the \
        file has one",
    classes: &[("granitemoe", "GraniteMoeForCausalLM"), ("granitemoeshared", "GraniteMoeSharedForCausalLM")],
    accept: accepted::like_llama_with_experts,
    recipe: |source| {
        let key = source.key("expert_count", "num_local_experts");
        let experts = required(experts(source)?, &key, "how many experts a layer has, above 0")?;
        Ok(Recipe { experts: Some(experts), ..recipe(source)? })
    },
    ..GRANITE
};

/// What folders call the matrices of the MLP that all rows go through.
pub(super) const SHARED: [&str; 2] = ["shared_mlp.input_linear", "shared_mlp.output_linear"];

/// The hidden size of that MLP, if there is one.
pub(super) fn shared_size(source: &Source<'_>) -> Result<Option<usize>, ModelError> {
    Shared::size(source, "shared_intermediate_size")
}

/// The experts that a file tells of.
pub(super) fn experts(source: &Source<'_>) -> Result<Option<Experts>, ModelError> {
    let stored = Stored::Fused {
        input: "block_sparse_moe.input_linear.weight",
        output: "block_sparse_moe.output_linear.weight",
    };
    let [input, output] = SHARED;
    let shared =
        |feed_forward| Shared { feed_forward, stored: SharedStored::Fused { input, output }, gate: None };
    let shared = shared_size(source)?.map(shared);
    // Softmax over the scores of the experts that are used: weights divided by their sum.
    Experts::read(source, stored, "block_sparse_moe.router.layer", shared)
}

/// Llama's with the factors.
pub(super) fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let factor = |gguf, folder| -> Result<f32, ModelError> {
        let found = source.float(gguf, folder)?.unwrap_or(1.0);
        if found.is_finite() && (found as f32).is_normal() {
            return Ok(found as f32);
        }
        let key = source.key(gguf, folder);
        Err(ModelError::invalid(format_args!("key `{key}`"), "a finite factor that is not 0", found))
    };
    let llama = Recipe::llama(source.config);
    // GGUF files of models with the usual factor have none.
    let score_scale = match source.float("attention.scale", "attention_multiplier")? {
        Some(_) => factor("attention.scale", "attention_multiplier")?,
        None => llama.score_scale,
    };
    Ok(Recipe {
        embedding_scale: factor("embedding_scale", "embedding_multiplier")?,
        residual_scale: factor("residual_scale", "residual_multiplier")?,
        score_scale,
        logit_scale: 1.0 / factor("logit_scale", "logits_scaling")?,
        ..llama
    })
}
