//! ERNIE 4.5 with experts: Llama, whose rows each go through some of many small MLPs and through one that all share,
//! but for those of the first layers.

use super::{
    Family, Source, accepted,
    experts::{Experts, Shared, SharedStored, Stored},
    recipe::Recipe,
};
use crate::model::{Container, ModelError, config::only};
use ygg_kernels::{RopePairing, RouteVector};

/// ERNIE 4.5 with experts.
pub(super) static ERNIE4_5_MOE: Family = Family {
    name: "ernie4_5-moe",
    models: "ERNIE 4.5 with experts, models of text (21B-A3B, 300B-A47B)",
    beside_llama: "experts in place of MLPs but for the first layers', chosen by softmax with a bias, and a shared \
        MLP",
    tried: &[],
    classes: &[("ernie4_5_moe", "Ernie4_5_MoeForCausalLM")],
    pairing: |_| RopePairing::Adjacent,
    is_tied_by_default: true,
    accept: |fields, config| {
        if fields.container() == Container::Folder {
            only("use_bias", fields.flag("use_bias")?, false, "no biases")?;
        }
        accepted::like_llama_with_experts(fields, config)
    },
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let count = |gguf, folder| source.fields.count(&source.key(gguf, folder));
    let size = count("expert_feed_forward_length", "moe_intermediate_size")?.unwrap_or(0);
    let shared = count("expert_shared_count", "moe_num_shared_experts")?.unwrap_or(0);
    let feed_forward = match source.fields.container() {
        Container::Gguf => Shared::size(source, "")?,
        Container::Folder => Some(size.saturating_mul(shared)).filter(|size| *size > 0),
    };
    let stored = SharedStored::Each { before: "mlp.shared_experts" };
    let shared = feed_forward.map(|feed_forward| Shared { feed_forward, stored, gate: None });
    // Weights are divided by their sum, which no softmax lets come near the least divisor of the model.
    let experts = Experts::required(source, Stored::BY_NAME, "mlp.gate", shared)?;
    let vector = Some(RouteVector::Bias("mlp.moe_statics.e_score_correction_bias"));
    let mut recipe = Recipe {
        experts: Some(Experts { vector, ..experts }),
        // Layers that predict further tokens.
        others: vec!["model.mtp_".to_owned()],
        ..Recipe::llama(source.config)
    };
    let every = count("interleave_moe_layer_step", "moe_layer_interval")?.unwrap_or(1).max(1);
    let first = count("leading_dense_block_count", "moe_layer_start_index")?.unwrap_or(1);
    let last = match source.fields.container() {
        Container::Gguf => usize::MAX,
        // -1, the last layer, is no count.
        Container::Folder => source.fields.float("moe_layer_end_index")?.map_or(usize::MAX, last_layer),
    };
    for (layer, rule) in recipe.layers.iter_mut().enumerate() {
        rule.is_routed = (layer + 1).is_multiple_of(every) && (first..=last).contains(&layer);
    }
    Ok(recipe)
}

fn last_layer(stated: f64) -> usize {
    if stated < 0.0 { usize::MAX } else { stated as usize }
}
