//! Qwen 2: Llama with biases on queries, keys and values. DeepSeek's distilled models of its size are the same.

use super::{
    Family, Source, accepted,
    recipe::{Biases, Recipe},
};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

/// Qwen 2, 2.5 and 2.5 Coder; DeepSeek R1 Distill Qwen.
pub(super) static QWEN2: Family = Family {
    name: "qwen2",
    models: "Qwen 2, 2.5, 2.5 Coder, DeepSeek R1 Distill Qwen",
    beside_llama: "biases on queries, keys and values",
    tried: &["Qwen2.5 Coder 0.5B: llama.cpp, ik_llama.cpp"],
    classes: &[("qwen2", "Qwen2ForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: accepted::like_llama,
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let recipe = Recipe { biases: Biases::Inputs, ..Recipe::llama(source.config) };
    optional_window(source, recipe)
}

/// The window of models that have one only if `use_sliding_window` says so; then in the layers from `max_window_layers`
/// on.
pub(super) fn optional_window(source: &Source<'_>, recipe: Recipe) -> Result<Recipe, ModelError> {
    if source.fields.flag("use_sliding_window")? != Some(true) {
        return Ok(recipe);
    }
    let first = source.fields.count("max_window_layers")?.unwrap_or(0);
    recipe.windowed(source, |layer| layer >= first)
}
