//! Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU, untied or tied head, no biases. Mistral is the
//! same with a window, Mixtral with experts.

use super::{
    Family, Source, accepted,
    experts::{Experts, Stored},
    recipe::Recipe,
};
use crate::model::ModelError;

/// Llama 2 and 3, SmolLM 2, TinyLlama; Mistral, Ministral and Mixtral, whose GGUF files call themselves llama.
pub(in crate::model) static LLAMA: Family = Family {
    name: "llama",
    models: "Llama 2 and 3.x, SmolLM 2, TinyLlama, Mistral, Ministral, Mixtral",
    beside_llama: "Mistral: a window, where the file has one; Mixtral: experts in place of MLPs, chosen by softmax",
    tried: &["SmolLM2 135M: float32"],
    classes: &[
        ("llama", "LlamaForCausalLM"),
        ("mistral", "MistralForCausalLM"),
        ("ministral", "MinistralForCausalLM"),
        ("mixtral", "MixtralForCausalLM"),
    ],
    pairing: accepted::adjacent_in_gguf,
    is_tied_by_default: false,
    accept: accepted::like_llama_with_experts,
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let experts = Experts::read(source, Stored::BY_NUMBER, "block_sparse_moe.gate", None)?;
    let recipe = Recipe { experts, ..Recipe::llama(source.config) };
    // The window of a folder that calls itself llama means nothing; a GGUF file has one only if the model does.
    let has_window = source.fields.text("model_type")? != Some("llama");
    Ok(if has_window { recipe.windowed(source, |_| true)? } else { recipe })
}
