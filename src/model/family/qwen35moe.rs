//! Qwen 3.5 with experts: Qwen 3.5, whose rows each go through some of many small MLPs and, by a gate, through one that
//! all share.

use super::{
    Family, Source, accepted,
    experts::{Experts, Stored},
    qwen2moe::shared,
    qwen35,
    recipe::Recipe,
};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

/// Qwen 3.5 with experts.
pub(super) static QWEN35MOE: Family = Family {
    name: "qwen35moe",
    models: "Qwen 3.5 and 3.6 with experts (35B-A3B, 122B-A10B, 397B-A17B); of those that see, the language model",
    beside_llama: "as `qwen35`; experts in place of MLPs, chosen by softmax, and a shared MLP with a sigmoid as its \
        factor",
    tried: &[],
    classes: &[
        ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
        ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
    ],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: |fields, config| {
        accepted::common_with_experts(fields, config)?;
        qwen35::accept(fields, config)
    },
    recipe,
};

/// What ends the name of a tensor with all experts' gates and ups.
const FUSED_INPUT: &str = "mlp.experts.gate_up_proj";

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    // Folders as published have the former; those that transformers writes have a tensor for each expert.
    let stored = match source.tensors.keys().any(|name| name.ends_with(FUSED_INPUT)) {
        true => Stored::Fused { input: FUSED_INPUT, output: "mlp.experts.down_proj" },
        false => Stored::BY_NAME,
    };
    let experts = Experts::required(source, stored, "mlp.gate", Some(shared(source)?))?;
    Ok(Recipe { experts: Some(experts), ..qwen35::recipe(source)? })
}
