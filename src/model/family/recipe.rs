//! What makes the graph of one decoder family: how it differs from Llama's. Its default is Llama's.

use std::slice::SliceIndex;

use super::{
    Source,
    experts::{ExpertWeights, Experts},
    further::FurtherNames,
    layer_inputs::{LayerInputWeights, LayerInputs},
    mlp::Mlp,
    recurrence::RecurrenceWeights,
};
use crate::{
    ir::{RopeId, ValueId, WeightId},
    model::{
        ModelConfig, ModelError, RopeConfig,
        config::{Fields, required},
    },
};
use ygg_kernels::{Nonlinearity, Routing, StateForm, StateShape};

/// Where a sub-layer is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norms {
    /// What goes in.
    Before,
    /// What comes out, before it is added to the residual stream.
    After,
    /// Both.
    Both,
}

/// What of queries and keys is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadNorms {
    /// Nothing.
    None,
    /// Every head by itself, all with one gain.
    EachHead,
    /// All heads of a row together.
    AllHeads,
}

/// Which products of attention have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Biases {
    /// None.
    None,
    /// Those that make queries, keys and values.
    Inputs,
    /// These and the output's.
    Attention,
}

/// How one layer attends, or what it does instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerRule {
    /// Which of the family's rotary embeddings turns its queries and keys; none where they are not turned.
    pub(super) rope: Option<usize>,
    /// Positions that a row sees, its own the last of them; all without it.
    pub(super) window: Option<u32>,
    /// What it has in place of attention, if not that.
    pub(super) instead: Option<Instead>,
    /// Whether it has the recipe's experts, if there are some, in place of an MLP.
    pub(super) is_routed: bool,
    /// Whether its heads have the recipe's other shape.
    pub(super) has_other_heads: bool,
    /// Which keys and values it attends to.
    pub(super) keys: Keys,
    /// Hidden size of its MLP.
    pub(super) feed_forward: usize,
}

/// Which keys and values a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Its own.
    Own,
    /// Its own, both from one matrix.
    OwnOfOneMatrix,
    /// Those of an earlier layer.
    Of(usize),
}

/// What a layer has in place of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// A short convolution of so many taps.
    ShortConv { taps: usize },
    /// The recipe's recurrence.
    Recurrence,
}

/// What a decoder computes, apart from its sizes.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// Where sub-layers are normalised.
    pub(super) norms: Norms,
    /// What of queries and keys is normalised, before they turn.
    pub(super) head_norms: HeadNorms,
    /// Whether every head of values is normalised, without a gain.
    pub(super) has_value_norms: bool,
    /// Key/value heads and head width of layers that have others than the configuration's.
    pub(super) other_heads: Option<[usize; 2]>,
    /// What every layer gets of a row's token in addition.
    pub(super) layer_inputs: Option<LayerInputs>,
    /// Factors on the residual stream after each layer; none if that stays as it is.
    pub(super) layer_scales: Vec<f32>,
    /// Which products of attention have biases.
    pub(super) biases: Biases,
    /// Whether each query head has a score without a value.
    pub(super) has_sinks: bool,
    /// Whether files have queries, keys and values in one tensor.
    pub(super) has_fused_queries: bool,
    /// Whether files have gate and up of MLPs in one tensor.
    pub(super) has_fused_gates: bool,
    /// Whether attention has a gate of what comes out: of each head, the rows after those of its query.
    pub(super) has_gates: bool,
    /// Function of the MLPs' gates.
    pub(super) function: Nonlinearity,
    /// What is added to stored gains.
    pub(super) gain_offset: f32,
    /// Factor on embeddings.
    pub(super) embedding_scale: f32,
    /// Factor on what a sub-layer adds to the residual stream.
    pub(super) residual_scale: f32,
    /// Factor on products of queries and keys.
    pub(super) score_scale: f32,
    /// Bound of scores.
    pub(super) score_softcap: Option<f32>,
    /// Factor on the rows that the head multiplies, and so on logits.
    pub(super) logit_scale: f32,
    /// Bound of logits.
    pub(super) logit_softcap: Option<f32>,
    /// Rotary embeddings.
    pub(super) ropes: Vec<RopeConfig>,
    /// The experts of layers that have some in place of an MLP, or parallel to it.
    pub(super) experts: Option<Experts>,
    /// The recurrence of layers that have one in place of attention.
    pub(super) recurrence: Option<(StateShape, StateForm)>,
    /// One for each layer.
    pub(super) layers: Vec<LayerRule>,
    /// Names of weights: those that other families' files have, and what this family's have.
    pub(super) names: &'static [(&'static str, &'static str)],
    /// What stands before a layer's index, where that is not what the container has.
    pub(super) before_layers: Option<&'static str>,
    /// What the names of tensors begin with that belong to other graphs of the file.
    pub(super) others: Vec<String>,
    /// What the layer that predicts a further token is called, where the files may have one.
    pub(super) further: Option<FurtherNames>,
}

impl Recipe {
    /// Llama's.
    pub(super) fn llama(config: &ModelConfig) -> Self {
        let rule = LayerRule {
            rope: Some(0),
            window: None,
            instead: None,
            is_routed: true,
            has_other_heads: false,
            keys: Keys::Own,
            feed_forward: config.feed_forward,
        };
        Self {
            norms: Norms::Before,
            head_norms: HeadNorms::None,
            has_value_norms: false,
            other_heads: None,
            layer_inputs: None,
            layer_scales: Vec::new(),
            biases: Biases::None,
            has_sinks: false,
            has_fused_queries: false,
            has_fused_gates: false,
            has_gates: false,
            function: Nonlinearity::Silu,
            gain_offset: 0.0,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            score_scale: inverse_root(config.head_dim as f64),
            score_softcap: None,
            logit_scale: 1.0,
            logit_softcap: None,
            ropes: vec![config.rope.clone()],
            experts: None,
            recurrence: None,
            layers: vec![rule; config.layers],
            names: &[],
            before_layers: None,
            others: Vec::new(),
            further: None,
        }
    }

    /// The number of the cache that a layer attends to, or has instead: its own is that of the layer among those that
    /// have one of the kind. Those of heads of the other shape come last.
    pub(super) fn cache_layer(&self, layer: usize) -> usize {
        let LayerRule { keys, instead, has_other_heads, .. } = self.layers[layer];
        match keys {
            Keys::Of(lender) => self.cache_layer(lender),
            Keys::Own | Keys::OwnOfOneMatrix => {
                let usual = if has_other_heads { self.caches(.., instead, false) } else { 0 };
                usual + self.caches(..layer, instead, has_other_heads)
            }
        }
    }

    /// How many of these layers have a cache of their own, of keys and values or of what they have instead.
    pub(super) fn caches(
        &self,
        layers: impl SliceIndex<[LayerRule], Output = [LayerRule]>,
        instead: Option<Instead>,
        has_other_heads: bool,
    ) -> usize {
        let has_own = |rule: &&LayerRule| {
            (rule.instead, rule.has_other_heads) == (instead, has_other_heads)
                && !matches!(rule.keys, Keys::Of(_))
        };
        self.layers[layers].iter().filter(has_own).count()
    }

    /// Key/value heads of a layer, and their width.
    pub(super) fn heads(&self, config: &ModelConfig, layer: usize) -> [usize; 2] {
        let own = self.other_heads.filter(|_| self.layers[layer].has_other_heads);
        own.unwrap_or([config.kv_heads, config.head_dim])
    }

    /// The same with a window where the model has one: in the layers that `layer_types` or, where a file has none,
    /// `is_windowed` names.
    ///
    /// # Errors
    /// [`ModelError`] for a window of no positions, and for kinds of layers that attend in another way.
    pub(super) fn windowed(
        mut self,
        source: &Source<'_>,
        is_windowed: impl Fn(usize) -> bool,
    ) -> Result<Self, ModelError> {
        let kinds = layer_types(source.fields, source.config.layers)?;
        let key = source.key("attention.sliding_window", "sliding_window");
        let window = source.fields.count(&key)?;
        for (number, layer) in self.layers.iter_mut().enumerate() {
            let is_windowed = match kinds.as_ref().map(|kinds| kinds[number].as_str()) {
                None => window.is_some() && is_windowed(number),
                Some("sliding_attention") => true,
                Some("full_attention") => false,
                Some(other) => {
                    return Err(ModelError::unsupported(
                        "key `layer_types`",
                        format_args!("`{other}`"),
                        "`full_attention`, `sliding_attention`",
                    ));
                }
            };
            if !is_windowed {
                continue;
            }
            let Some(window) = window.filter(|window| *window > 0) else {
                let found = window.map_or("none".to_owned(), |window| window.to_string());
                return Err(ModelError::invalid(format_args!("key `{key}`"), "a window above 0", found));
            };
            // A window that no context fills is none.
            layer.window = u32::try_from(window).ok().filter(|_| window < source.config.context);
        }
        Ok(self)
    }
}

/// What a folder's `layer_types` says of each layer, if it has them.
pub(super) fn layer_types(fields: &dyn Fields, layers: usize) -> Result<Option<Vec<String>>, ModelError> {
    let kinds = fields.texts("layer_types")?;
    match kinds.as_ref().map(Vec::len).filter(|found| *found != layers) {
        Some(found) => {
            let expected = format!("one for each of {layers} layers");
            Err(ModelError::invalid("key `layer_types`", expected, found))
        }
        None => Ok(kinds),
    }
}

/// Which layers attend, by what `layer_types` calls those that do and those that do not; `None` if a folder does not say
/// it there.
pub(super) fn attending(
    source: &Source<'_>,
    [attend, instead]: [&[&str]; 2],
) -> Result<Option<Vec<bool>>, ModelError> {
    let attends = |kind: String| {
        let is_of = |kinds: &[&str]| kinds.contains(&kind.as_str());
        if is_of(attend) || is_of(instead) {
            return Ok(is_of(attend));
        }
        let known: Vec<_> = [attend, instead].concat().iter().map(|kind| format!("`{kind}`")).collect();
        Err(ModelError::unsupported("key `layer_types`", format_args!("`{kind}`"), known.join(", ")))
    };
    let kinds = layer_types(source.fields, source.config.layers)?;
    kinds.map(|kinds| kinds.into_iter().map(attends).collect()).transpose()
}

/// Which layers attend, by a GGUF file's list of their key/value heads.
pub(super) fn attending_by_heads(source: &Source<'_>) -> Result<Vec<bool>, ModelError> {
    let key = source.key("attention.head_count_kv", "");
    let heads = source.fields.counts(&key)?;
    let heads = required(heads, &key, "a list of key/value heads, 0 where a layer does not attend")?;
    if heads.len() != source.config.layers {
        let expected = format!("one for each of {} layers", source.config.layers);
        return Err(ModelError::invalid(format_args!("key `{key}`"), expected, heads.len()));
    }
    Ok(heads.into_iter().map(|heads| heads > 0).collect())
}

/// `1 / sqrt(x)`.
pub(super) fn inverse_root(x: f64) -> f32 {
    (1.0 / x.sqrt()) as f32
}

/// The weights of one layer.
pub(super) struct LayerWeights {
    pub(super) before_attention: Option<WeightId>,
    pub(super) sub_layer: SubLayerWeights,
    /// Of a convolution in place of attention, too; recurrences have their own.
    pub(super) attention_output: Option<WeightId>,
    pub(super) output_bias: Option<WeightId>,
    pub(super) after_attention: Option<WeightId>,
    pub(super) before_mlp: Option<WeightId>,
    pub(super) mlp: MlpWeights,
    pub(super) after_mlp: Option<WeightId>,
    pub(super) input: Option<LayerInputWeights>,
}

/// The weights of what each row goes through by itself.
pub(super) enum MlpWeights {
    Dense(Mlp),
    Experts { weights: ExpertWeights, routing: Routing },
    Both { mlp: Mlp, experts: ParallelExperts },
}

/// Experts parallel to an MLP: both read the residual stream, and their results are added.
pub(super) struct ParallelExperts {
    pub(super) weights: ExpertWeights,
    pub(super) routing: Routing,
    /// Gains of norms: of what is routed, of what goes into the experts, of what comes out of the MLP and of them.
    pub(super) norms: [WeightId; 4],
}

/// The weights of the sub-layer in front of an MLP; of attention and convolutions, but for their outputs'.
pub(super) enum SubLayerWeights {
    Attention(AttentionWeights),
    ShortConv { input: WeightId, taps: WeightId },
    Recurrence(RecurrenceWeights),
}

/// The weights that make queries, keys and values.
pub(super) struct AttentionWeights {
    /// One matrix, or one for each head.
    pub(super) query: Vec<WeightId>,
    /// For each head, the matrix of the gate of what comes out; none without gates.
    pub(super) gate: Vec<WeightId>,
    /// Of keys and of values, perhaps one for both; none where a layer attends to those of another.
    pub(super) keys: Option<[WeightId; 2]>,
    /// Of queries, keys and values.
    pub(super) biases: Option<[WeightId; 3]>,
    /// Of queries, keys and values.
    pub(super) head_norms: [Option<WeightId>; 3],
    /// Of query heads.
    pub(super) sinks: Option<WeightId>,
    /// Other rows whose products are added, if there are some.
    pub(super) beside: Option<Beside>,
}

/// Rows that make queries, keys and values together with those that a layer reads.
pub(super) struct Beside {
    pub(super) rows: ValueId,
    /// Of queries, keys and values.
    pub(super) weights: [WeightId; 3],
}

/// How a layer attends, in its graph.
pub(super) struct Attending {
    pub(super) rope: Option<RopeId>,
    pub(super) window: Option<u32>,
}
