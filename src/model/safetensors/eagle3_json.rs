//! What the `config.json` of an EAGLE-3 head says, in the layouts that are published.
//!
//! Heads of SafeAILab (<https://github.com/SafeAILab/EAGLE>), SpecForge (<https://github.com/sgl-project/SpecForge>)
//! and AngelSlim (<https://github.com/Tencent/AngelSlim>) state their layer's sizes at the top; those of speculators
//! (<https://github.com/vllm-project/speculators>) in `transformer_layer_config`.

use super::config_json::{Object, numbers};
use crate::model::{
    Container, Eagle3, ModelConfig, ModelError, TensorTable,
    config::{Fields, only},
    draft_vocabulary::DraftVocabulary,
    eagle3::JoiningNorms,
    family::{EAGLE3, Naming},
};

/// Whether a `config.json` is that of an EAGLE-3 head.
///
/// # Errors
/// [`ModelError`] for another kind of drafter by speculators.
pub(super) fn is_eagle3(json: &Object) -> Result<bool, ModelError> {
    let key = "speculators_model_type";
    if let Some(kind) = json.text(key)? {
        only(key, Some(kind), "eagle3", "EAGLE-3 heads")?;
        return Ok(true);
    }
    let named = |class: &String| class.to_ascii_lowercase().contains("eagle3");
    let is_named =
        json.get("architectures").is_some() && json.texts("architectures")?.iter().flatten().any(named);
    Ok(is_named || json.get("draft_vocab_size").is_some())
}

/// The configuration of a head's layer, the name of the verifier that it was trained for, and what else is said of it.
pub(super) fn eagle3_config(
    json: &Object,
    name: &str,
    tensors: &TensorTable,
) -> Result<(ModelConfig, String, Eagle3), ModelError> {
    let inner = json.object("transformer_layer_config")?;
    let config = numbers(inner.as_ref().unwrap_or(json), name, &EAGLE3)?;
    let is_speculators = inner.is_some();
    let verifier = json.object("speculators_config")?.map(|outer| outer.object("verifier")).transpose()?;
    let verifier = match verifier.flatten() {
        Some(verifier) => verifier.text("name_or_path")?.unwrap_or_default().to_owned(),
        None => String::new(),
    };
    let flag = |key: &str| Ok::<bool, ModelError>(json.flag(key)?.unwrap_or(false));
    let norms = match (flag("norm_before_fc")?, flag("fc_norm")?) {
        (false, false) => JoiningNorms::None,
        (true, false) => JoiningNorms::Whole,
        (false, true) => JoiningNorms::Each,
        (true, true) => {
            let expected = "false where `norm_before_fc` is true";
            return Err(ModelError::invalid("key `fc_norm`", expected, true));
        }
    };
    let gives_normed = flag("norm_output")?;
    if gives_normed && !is_speculators {
        // Programs disagree: SpecForge normalises what the head multiplies, vLLM what the next node is given.
        let supported = "heads without it, or in the layout of speculators";
        return Err(ModelError::unsupported("key `norm_output`", "`true`", supported));
    }
    let draft_vocabulary = json.count("draft_vocab_size")?.unwrap_or(config.vocabulary);
    let prefix =
        if tensors.keys().any(|name| name.starts_with("midlayer.")) { "midlayer." } else { "layers.0." };
    let head = Eagle3 {
        naming: Naming { layers: prefix, has_index: false, ..Naming::of(Container::Folder) },
        layers: layers(json)?,
        target_width: json.count("target_hidden_size")?,
        vocabulary: DraftVocabulary::of(draft_vocabulary),
        norm_before_residual: flag("norm_before_residual")?,
        norms,
        gives_normed,
        read_tensors: Vec::new(),
    };
    Ok((config, verifier, head))
}

/// The verifier's layers whose rows the head reads, if they are named: for each number, what comes out of so many.
///
/// At the top, as vLLM reads it, they are those numbers. In `eagle_config`, as SpecForge writes and SGLang reads it,
/// they number the layers that the rows come out of, from 0.
fn layers(json: &Object) -> Result<Option<Vec<usize>>, ModelError> {
    const KEY: &str = "eagle_aux_hidden_state_layer_ids";
    let inner = json.object("eagle_config")?;
    if let Some(inner) = &inner {
        for (key, supported, meaning) in [
            ("use_aux_hidden_state", true, "rows of several layers"),
            ("use_input_layernorm_in_first_layer", true, "a norm of the token's row"),
            ("use_last_layernorm", true, "a norm before the head"),
            ("use_mtp_layernorm", false, "no norms before `fc`"),
        ] {
            only(&inner.path(key), inner.flag(key)?, supported, meaning)?;
        }
        let key = "parallel_draft_step";
        only(&inner.path(key), inner.count(key)?, 1, "one token a forward")?;
    }
    let nested = inner.map(|inner| inner.counts(KEY)).transpose()?.flatten();
    let named = match (json.counts(KEY)?, nested) {
        (Some(top), _) => Some(top),
        (None, Some(nested)) => Some(nested.into_iter().map(|layer| layer.saturating_add(1)).collect()),
        (None, None) => None,
    };
    match named.as_ref().map(Vec::len) {
        Some(count) if !(1..=16).contains(&count) => {
            Err(ModelError::invalid(format_args!("key `{KEY}`"), "1 to 16 layers", count))
        }
        _ => Ok(named),
    }
}

/// What safetensors files store of the mapping between vocabularies, as integers.
pub(super) const MAPS: [&str; 2] = ["d2t", "t2d"];
