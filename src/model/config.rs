//! The configuration of a model, common to both containers, and its checks.

use std::{fmt::Display, ops::RangeInclusive};

use ygg_kernels::KvLayer;

use super::{Container, Family, ModelError, RopeConfig};

/// What a model is, whatever file it came from; inside a `Model` it has passed every check.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which graph to build.
    pub family: &'static Family,
    /// The model's own name (GGUF) or its folder's.
    pub name: String,
    /// Number of layers, each attention and MLP.
    pub layers: usize,
    /// Hidden size `D`.
    pub hidden_size: usize,
    /// Hidden size `F` of the MLPs.
    pub feed_forward: usize,
    /// Query heads `H`.
    pub heads: usize,
    /// Key/value heads `G`.
    pub kv_heads: usize,
    /// Head size `E`.
    pub head_dim: usize,
    /// Vocabulary size `V`: rows of the embedding matrix.
    pub vocabulary: usize,
    /// Longest context in tokens the model was made for.
    pub context: usize,
    /// Added to the mean square in every norm.
    pub rms_eps: f32,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Elements of a head that turn, from its first on; all of them as a rule.
    pub rotated: usize,
    /// Whether the embedding matrix is also the head.
    pub tied_head: bool,
}

/// What a container calls the fields of [`ModelConfig`]: errors name the key the user can find in the file.
#[derive(Clone, Debug)]
pub(super) struct ConfigKeys {
    pub(super) layers: String,
    pub(super) hidden_size: String,
    pub(super) feed_forward: String,
    pub(super) heads: String,
    pub(super) kv_heads: String,
    pub(super) head_dim: String,
    pub(super) vocabulary: String,
    pub(super) context: String,
    pub(super) rms_eps: String,
    pub(super) rope_base: String,
    pub(super) rope_scaling: String,
    pub(super) rotated: String,
}

const LAYERS: RangeInclusive<usize> = 1..=4_096;
pub(super) const SIZES: RangeInclusive<usize> = 2..=1 << 20;
pub(super) const HEADS: RangeInclusive<usize> = 1..=1 << 16;
/// As wide as kernels keep keys and values.
pub(super) const HEAD_DIMS: RangeInclusive<usize> = 2..=KvLayer::MAX_HEAD_DIM;
const VOCABULARIES: RangeInclusive<usize> = 1..=1 << 24;
const CONTEXTS: RangeInclusive<usize> = 1..=1 << 28;

pub(super) fn within(key: &str, found: usize, range: RangeInclusive<usize>) -> Result<(), ModelError> {
    if range.contains(&found) {
        return Ok(());
    }
    let expected = format!("{} to {}", range.start(), range.end());
    Err(ModelError::invalid(format_args!("key `{key}`"), expected, found))
}

/// What containers say each in their own way.
pub(super) struct Own {
    pub(super) name: String,
    pub(super) vocabulary: usize,
    pub(super) rope: RopeConfig,
    /// Share of a head that turns.
    pub(super) turned: Turned,
    pub(super) tied_head: bool,
}

/// How much of a head turns, as files say it.
pub(super) enum Turned {
    /// So many elements.
    Elements(usize),
    /// This share of them, rounded down.
    Share(f64),
}

impl ModelConfig {
    /// Reads and checks the configuration of a model of this family.
    ///
    /// # Errors
    /// [`ModelError`] for a key that is missing or wrong, and for what the family does not accept.
    pub(super) fn read(
        family: &'static Family,
        fields: &dyn Fields,
        keys: &ConfigKeys,
        own: Own,
    ) -> Result<Self, ModelError> {
        let count = |key: &str| required(fields.count(key)?, key, "an integer above 0");
        let (hidden_size, heads) = (count(&keys.hidden_size)?, count(&keys.heads)?);
        let head_dim = match fields.count(&keys.head_dim)? {
            Some(head_dim) => head_dim,
            None => default_head_dim(hidden_size, heads, keys)?,
        };
        let eps = required(fields.float(&keys.rms_eps)?, &keys.rms_eps, "a number above 0")?;
        let Own { name, vocabulary, rope, turned, tied_head } = own;
        let rotated = match turned {
            Turned::Elements(elements) => elements,
            Turned::Share(share) => (head_dim as f64 * share) as usize,
        };
        let mut config = Self {
            family,
            name,
            layers: count(&keys.layers)?,
            hidden_size,
            feed_forward: feed_forward(family, fields, keys)?,
            heads,
            kv_heads: kv_heads(fields, &keys.kv_heads)?.unwrap_or(heads),
            head_dim,
            vocabulary,
            context: count(&keys.context)?,
            rms_eps: eps as f32,
            rope,
            rotated,
            tied_head,
        };
        config.check(keys)?;
        (family.accept)(fields, &mut config)?;
        config.check(keys)?;
        Ok(config)
    }

    /// Checks every rule that can be checked without tensors.
    ///
    /// # Errors
    /// The first breach, by the container's own key.
    pub(super) fn check(&self, keys: &ConfigKeys) -> Result<(), ModelError> {
        within(&keys.layers, self.layers, LAYERS)?;
        within(&keys.hidden_size, self.hidden_size, SIZES)?;
        within(&keys.feed_forward, self.feed_forward, SIZES)?;
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
                "an even head size (rotary pairs)",
                self.head_dim,
            ));
        }
        within(&format!("{} x {}", keys.heads, keys.head_dim), self.heads * self.head_dim, SIZES)?;
        if !(self.rms_eps > 0.0 && self.rms_eps < 1.0) {
            return Err(ModelError::invalid(key(&keys.rms_eps), "above 0 and below 1", self.rms_eps));
        }
        if !self.rotated.is_multiple_of(2) || !(2..=self.head_dim).contains(&self.rotated) {
            let expected =
                format!("an even number of at most the {} elements of a head that turn", self.head_dim);
            return Err(ModelError::invalid(key(&keys.rotated), expected, self.rotated));
        }
        self.rope.check(self.rotated, &keys.rope_base, &keys.rope_scaling)
    }
}

/// Key/value heads, which a file may list layer by layer, 0 where a layer does not attend: those of the first that does.
/// Families whose files may have lists say whether layers may differ.
fn kv_heads(fields: &dyn Fields, key: &str) -> Result<Option<usize>, ModelError> {
    let Ok(Some(of_layers)) = fields.counts(key) else { return fields.count(key) };
    Ok(of_layers.into_iter().find(|heads| *heads > 0))
}

/// Hidden size of the MLPs, which a file may list layer by layer: that of the first. The shapes of tensors say whether
/// it is that of all. A model that has experts in all layers may say only theirs.
fn feed_forward(family: &Family, fields: &dyn Fields, keys: &ConfigKeys) -> Result<usize, ModelError> {
    let key = &keys.feed_forward;
    let found = match fields.counts(key) {
        Ok(Some(of_layers)) => of_layers.first().copied(),
        Ok(None) | Err(_) => fields.count(key)?,
    };
    let of_experts = || {
        let key = family.key(fields.container(), "expert_feed_forward_length", "moe_intermediate_size");
        fields.count(&key)
    };
    let found = match found {
        None => of_experts()?,
        found => found,
    };
    required(found, key, "an integer above 0")
}

/// Head size where the file does not state it: `D / H`.
fn default_head_dim(hidden_size: usize, heads: usize, keys: &ConfigKeys) -> Result<usize, ModelError> {
    within(&keys.heads, heads, HEADS)?;
    if !hidden_size.is_multiple_of(heads) {
        let expected = format!("a multiple of the {heads} heads in `{}`", keys.heads);
        return Err(ModelError::invalid(format_args!("key `{}`", keys.hidden_size), expected, hidden_size));
    }
    Ok(hidden_size / heads)
}

/// The configuration in a model file, by the keys of its container. An absent key is `None`; a value of another type is
/// an error that names the key.
pub(super) trait Fields {
    /// The container, which decides what keys and tensors are called.
    fn container(&self) -> Container;
    /// A truth value.
    fn flag(&self, key: &str) -> Result<Option<bool>, ModelError>;
    /// An integer of at least 0.
    fn count(&self, key: &str) -> Result<Option<usize>, ModelError>;
    /// A number.
    fn float(&self, key: &str) -> Result<Option<f64>, ModelError>;
    /// A text.
    fn text(&self, key: &str) -> Result<Option<&str>, ModelError>;
    /// A list of integers of at least 0.
    fn counts(&self, key: &str) -> Result<Option<Vec<usize>>, ModelError>;
    /// A list of numbers.
    fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, ModelError>;
    /// A list of truth values.
    fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, ModelError>;
    /// A list of texts.
    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, ModelError>;
}

/// The value of a key that must be there.
pub(super) fn required<T>(found: Option<T>, key: &str, expected: &'static str) -> Result<T, ModelError> {
    found.ok_or_else(|| ModelError::MissingKey { key: key.to_owned(), expected })
}

/// Refuses another number than `value`, which the configuration says elsewhere to be `what`.
pub(super) fn equal(key: &str, found: Option<usize>, value: usize, what: &str) -> Result<(), ModelError> {
    match found.filter(|found| *found != value) {
        Some(found) => {
            Err(ModelError::invalid(format_args!("key `{key}`"), format_args!("{what}, {value}"), found))
        }
        None => Ok(()),
    }
}

/// Refuses another value than the only supported one; `meaning` says what that one means.
pub(super) fn only<T: PartialEq + Display>(
    key: &str,
    found: Option<T>,
    supported: T,
    meaning: &str,
) -> Result<(), ModelError> {
    match found.filter(|found| *found != supported) {
        Some(found) => {
            let supported = format!("`{supported}` ({meaning})");
            Err(ModelError::unsupported(format_args!("key `{key}`"), format_args!("`{found}`"), supported))
        }
        None => Ok(()),
    }
}
