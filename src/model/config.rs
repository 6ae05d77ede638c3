//! The one configuration both containers produce, and the rules it must obey before a graph is built from it.

use std::{fmt, ops::RangeInclusive};

use super::{ModelError, RopeConfig};

/// Families of models, each one file in `family/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// RMS norm, rotary positions, grouped-query attention, SwiGLU: Llama 2 and 3, SmolLM 2, TinyLlama, Mistral 7B v0.3.
    Llama,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Llama => "llama",
        })
    }
}

/// What a model is, whatever file it came from; inside a `Model` it has passed every check.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which graph to build.
    pub family: Family,
    /// The model's own name (GGUF) or its folder's.
    pub name: String,
    /// Number of layers, each attention and MLP.
    pub layers: usize,
    /// Model width `D`.
    pub width: usize,
    /// Feed-forward width `F`.
    pub feed_forward: usize,
    /// Query heads `H`.
    pub heads: usize,
    /// Key/value heads `G`.
    pub kv_heads: usize,
    /// Head width `E`.
    pub head_dim: usize,
    /// Vocabulary size `V`: rows of the embedding matrix.
    pub vocabulary: usize,
    /// Longest context in tokens the model was made for.
    pub context: usize,
    /// Added to the mean square in every norm.
    pub rms_eps: f32,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Whether the embedding matrix is also the head.
    pub tied_head: bool,
}

/// What a container calls the fields of [`ModelConfig`]: errors name the key the user can find in the file.
#[derive(Clone, Debug)]
pub(super) struct ConfigKeys {
    pub(super) layers: String,
    pub(super) width: String,
    pub(super) feed_forward: String,
    pub(super) heads: String,
    pub(super) kv_heads: String,
    pub(super) head_dim: String,
    pub(super) vocabulary: String,
    pub(super) context: String,
    pub(super) rms_eps: String,
    pub(super) rope_base: String,
    pub(super) rope_scaling: String,
}

const LAYERS: RangeInclusive<usize> = 1..=4_096;
const WIDTHS: RangeInclusive<usize> = 2..=1 << 20;
const HEADS: RangeInclusive<usize> = 1..=1 << 16;
const HEAD_DIMS: RangeInclusive<usize> = 2..=1 << 12;
const VOCABULARIES: RangeInclusive<usize> = 1..=1 << 24;
const CONTEXTS: RangeInclusive<usize> = 1..=1 << 28;

fn within(key: &str, found: usize, range: RangeInclusive<usize>) -> Result<(), ModelError> {
    if range.contains(&found) {
        return Ok(());
    }
    let expected = format!("{} to {}", range.start(), range.end());
    Err(ModelError::invalid(format_args!("key `{key}`"), expected, found))
}

impl ModelConfig {
    /// Checks every rule that can be checked without tensors.
    ///
    /// # Errors
    /// The first breach, by the container's own key.
    pub(super) fn check(&self, keys: &ConfigKeys) -> Result<(), ModelError> {
        within(&keys.layers, self.layers, LAYERS)?;
        within(&keys.width, self.width, WIDTHS)?;
        within(&keys.feed_forward, self.feed_forward, WIDTHS)?;
        within(&keys.heads, self.heads, HEADS)?;
        within(&keys.kv_heads, self.kv_heads, HEADS)?;
        within(&keys.head_dim, self.head_dim, HEAD_DIMS)?;
        within(&keys.vocabulary, self.vocabulary, VOCABULARIES)?;
        within(&keys.context, self.context, CONTEXTS)?;
        let key = |key: &str| format!("key `{key}`");
        if !self.heads.is_multiple_of(self.kv_heads) {
            let expected = format!("a divisor of the {} query heads", self.heads);
            return Err(ModelError::invalid(key(&keys.kv_heads), expected, self.kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(ModelError::invalid(
                key(&keys.head_dim),
                "an even head width (rotary pairs)",
                self.head_dim,
            ));
        }
        within(&format!("{} x {}", keys.heads, keys.head_dim), self.heads * self.head_dim, WIDTHS)?;
        if !(self.rms_eps > 0.0 && self.rms_eps < 1.0) {
            return Err(ModelError::invalid(key(&keys.rms_eps), "above 0 and below 1", self.rms_eps));
        }
        self.rope.check(self.head_dim, &keys.rope_base, &keys.rope_scaling)
    }
}

/// Head width where the file does not state it: `D / H`.
pub(super) fn default_head_dim(width: usize, heads: usize, keys: &ConfigKeys) -> Result<usize, ModelError> {
    within(&keys.heads, heads, HEADS)?;
    if !width.is_multiple_of(heads) {
        let expected = format!("a multiple of the {heads} heads in `{}`", keys.heads);
        return Err(ModelError::invalid(format_args!("key `{}`", keys.width), expected, width));
    }
    Ok(width / heads)
}
