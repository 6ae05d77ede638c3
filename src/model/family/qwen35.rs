//! Qwen 3.5: gated delta rules in most layers, and attention with a gate of what comes out in the others.

use super::{
    Family, Source, accepted,
    further::FurtherNames,
    recipe::{self, HeadNorms, Instead, Recipe},
    recurrence,
};
use crate::model::{
    Container, ModelConfig, ModelError,
    config::{Fields, only, required},
};
use ygg_kernels::{RopePairing, StateForm, StateRule, StateShape};

/// Qwen 3.5, dense.
pub(super) static QWEN35: Family = Family {
    name: "qwen35",
    models: "Qwen 3.5, dense; of those that see, the language model",
    beside_llama: "most layers have a gated delta rule, whose rows have a state, in place of attention; in the others \
        every head is normalised and turns in part, and what comes out has a gate",
    tried: &[],
    classes: &[("qwen3_5_text", "Qwen3_5ForCausalLM"), ("qwen3_5", "Qwen3_5ForConditionalGeneration")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: |fields, config| {
        accepted::common(fields, config)?;
        accept(fields, config)
    },
    recipe,
};

/// How many layers follow each other to the next one that attends, where a file does not say.
const INTERVAL: usize = 4;

/// What GGUF files call what those of Llama call otherwise.
const GGUF_NAMES: &[(&str, &str)] = &[("ffn_norm", "post_attention_norm")];

/// What folders of models that see call what others call otherwise.
const LANGUAGE_NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens", "model.language_model.embed_tokens"),
    ("model.norm", "model.language_model.norm"),
];

/// What stands before the index of a layer of language models in such folders.
pub(super) const LANGUAGE_LAYERS: &str = "model.language_model.layers.";

/// What belongs to other graphs of a folder: layers that predict further tokens, and what sees.
const OTHERS: [&str; 3] = ["mtp.", "model.visual.", "visual."];

/// The key of a GGUF file for how many of its layers predict further tokens: the last ones.
fn further_key(config: &ModelConfig) -> String {
    config.family.key(Container::Gguf, "nextn_predict_layers", "")
}

/// What the dense family and that of experts check alike.
pub(super) fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    accepted::activation(fields, &["hidden_act"], "silu")?;
    match fields.container() {
        Container::Folder => {
            only("attn_output_gate", fields.flag("attn_output_gate")?, true, "gates of attention")
        }
        Container::Gguf => {
            let key = further_key(config);
            let further = fields.count(&key)?.unwrap_or(0);
            if further >= config.layers {
                let expected = format!("fewer than the {} layers", config.layers);
                return Err(ModelError::invalid(format_args!("key `{key}`"), expected, further));
            }
            config.layers -= further;
            Ok(())
        }
    }
}

/// Which layers attend; the others have a gated delta rule.
fn attending(source: &Source<'_>) -> Result<Vec<bool>, ModelError> {
    let Source { config, fields, .. } = *source;
    if fields.container() == Container::Folder
        && let Some(attends) = recipe::attending(source, [&["full_attention"], &["linear_attention"]])?
    {
        return Ok(attends);
    }
    let key = source.key("full_attention_interval", "full_attention_interval");
    let interval = fields.count(&key)?.unwrap_or(INTERVAL);
    if interval == 0 {
        return Err(ModelError::invalid(format_args!("key `{key}`"), "an integer above 0", interval));
    }
    Ok((1..=config.layers).map(|layer| layer.is_multiple_of(interval)).collect())
}

/// Sizes of the gated delta rule.
fn shape(source: &Source<'_>) -> Result<StateShape, ModelError> {
    let count = |gguf: &str, folder: &str, expected: &'static str| {
        let key = source.key(gguf, folder);
        required(source.fields.count(&key)?, &key, expected)
    };
    let key_heads = count("ssm.group_count", "linear_num_key_heads", "how many heads keys have")?;
    let value_heads = count("ssm.time_step_rank", "linear_num_value_heads", "how many heads values have")?;
    let key_dim = count("ssm.state_size", "linear_key_head_dim", "elements of a key")?;
    let taps = count("ssm.conv_kernel", "linear_conv_kernel_dim", "the taps of a convolution")?;
    let value_dim = match source.fields.container() {
        Container::Folder => count("", "linear_value_head_dim", "elements of a value")?,
        Container::Gguf => {
            let all = count("ssm.inner_size", "", "elements of the values of all heads")?;
            if value_heads == 0 || !all.is_multiple_of(value_heads) {
                let expected = format!("a multiple of the {value_heads} heads of values");
                let key = source.key("ssm.inner_size", "");
                return Err(ModelError::invalid(format_args!("key `{key}`"), expected, all));
            }
            all / value_heads
        }
    };
    let shape = StateShape { rule: StateRule::Delta, key_heads, value_heads, key_dim, value_dim, taps };
    recurrence::lawful(shape, "the gated delta rule")
}

/// What both families compute, with an MLP in every layer.
pub(super) fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let is_folder = source.fields.container() == Container::Folder;
    let form = StateForm { is_grouped: is_folder, is_logarithm: is_folder, steps: StateForm::ALL_STEPS };
    let has_language = source.tensors.keys().any(|name| name.starts_with(LANGUAGE_LAYERS));
    let (names, before_layers) = match (is_folder, has_language) {
        (false, _) => (GGUF_NAMES, None),
        (true, false) => (&[] as &[_], None),
        (true, true) => (LANGUAGE_NAMES, Some(LANGUAGE_LAYERS)),
    };
    let layers = source.config.layers;
    let of_further = if is_folder { "mtp_num_hidden_layers".to_owned() } else { further_key(source.config) };
    let further = source.fields.count(&of_further)?.unwrap_or(usize::from(is_folder));
    let mut others: Vec<String> = OTHERS.map(str::to_owned).to_vec();
    if !is_folder {
        others.extend((layers..layers + further).map(|layer| format!("blk.{layer}.")));
    }
    let mut recipe = Recipe {
        head_norms: HeadNorms::EachHead,
        has_gates: true,
        // Folders store gains less one.
        gain_offset: if is_folder { 1.0 } else { 0.0 },
        recurrence: Some((shape(source)?, form)),
        names,
        before_layers,
        others,
        further: (further == 1).then(|| FurtherNames::of(source)),
        ..Recipe::llama(source.config)
    };
    for (layer, attends) in recipe.layers.iter_mut().zip(attending(source)?) {
        layer.instead = (!attends).then_some(Instead::Recurrence);
    }
    Ok(recipe)
}
