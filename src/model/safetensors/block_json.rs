//! What the `config.json` of a block drafter says, in the layouts that are published.
//!
//! DFlash drafters of z-lab (<https://github.com/z-lab/dflash>) say it in `dflash_config`, DSpark drafters of DeepSpec
//! (<https://github.com/deepseek-ai/DeepSpec>) at the top. speculators (<https://github.com/vllm-project/speculators>)
//! has both kinds, with the sizes of layers in `transformer_layer_config`.

use super::config_json::{Object, numbers};
use crate::{
    ir::BlockRows,
    model::{
        BlockHead, Container, ModelConfig, ModelError,
        config::{Fields, only, required},
        draft_vocabulary::DraftVocabulary,
        family::{BLOCK, Naming},
    },
};

/// Names of classes that have the layers of Qwen 3, as all that is read here does.
const CLASSES: [&str; 5] =
    ["DFlashDraftModel", "DFlashSpeculator", "DSparkDraftModel", "DSparkSpeculator", "Qwen3DSparkModel"];
/// Kinds of drafters of speculators.
const SPECULATORS: [&str; 2] = ["dflash", "dspark"];
/// Most rows of a block: as many as any step verifies. Published drafters have 4 to 16.
const MOST_ROWS: usize = 64;
/// Most layers of a verifier that are read.
const MOST_LAYERS: usize = 16;

/// The classes that a configuration names.
fn classes(json: &Object) -> Result<Vec<String>, ModelError> {
    match json.get("architectures") {
        Some(_) => Ok(json.texts("architectures")?.unwrap_or_default()),
        None => Ok(Vec::new()),
    }
}

/// Whether a `config.json` is that of a block drafter.
///
/// # Errors
/// [`ModelError`] for values of another type.
pub(super) fn is_block(json: &Object) -> Result<bool, ModelError> {
    if let Some(kind) = json.text("speculators_model_type")? {
        return Ok(SPECULATORS.contains(&kind));
    }
    let is_block = |class: &String| {
        let class = class.to_ascii_lowercase();
        class.contains("dflash") || class.contains("dspark")
    };
    Ok(json.get("dflash_config").is_some() || classes(json)?.iter().any(is_block))
}

/// The configuration of a drafter's layers, the name of the verifier that it was trained for, and what else is said of
/// it.
pub(super) fn block_config(
    json: &Object,
    name: &str,
) -> Result<(ModelConfig, String, BlockHead), ModelError> {
    let classes = classes(json)?;
    let kind = json.text("speculators_model_type")?;
    if let Some(other) = classes.iter().find(|class| !CLASSES.contains(&class.as_str())) {
        let found = format!("`{other}`");
        return Err(ModelError::unsupported("key `architectures`", found, CLASSES.join(", ")));
    }
    let inner = json.object("transformer_layer_config")?;
    let layers_in = inner.as_ref().unwrap_or(json);
    only(&layers_in.path("model_type"), layers_in.text("model_type")?, "qwen3", "layers of Qwen 3")?;
    let config = numbers(layers_in, name, &BLOCK)?;
    let verifier = json.object("speculators_config")?.map(|outer| outer.object("verifier")).transpose()?;
    let verifier = match verifier.flatten() {
        Some(verifier) => verifier.text("name_or_path")?.unwrap_or_default().to_owned(),
        None => String::new(),
    };

    let own = json.object("dflash_config")?;
    // What z-lab's program looks for in `dflash_config` first.
    let holding = |key: &str| own.as_ref().filter(|own| own.get(key).is_some()).unwrap_or(json);
    let count = |key: &str| {
        let holding = holding(key);
        required(holding.count(key)?, &holding.path(key), "an integer above 0")
    };
    let float = |key: &str| {
        let holding = holding(key);
        match holding.float(key)? {
            Some(value) if !value.is_finite() || value == 0.0 => {
                let what = format!("key `{}`", holding.path(key));
                Err(ModelError::invalid(what, "a finite number other than 0", value))
            }
            value => Ok(value.map(|value| value as f32)),
        }
    };
    for (key, supported, meaning) in [
        ("is_causal", false, "rows of a block that see one another"),
        ("causal", false, "rows of a block that see one another"),
        ("use_swa", false, "attention to the whole text"),
        ("attention_sink_bias", false, "no attention sinks"),
        ("shift_label", false, "the rows of its kind"),
    ] {
        only(&holding(key).path(key), holding(key).flag(key)?, supported, meaning)?;
    }
    only("projector_type", json.text("projector_type")?, "dflash", "no correction by what is drafted")?;

    let markov_rank = json.count("markov_rank")?.filter(|rank| *rank > 0);
    let is_dspark = markov_rank.is_some()
        || kind == Some("dspark")
        || classes.iter().any(|class| class.contains("DSpark"));
    if markov_rank.is_some() {
        only("markov_head_type", json.text("markov_head_type")?, "vanilla", "a product of two tables")?;
    }
    let (size, mask_token) = (count("block_size")?, count("mask_token_id")?);
    // A row's logits are for the token after it where the block begins with the text's last token, else for its own.
    let first = usize::from(!json.flag("sample_from_anchor")?.unwrap_or(is_dspark));
    let sizes = first + 1..=MOST_ROWS;
    if !sizes.contains(&size) {
        let what = format!("key `{}`", holding("block_size").path("block_size"));
        let expected = format!("{} to {}", sizes.start(), sizes.end());
        return Err(ModelError::invalid(what, expected, size));
    }
    let mask = u32::try_from(mask_token).ok().filter(|mask| (*mask as usize) < config.vocabulary);
    let mask_token = mask.ok_or_else(|| {
        let what = format!("key `{}`", holding("mask_token_id").path("mask_token_id"));
        ModelError::invalid(what, format!("a token below {}", config.vocabulary), mask_token)
    })?;
    let rows = json.count("draft_vocab_size")?.unwrap_or(config.vocabulary);
    let head = BlockHead {
        naming: Naming { layers: "layers.", ..Naming::of(Container::Folder) },
        layers: layers(json, own.as_ref())?,
        target_width: json.count("target_hidden_size")?,
        rows: BlockRows { size, mask_token, first },
        vocabulary: DraftVocabulary::of(rows),
        embedding_scale: float("input_embedding_scale")?.unwrap_or(1.0),
        logit_scale: float("output_multiplier")?.unwrap_or(1.0),
        logit_softcap: float("final_logit_softcapping")?.filter(|cap| *cap > 0.0),
        markov_rank,
    };
    Ok((config, verifier, head))
}

/// The verifier's layers whose rows are read: for each number, what comes out of so many.
///
/// speculators names those numbers. `target_layer_ids` are numbers of layers from 0, whose outputs are read; -1 is the
/// embedding.
fn layers(json: &Object, own: Option<&Object>) -> Result<Vec<usize>, ModelError> {
    const PASSED: &str = "aux_hidden_state_layer_ids";
    const NUMBERS: &str = "target_layer_ids";
    let holding = own.filter(|own| own.get(NUMBERS).is_some()).unwrap_or(json);
    let (key, layers) = match json.counts(PASSED)? {
        Some(passed) => (PASSED.to_owned(), passed),
        None => {
            let numbers = holding.integers(NUMBERS)?;
            let numbers = holding.required(numbers, NUMBERS, "the verifier's layers whose rows are read")?;
            let passed = |number: &i64| usize::try_from(number.checked_add(1)?).ok();
            let passed: Option<Vec<usize>> = numbers.iter().map(passed).collect();
            let key = holding.path(NUMBERS);
            let refuse = || ModelError::invalid(format!("key `{key}`"), "layers from -1 on", "others");
            let passed = passed.ok_or_else(refuse)?;
            (key, passed)
        }
    };
    if (1..=MOST_LAYERS).contains(&layers.len()) {
        return Ok(layers);
    }
    let expected = format!("1 to {MOST_LAYERS} layers");
    Err(ModelError::invalid(format_args!("key `{key}`"), expected, layers.len()))
}
