//! From a shape and a model to the sizes of the inflated model, and to which of its heads are which of the model's.

use super::shape::{AttentionSize, InflatedShape};
use crate::model::{ConfigKeys, ModelConfig, ModelError};

/// Families whose models are inflated: those that normalise what goes into a sub-layer and nothing that comes out of
/// one.
const FAMILIES: [&str; 3] = ["llama", "qwen2", "qwen3"];

/// Both configurations, and where heads go.
#[derive(Debug)]
pub(super) struct Sizes<'a> {
    pub(super) small: &'a ModelConfig,
    pub(super) large: ModelConfig,
    /// The model's query head that each inflated one is; `is_read` if any later op reads it.
    pub(super) queries: Vec<HeadPlace>,
    /// The model's key/value head that each inflated one is.
    pub(super) keys: Vec<usize>,
}

/// Which head of the model a query head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadPlace {
    pub(super) head: usize,
    pub(super) is_read: bool,
}

impl<'a> Sizes<'a> {
    /// The sizes of `small` in this shape.
    ///
    /// # Errors
    /// [`ModelError`] for another family, a size below the model's, or heads that do not fit.
    pub(super) fn new(small: &'a ModelConfig, shape: &InflatedShape) -> Result<Self, ModelError> {
        if !FAMILIES.contains(&small.family.name) {
            return Err(ModelError::unsupported(
                "inflation",
                format_args!("family `{}`", small.family.name),
                FAMILIES.map(|name| format!("`{name}`")).join(", "),
            ));
        }
        let what = |size: &str| format!("`{size}` of the shape `{}`", shape.name);
        let (heads, kv_heads) = heads(small, shape)?;
        let large = ModelConfig {
            name: format!("{} inflated to {}", small.name, shape.name),
            layers: shape.layers,
            hidden_size: shape.width,
            feed_forward: shape.mlp,
            heads,
            kv_heads,
            rms_eps: (f64::from(small.rms_eps) * small.hidden_size as f64 / shape.width as f64) as f32,
            ..small.clone()
        };
        for (size, least, found) in [
            ("layers", small.layers, large.layers),
            ("width", small.hidden_size, large.hidden_size),
            ("mlp", small.feed_forward, large.feed_forward),
            ("heads", small.heads, large.heads),
            ("kv_heads", small.kv_heads, large.kv_heads),
        ] {
            if found < least {
                let expected = format!("at least the model's {least}");
                return Err(ModelError::invalid(what(size), expected, found));
            }
        }
        large.check(&keys())?;
        let [group, large_group] = [small, &large].map(|config| config.heads / config.kv_heads);
        // Key/value heads that one of the model's becomes.
        let copies = group.div_ceil(large_group);
        if kv_heads < small.kv_heads * copies {
            let expected = format!(
                "at least {}, for groups of {large_group} query heads in place of {group}",
                small.kv_heads * copies
            );
            return Err(ModelError::invalid(what("kv_heads"), expected, kv_heads));
        }
        let query = |place: usize| {
            let (key, within) = (place / large_group, place % large_group);
            let (head, within) = (key / copies, key % copies * large_group + within);
            match head < small.kv_heads && within < group {
                true => HeadPlace { head: head * group + within, is_read: true },
                false => HeadPlace { head: place % small.heads, is_read: false },
            }
        };
        let key = |place: usize| match place / copies {
            head if head < small.kv_heads => head,
            _ => place % small.kv_heads,
        };
        let (queries, keys) = ((0..heads).map(query).collect(), (0..kv_heads).map(key).collect());
        Ok(Self { small, large, queries, keys })
    }

    /// What gains of norms of hidden rows are multiplied with.
    pub(super) fn gain_factor(&self) -> f64 {
        (self.small.hidden_size as f64 / self.large.hidden_size as f64).sqrt()
    }
}

/// Numbers of query heads and of key/value heads.
fn heads(small: &ModelConfig, shape: &InflatedShape) -> Result<(usize, usize), ModelError> {
    let size = small.head_dim;
    let whole = |elements: usize| match elements.is_multiple_of(size) {
        true => Ok(elements / size),
        false => Err(ModelError::invalid(
            format_args!("the shape `{}`", shape.name),
            format_args!("a multiple of the model's heads of {size}; give sizes with heads=N"),
            elements,
        )),
    };
    match shape.attention {
        AttentionSize::Elements { queries, keys } => Ok((whole(queries)?, whole(keys)?)),
        AttentionSize::Heads { queries, keys } => {
            let queries = queries.map_or_else(|| whole(shape.width), Ok)?;
            let group = small.heads / small.kv_heads;
            match keys {
                Some(keys) => Ok((queries, keys)),
                None if queries.is_multiple_of(group) => Ok((queries, queries / group)),
                None => Err(ModelError::invalid(
                    format_args!("the shape `{}`", shape.name),
                    format_args!("a multiple of the model's groups of {group} query heads, or kv_heads=N"),
                    format_args!("{queries} query heads"),
                )),
            }
        }
    }
}

/// The keys of a shape. What is the model's own is as it was checked.
fn keys() -> ConfigKeys {
    let [layers, hidden_size, feed_forward, heads, kv_heads] = InflatedShape::KEYS.map(str::to_owned);
    let of_model = || "the model's own".to_owned();
    ConfigKeys {
        layers,
        hidden_size,
        feed_forward,
        heads,
        kv_heads,
        head_dim: of_model(),
        vocabulary: of_model(),
        context: of_model(),
        rms_eps: of_model(),
        rope_base: of_model(),
        rope_scaling: of_model(),
        rotated: of_model(),
    }
}
