//! Gemma 2 and 3: GeGLU, scaled embeddings, gains stored less one, norms before and after every sub-layer, windows in
//! most layers.

use super::{
    Family, Source, accepted,
    recipe::{HeadNorms, Norms, Recipe, inverse_root},
};
use crate::model::{Container, ModelConfig, ModelError, RopeConfig, RopeScaling, config::Fields};
use ygg_kernels::{Nonlinearity, RopePairing};

/// Gemma 2: bounds on scores and logits, a window in every other layer.
pub(super) static GEMMA2: Family = Family {
    name: "gemma2",
    models: "Gemma 2",
    beside_llama: "GELU, scaled embeddings, norms before and after sub-layers, bounds of scores and logits, a window \
        in every other layer",
    tried: &[],
    classes: &[("gemma2", "Gemma2ForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: true,
    accept,
    recipe: gemma2,
};

/// Gemma 3, its models of text: normalised heads, a window and another rotation in most layers.
pub(super) static GEMMA3: Family = Family {
    name: "gemma3",
    models: "Gemma 3, models of text",
    beside_llama: "as `gemma2` without bounds; every head is normalised; five of six layers have a window and a \
        rotation of their own",
    tried: &[],
    classes: &[("gemma3_text", "Gemma3ForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: true,
    accept,
    recipe: gemma3,
};

/// Base of the rotation in layers with a window, where a file does not say.
pub(super) const LOCAL_BASE: f64 = 10_000.0;
/// One layer of so many has no window, where a file does not say.
pub(super) const PATTERN: usize = 6;

fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    accepted::common(fields, config)?;
    accepted::activation(fields, &["hidden_activation", "hidden_act"], "gelu_pytorch_tanh")?;
    accepted::whole_heads_turn(fields, config)
}

/// What both have in common. GGUF files do not say how scores are scaled: only the largest model, of `largest` layers,
/// has its own rule.
fn common(source: &Source<'_>, largest: usize) -> Result<Recipe, ModelError> {
    let Source { config, fields, .. } = *source;
    let is_gguf = fields.container() == Container::Gguf;
    let heads_of = if is_gguf && config.layers == largest {
        config.hidden_size as f64 / config.heads as f64
    } else {
        fields.float("query_pre_attn_scalar")?.unwrap_or(config.head_dim as f64)
    };
    if !(heads_of.is_finite() && heads_of > 0.0) {
        return Err(ModelError::invalid("key `query_pre_attn_scalar`", "a number above 0", heads_of));
    }
    Ok(Recipe {
        norms: Norms::Both,
        function: Nonlinearity::GeluTanh,
        gain_offset: if is_gguf { 0.0 } else { 1.0 },
        embedding_scale: (config.hidden_size as f64).sqrt() as f32,
        score_scale: inverse_root(heads_of),
        score_softcap: cap(source, "attn_logit_softcapping")?,
        logit_softcap: cap(source, "final_logit_softcapping")?,
        ..Recipe::llama(config)
    })
}

/// A bound that a file may state.
pub(super) fn cap(source: &Source<'_>, key: &str) -> Result<Option<f32>, ModelError> {
    let found = source.float(key, key)?.map(|cap| cap as f32);
    match found.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
        Some(cap) => Err(ModelError::invalid(format_args!("key `{key}`"), "a bound above 0", cap)),
        None => Ok(found),
    }
}

fn gemma2(source: &Source<'_>) -> Result<Recipe, ModelError> {
    common(source, 46)?.windowed(source, |layer| layer % 2 == 0)
}

fn gemma3(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let pattern = source.fields.count("sliding_window_pattern")?.unwrap_or(PATTERN);
    if pattern == 0 {
        return Err(ModelError::invalid("key `sliding_window_pattern`", "an integer above 0", pattern));
    }
    let is_local = |layer: usize| !(layer + 1).is_multiple_of(pattern);
    let recipe = common(source, 62)?;
    let keys = ["rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq"];
    let mut base = source.float("rope.freq_base_swa", keys[0])?;
    if base.is_none() {
        base = source.fields.float(keys[1])?;
    }
    let base = base.unwrap_or(LOCAL_BASE);
    let local = RopeConfig { base, scaling: RopeScaling::None };
    local.check(source.config.rotated, keys[1], "rope_parameters.sliding_attention")?;
    let ropes = vec![source.config.rope.clone(), local];
    let mut recipe = Recipe { head_norms: HeadNorms::EachHead, ropes, ..recipe };
    let kinds = source.fields.texts("layer_types")?;
    recipe = recipe.windowed(source, is_local)?;
    for (number, layer) in recipe.layers.iter_mut().enumerate() {
        // Also of a window that no context fills.
        let kind = kinds.as_ref().map(|kinds| kinds[number] == "sliding_attention");
        layer.rope = Some(usize::from(kind.unwrap_or_else(|| is_local(number))));
    }
    Ok(recipe)
}
