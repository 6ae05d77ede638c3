//! Gemma 4, its models of text: embeddings for every layer, late layers that attend to the keys and values of earlier
//! ones, heads of two sizes, values that are normalised, experts parallel to the MLP.

use super::{
    Family, Source, accepted,
    experts::{Experts, Stored},
    gemma::{LOCAL_BASE, PATTERN, cap},
    layer_inputs::LayerInputs,
    qwen35::LANGUAGE_LAYERS,
    recipe::{HeadNorms, Keys, Norms, Recipe, layer_types},
};
use crate::model::{
    Container, ModelConfig, ModelError, RopeConfig, RopeScaling,
    config::{Fields, HEAD_DIMS, HEADS, SIZES, equal, only, required, within},
};
use ygg_kernels::{Nonlinearity, RopePairing, RouteVector};

/// Gemma 4.
pub(super) static GEMMA4: Family = Family {
    name: "gemma4",
    models: "Gemma 4 (E2B, E4B, 26B-A4B, 31B); of those that see and hear, the language model",
    beside_llama: "as `gemma3`, with a bound of logits; every head of values is normalised; layers with a window have \
        heads of another size, in the others a quarter of the pairs turns; every layer gets an embedding of the token, \
        and late layers attend to keys and values of earlier ones, where a model has it so; experts add to every MLP, \
        each with norms of its own, where it has some",
    tried: &[],
    classes: &[("gemma4_text", "Gemma4ForCausalLM"), ("gemma4", "Gemma4ForConditionalGeneration")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: true,
    accept,
    recipe,
};

/// What folders of models that see call what others call otherwise.
const LANGUAGE_NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens", "model.language_model.embed_tokens"),
    ("model.embed_tokens_per_layer", "model.language_model.embed_tokens_per_layer"),
    ("model.per_layer_model_projection", "model.language_model.per_layer_model_projection"),
    ("model.per_layer_projection_norm", "model.language_model.per_layer_projection_norm"),
    ("model.norm", "model.language_model.norm"),
];

/// What belongs to other graphs of a folder: what sees and what hears.
const OTHERS: [&str; 4] =
    ["model.vision_tower.", "model.embed_vision.", "model.audio_tower.", "model.embed_audio."];

/// The heads of layers without a window are the configuration's; those of the others are read with the graph.
fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    accepted::no_biases(fields)?;
    accepted::activation(fields, &["hidden_activation"], "gelu_pytorch_tanh")?;
    accepted::whole_heads_turn(fields, config)?;
    let is_local = local(fields, config.layers)?;
    let Some(whole) = is_local.iter().position(|is_local| !is_local) else {
        return Err(ModelError::invalid("the layers", "one or more without a window", "none"));
    };
    match fields.container() {
        Container::Gguf => {
            let value_length = "gemma4.attention.value_length";
            equal(value_length, fields.count(value_length)?, config.head_dim, "the head size")?;
            config.kv_heads = kv_heads(fields, config, &is_local, false)?;
            if matches!(config.rope.scaling, RopeScaling::PerPair(_)) {
                return Ok(());
            }
            let shape = vec![config.head_dim / 2];
            Err(ModelError::MissingTensor { name: "rope_freqs.weight".to_owned(), shape })
        }
        Container::Folder => {
            let sees = fields.text("use_bidirectional_attention")?.filter(|of| *of != "vision");
            only("use_bidirectional_attention", sees, "vision", "texts are read in one direction")?;
            for (kind, supported) in [("full_attention", "proportional"), ("sliding_attention", "default")] {
                let key = format!("rope_parameters.{kind}.rope_type");
                let found = required(fields.text(&key)?, &key, "the rule of a rotation")?;
                only(&key, Some(found), supported, "as in published models")?;
            }
            let by_layer = |what: &str| fields.count(&format!("per_layer_config.{whole}.{what}"));
            let head_dim = fields.count("global_head_dim")?.or(by_layer("head_dim")?);
            config.head_dim =
                required(head_dim, "global_head_dim", "the head size of layers without a window")?;
            config.rotated = config.head_dim;
            let is_own = fields.flag("attention_k_eq_v")? == Some(true);
            let own = fields.count("num_global_key_value_heads")?.filter(|_| is_own);
            config.kv_heads = own.or(by_layer("num_key_value_heads")?).unwrap_or(config.kv_heads);
            let keys = ["num_global_key_value_heads", "global_head_dim"];
            check_heads(config.heads, keys, [config.kv_heads, config.head_dim])
        }
    }
}

/// Which layers have a window, and with it a rotation and heads of their own.
fn local(fields: &dyn Fields, layers: usize) -> Result<Vec<bool>, ModelError> {
    if fields.container() == Container::Folder {
        let kinds = layer_types(fields, layers)?;
        let is_local: Vec<bool> = match kinds {
            Some(kinds) => kinds.iter().map(|kind| kind == "sliding_attention").collect(),
            None => (1..=layers).map(|layer| !layer.is_multiple_of(PATTERN) && layer != layers).collect(),
        };
        // Transformers would turn such a layer into another one.
        return match is_local.last() {
            Some(true) => Err(ModelError::unsupported(
                "key `layer_types`",
                "a last layer with a window",
                "`full_attention` there",
            )),
            _ => Ok(is_local),
        };
    }
    let key = "gemma4.attention.sliding_window_pattern";
    let is_local = required(fields.flags(key)?, key, "which layers have a window")?;
    if is_local.len() != layers {
        let expected = format!("one for each of {layers} layers");
        return Err(ModelError::invalid(format_args!("key `{key}`"), expected, is_local.len()));
    }
    Ok(is_local)
}

/// Key/value heads of the layers with a window or of those without, which a GGUF file may list layer by layer.
fn kv_heads(
    fields: &dyn Fields,
    config: &ModelConfig,
    is_local: &[bool],
    of_local: bool,
) -> Result<usize, ModelError> {
    let key = "gemma4.attention.head_count_kv";
    let Ok(Some(of_layers)) = fields.counts(key) else { return Ok(config.kv_heads) };
    if of_layers.len() != is_local.len() {
        let expected = format!("one for each of {} layers", is_local.len());
        return Err(ModelError::invalid(format_args!("key `{key}`"), expected, of_layers.len()));
    }
    let mut of_kind =
        of_layers.iter().zip(is_local).filter(|(_, is)| **is == of_local).map(|(heads, _)| *heads);
    let first = of_kind.next().unwrap_or(config.kv_heads);
    match of_kind.find(|heads| *heads != first) {
        None => Ok(first),
        Some(other) => {
            let found = format!("{first} in one layer, {other} in another");
            let supported = "as many in all layers with a window, and in all others";
            Err(ModelError::unsupported(format_args!("key `{key}`"), found, supported))
        }
    }
}

/// Key/value heads of layers with a window, and their width, if these are not the configuration's.
fn local_heads(source: &Source<'_>, is_local: &[bool]) -> Result<Option<[usize; 2]>, ModelError> {
    let Source { config, fields, .. } = *source;
    if !is_local.contains(&true) {
        return Ok(None);
    }
    let key = source.key("attention.key_length_swa", "head_dim");
    let head_dim = required(fields.count(&key)?, &key, "the head size of layers with a window")?;
    let is_gguf = fields.container() == Container::Gguf;
    let of_kv = source.key("attention.head_count_kv", "num_key_value_heads");
    let kv_heads = match is_gguf {
        true => kv_heads(fields, config, is_local, true)?,
        false => required(fields.count(&of_kv)?, &of_kv, "how many heads keys and values have")?,
    };
    let found = [kv_heads, head_dim];
    check_heads(config.heads, [&of_kv, &key], found)?;
    for key in ["gemma4.attention.value_length_swa", "gemma4.rope.dimension_count_swa"] {
        if is_gguf {
            equal(key, fields.count(key)?, head_dim, "the head size of layers with a window")?;
        }
    }
    Ok((found != [config.kv_heads, config.head_dim]).then_some(found))
}

/// Checks heads that the configuration's own check does not see, or sees by another key.
fn check_heads(
    heads: usize,
    [of_kv, of_dim]: [&str; 2],
    [kv_heads, head_dim]: [usize; 2],
) -> Result<(), ModelError> {
    within(of_dim, head_dim, HEAD_DIMS)?;
    within(of_kv, kv_heads, HEADS)?;
    within(&format!("{of_dim} x heads"), heads.saturating_mul(head_dim), SIZES)?;
    if !head_dim.is_multiple_of(2) {
        return Err(ModelError::invalid(format_args!("key `{of_dim}`"), "an even head size", head_dim));
    }
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of the {heads} query heads");
        return Err(ModelError::invalid(format_args!("key `{of_kv}`"), expected, kv_heads));
    }
    Ok(())
}

/// The first of the last layers, which attend to keys and values of earlier ones.
fn first_shared(source: &Source<'_>) -> Result<usize, ModelError> {
    let key = source.key("attention.shared_kv_layers", "num_kv_shared_layers");
    let shared = source.fields.count(&key)?.unwrap_or(0);
    match source.config.layers.checked_sub(shared).filter(|first| *first > 0) {
        Some(first) => Ok(first),
        None => {
            let expected = format!("fewer than the {} layers", source.config.layers);
            Err(ModelError::invalid(format_args!("key `{key}`"), expected, shared))
        }
    }
}

/// Hidden sizes of the MLPs, of all layers.
fn feed_forward(source: &Source<'_>, first_shared: usize) -> Result<Vec<usize>, ModelError> {
    let Source { config, fields, .. } = *source;
    let usual = config.feed_forward;
    if fields.container() == Container::Folder {
        let is_doubled = fields.flag("use_double_wide_mlp")? == Some(true);
        let of = |layer| if is_doubled && layer >= first_shared { 2 * usual } else { usual };
        return Ok((0..config.layers).map(of).collect());
    }
    let key = source.key("feed_forward_length", "");
    let Ok(Some(of_layers)) = fields.counts(&key) else { return Ok(vec![usual; config.layers]) };
    if of_layers.len() != config.layers {
        let expected = format!("one for each of {} layers", config.layers);
        return Err(ModelError::invalid(format_args!("key `{key}`"), expected, of_layers.len()));
    }
    of_layers.iter().try_for_each(|size| within(&key, *size, SIZES))?;
    Ok(of_layers)
}

/// What layers get of the token, if they get something.
fn layer_inputs(source: &Source<'_>) -> Result<Option<LayerInputs>, ModelError> {
    let Source { config, fields, .. } = *source;
    let key = source.key("embedding_length_per_layer_input", "hidden_size_per_layer_input");
    let Some(size) = fields.count(&key)?.filter(|size| *size > 0) else { return Ok(None) };
    within(&key, size, 1..=*SIZES.end())?;
    let rows = "vocab_size_per_layer_input";
    let stated = if fields.container() == Container::Folder { fields.count(rows)? } else { None };
    let vocabulary = stated.unwrap_or(config.vocabulary);
    if vocabulary < config.vocabulary {
        let expected = format!("{} or more, the size of the vocabulary", config.vocabulary);
        return Err(ModelError::invalid(format_args!("key `{rows}`"), expected, vocabulary));
    }
    Ok(Some(LayerInputs { size, vocabulary }))
}

/// Factors on the residual stream after each layer; none if no layer has one, which only GGUF files may leave out.
fn layer_scales(source: &Source<'_>, before_layers: &str) -> Result<Vec<f32>, ModelError> {
    let is_gguf = source.fields.container() == Container::Gguf;
    let suffix = if is_gguf { ".layer_output_scale.weight" } else { ".layer_scalar" };
    let of = |layer: usize| {
        let name = format!("{before_layers}{layer}{suffix}");
        match source.scalar(&name)? {
            Some(factor) => Ok(factor),
            None if is_gguf => Ok(1.0),
            None => Err(ModelError::MissingTensor { name, shape: vec![1] }),
        }
    };
    (0..source.config.layers).map(of).collect()
}

/// The experts parallel to MLPs, if there are some.
fn experts(source: &Source<'_>) -> Result<Option<Experts>, ModelError> {
    let stored = Stored::Fused { input: "experts.gate_up_proj", output: "experts.down_proj" };
    let router = "router.proj";
    let found = match source.fields.container() {
        Container::Gguf => Experts::read(source, stored, router, None)?,
        Container::Folder => match source.fields.flag("enable_moe_block")? {
            Some(true) => Some(Experts::required(source, stored, router, None)?),
            _ => None,
        },
    };
    let vector = Some(RouteVector::Factors("router.per_expert_scale"));
    Ok(found.map(|experts| Experts { vector, is_parallel: true, ..experts }))
}

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let Source { config, fields, tensors, .. } = *source;
    let is_folder = fields.container() == Container::Folder;
    let has_language = tensors.keys().any(|name| name.starts_with(LANGUAGE_LAYERS));
    let (names, before_layers) = match (is_folder, has_language) {
        (false, _) => (&[] as &[_], "blk."),
        (true, false) => (&[] as &[_], "model.layers."),
        (true, true) => (LANGUAGE_NAMES, LANGUAGE_LAYERS),
    };
    let is_local = local(fields, config.layers)?;
    let first_shared = first_shared(source)?;
    let base = source.float("rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta")?;
    let base_key = source.key("rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta");
    let base = if is_folder {
        required(base, &base_key, "the base of a rotation")?
    } else {
        base.unwrap_or(LOCAL_BASE)
    };
    let of_local = RopeConfig { base, scaling: RopeScaling::None };
    let other_heads = local_heads(source, &is_local)?;
    let [_, local_dim] = other_heads.unwrap_or([config.kv_heads, config.head_dim]);
    of_local.check(local_dim, &base_key, "rope_parameters.sliding_attention")?;
    let norm_of_keys = if is_folder { "self_attn.k_norm" } else { "attn_k_norm" };
    let mut others: Vec<String> = OTHERS.map(str::to_owned).to_vec();
    // Files may have them, though layers that attend to others' keys have no use for them.
    others
        .extend((first_shared..config.layers).map(|layer| format!("{before_layers}{layer}.{norm_of_keys}")));
    let recipe = Recipe {
        norms: Norms::Both,
        head_norms: HeadNorms::EachHead,
        has_value_norms: true,
        other_heads,
        layer_inputs: layer_inputs(source)?,
        layer_scales: layer_scales(source, before_layers)?,
        experts: experts(source)?,
        function: Nonlinearity::GeluTanh,
        embedding_scale: (config.hidden_size as f64).sqrt() as f32,
        score_scale: 1.0,
        logit_softcap: cap(source, "final_logit_softcapping")?,
        ropes: vec![config.rope.clone(), of_local],
        names,
        before_layers: Some(before_layers),
        others,
        ..Recipe::llama(config)
    };
    let mut recipe = recipe.windowed(source, |layer| is_local[layer])?;
    let is_of_one_matrix = |layer: usize| match is_folder {
        true => Ok(!is_local[layer] && fields.flag("attention_k_eq_v")? == Some(true)),
        false => Ok::<_, ModelError>(!tensors.contains_key(&format!("blk.{layer}.attn_v.weight"))),
    };
    let feed_forward = feed_forward(source, first_shared)?;
    for (layer, rule) in recipe.layers.iter_mut().enumerate() {
        rule.rope = Some(usize::from(is_local[layer]));
        rule.has_other_heads = is_local[layer] && other_heads.is_some();
        rule.feed_forward = feed_forward[layer];
        rule.keys = if layer >= first_shared {
            let lender = (0..first_shared).rev().find(|earlier| is_local[*earlier] == is_local[layer]);
            let expected = format!("a layer of its kind among the first {first_shared}");
            Keys::Of(lender.ok_or_else(|| {
                ModelError::invalid(
                    format_args!("layer {layer}, which attends to keys of another"),
                    expected,
                    "none",
                )
            })?)
        } else if is_of_one_matrix(layer)? {
            Keys::OwnOfOneMatrix
        } else {
            Keys::Own
        };
    }
    Ok(recipe)
}
