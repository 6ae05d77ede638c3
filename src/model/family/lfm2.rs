//! LFM 2: Llama, most of whose layers have a short convolution in place of attention; the others normalise every head
//! before it turns.

use super::{
    Family, Source, accepted,
    experts::{Experts, Stored},
    recipe::{self, HeadNorms, Instead, Recipe},
};
use crate::model::{
    Container, ModelConfig, ModelError,
    config::{Fields, only, required},
};
use ygg_kernels::{Gating, RopePairing, RouteVector, Routing};

/// LFM 2, dense.
pub(super) static LFM2: Family = Family {
    name: "lfm2",
    models: "LFM 2, dense",
    beside_llama: "most layers have a gated short convolution in place of attention; in the others every head is \
        normalised",
    tried: &[],
    classes: &[("lfm2", "Lfm2ForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: true,
    accept,
    recipe,
};

/// LFM 2 with experts.
pub(super) static LFM2_MOE: Family = Family {
    name: "lfm2moe",
    models: "LFM 2 with experts (8B-A1B)",
    beside_llama: "as LFM 2; experts in place of MLPs but for the first layers', each weighed by a sigmoid and chosen \
        with a bias",
    tried: &[],
    classes: &[("lfm2_moe", "Lfm2MoeForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: true,
    accept: |fields, config| {
        accepted::whole_heads_turn(fields, config)?;
        match fields.container() {
            Container::Gguf => Ok(()),
            Container::Folder => only("conv_bias", fields.flag("conv_bias")?, false, "no biases"),
        }
    },
    recipe: |source| {
        let mut recipe = recipe(source)?;
        let experts = Experts::required(source, EXPERTS, "feed_forward.gate", None)?;
        let (normalised, scale, is_biased) = match source.fields.container() {
            Container::Gguf => {
                let flag = |key: &str| source.fields.flag(&source.key(key, ""));
                // 2 is the sigmoid.
                let key = source.key("expert_gating_func", "");
                only(&key, source.fields.count(&key)?, 2, "a sigmoid")?;
                (
                    flag("expert_weights_norm")?.unwrap_or(true),
                    source.float("expert_weights_scale", "")?,
                    true,
                )
            }
            Container::Folder => (
                source.fields.flag("norm_topk_prob")?.unwrap_or(true),
                source.fields.float("routed_scaling_factor")?,
                source.fields.flag("use_expert_bias")?.unwrap_or(true),
            ),
        };
        let routing = Routing {
            gating: Gating::Sigmoid,
            normalised: normalised.then_some(LEAST_SUM),
            scale: scale.unwrap_or(1.0) as f32,
            ..experts.routing
        };
        let vector = is_biased.then_some(RouteVector::Bias("feed_forward.expert_bias"));
        recipe.experts = Some(Experts { routing, vector, ..experts });
        let key = source.key("leading_dense_block_count", "num_dense_layers");
        let dense = required(source.fields.count(&key)?, &key, "how many of the first layers have MLPs")?;
        recipe.layers.iter_mut().take(dense).for_each(|layer| layer.is_routed = false);
        Ok(recipe)
    },
};

/// How its folders store experts.
const EXPERTS: Stored = Stored::Each { before: "feed_forward.experts", parts: ["w1", "w3", "w2"] };

/// What the model adds to the sum that it divides the weights of experts by.
const LEAST_SUM: f32 = 1e-6;

/// What its files call what Llama's call otherwise.
const NAMES: &[(&str, &str)] = &[
    ("output_norm", "token_embd_norm"),
    ("model.norm", "model.embedding_norm"),
    ("input_layernorm", "operator_norm"),
    ("self_attn.o_proj", "self_attn.out_proj"),
    ("self_attn.q_norm", "self_attn.q_layernorm"),
    ("self_attn.k_norm", "self_attn.k_layernorm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "feed_forward.w1"),
    ("mlp.up_proj", "feed_forward.w3"),
    ("mlp.down_proj", "feed_forward.w2"),
];

/// What the hidden size of MLPs is a multiple of where a `config.json` does not say.
const MULTIPLE: usize = 256;

fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    accepted::whole_heads_turn(fields, config)?;
    if fields.container() == Container::Gguf {
        return accepted::as_many_heads(fields, config);
    }
    only("conv_bias", fields.flag("conv_bias")?, false, "no biases")?;
    let base = fields.float("rope_parameters.rope_theta")?.or(fields.float("rope_theta")?);
    let base = required(base, "rope_theta", "the base of the rotation")?;
    only("theta", fields.float("theta")?, base, "as `rope_theta`")?;
    if fields.flag("block_auto_adjust_ff_dim")? != Some(false) {
        config.feed_forward = adjusted(fields, config.feed_forward)?;
    }
    Ok(())
}

/// The hidden size of MLPs that a `config.json` states as one and a half times that of an MLP with three matrices.
fn adjusted(fields: &dyn Fields, stated: usize) -> Result<usize, ModelError> {
    let factor = fields.float("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    if !(factor > 0.0 && factor <= 16.0) {
        let key = "key `block_ffn_dim_multiplier`";
        return Err(ModelError::invalid(key, "a factor above 0 and at most 16", factor));
    }
    let multiple = fields.count("block_multiple_of")?.unwrap_or(MULTIPLE);
    if !(1..=1 << 16).contains(&multiple) {
        return Err(ModelError::invalid("key `block_multiple_of`", "1 to 65536", multiple));
    }
    Ok(((factor * (2 * stated / 3) as f64) as usize).next_multiple_of(multiple).max(multiple))
}

/// Which layers attend; the others have a convolution.
fn attending(source: &Source<'_>) -> Result<Vec<bool>, ModelError> {
    let Source { config, fields, .. } = *source;
    if fields.container() == Container::Gguf {
        return recipe::attending_by_heads(source);
    }
    if let Some(attends) = recipe::attending(source, [&["full_attention"], &["conv"]])? {
        return Ok(attends);
    }
    let indices = fields.counts("full_attn_idxs")?;
    let attends = |layer| indices.as_ref().is_none_or(|indices| indices.contains(&layer));
    Ok((0..config.layers).map(attends).collect())
}

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let key = source.key("shortconv.l_cache", "conv_L_cache");
    let taps = required(source.fields.count(&key)?, &key, "the taps of a convolution")?;
    let llama = Recipe::llama(source.config);
    let mut recipe = Recipe { head_norms: HeadNorms::EachHead, names: NAMES, ..llama };
    for (layer, attends) in recipe.layers.iter_mut().zip(attending(source)?) {
        layer.instead = (!attends).then_some(Instead::ShortConv { taps });
    }
    Ok(recipe)
}
