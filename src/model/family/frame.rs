//! What all decoder graphs have in common: inputs, embedding, a stack of layers, final norm and head.

use super::{
    Source,
    layer::layer,
    recipe::{Attending, Instead, LayerRule, LayerWeights, Recipe},
    weights::{Naming, WeightList},
};
use crate::{
    ir::{
        ConvSpec, Graph, GroupId, Input, KvSpec, Norm, Op, OtherHeads, RopeId, StateSpec, ValueId, WeightId,
    },
    model::{ModelConfig, ModelError, RopeConfig, TensorTable},
};
use ygg_kernels::{RopePairing, StateShape};

/// The product with a matrix.
pub(super) fn linear(weight: WeightId) -> Op {
    biased(weight, None)
}

/// The product with a matrix, and its bias if it has one.
pub(super) fn biased(weight: WeightId, bias: Option<WeightId>) -> Op {
    Op::Linear { weights: vec![weight], biases: bias.into_iter().collect(), norm: None, residual: false }
}

/// The inputs of a graph, which its layers read.
pub(super) struct Frame<'a> {
    pub(super) config: &'a ModelConfig,
    /// Those of the recipe, in its order.
    ropes: Vec<RopeId>,
    pub(super) tokens: ValueId,
    pub(super) positions: ValueId,
    pub(super) slots: ValueId,
    pub(super) tails: ValueId,
    pub(super) output_rows: ValueId,
    /// What all layers get of the rows' tokens in addition, part by part, if they get something.
    pub(super) layer_inputs: Option<ValueId>,
}

impl<'a> Frame<'a> {
    /// Adds the inputs to an empty graph.
    pub(super) fn begin(
        graph: &mut Graph,
        config: &'a ModelConfig,
        pairing: RopePairing,
        recipe: &Recipe,
    ) -> Result<Self, ModelError> {
        let mut add = |(number, rope): (usize, &RopeConfig)| {
            let is_of_others = |rule: &LayerRule| rule.has_other_heads && rule.rope == Some(number);
            let [head_dim, rotated] =
                match recipe.other_heads.filter(|_| recipe.layers.iter().any(is_of_others)) {
                    Some([_, head_dim]) => [head_dim; 2],
                    None => [config.head_dim, config.rotated],
                };
            graph.add_rope(rope.spec(head_dim, rotated, pairing))
        };
        let ropes = recipe.ropes.iter().enumerate().map(&mut add).collect();
        let mut input = |input| graph.add(Op::Input(input), &[], None);
        Ok(Self {
            config,
            ropes,
            tokens: input(Input::Tokens)?,
            positions: input(Input::Positions)?,
            slots: input(Input::Slots)?,
            tails: input(Input::Tails)?,
            output_rows: input(Input::OutputRows)?,
            layer_inputs: None,
        })
    }

    /// How a layer attends.
    pub(super) fn attending(&self, recipe: &Recipe, layer: usize) -> Attending {
        let rule = recipe.layers[layer];
        Attending { rope: rule.rope.map(|rope| self.ropes[rope]), window: rule.window }
    }

    /// The root mean square norm with this gain.
    pub(super) fn norm(&self, weight: WeightId) -> Op {
        Op::RmsNorm(Norm { weight, eps: self.config.rms_eps })
    }

    /// `x`, normalised if there is a gain.
    pub(super) fn maybe_norm(
        &self,
        graph: &mut Graph,
        gain: Option<WeightId>,
        x: ValueId,
        group: Option<GroupId>,
    ) -> Result<ValueId, ModelError> {
        match gain {
            Some(gain) => Ok(graph.add(self.norm(gain), &[x], group)?),
            None => Ok(x),
        }
    }

    /// Adds final norm and head: logits of the requested rows of the residual stream `x`.
    pub(super) fn end(
        &self,
        graph: &mut Graph,
        recipe: &Recipe,
        x: ValueId,
        final_norm: WeightId,
        head: WeightId,
    ) -> Result<(), ModelError> {
        let rows = graph.add(Op::SelectRows, &[x, self.output_rows], None)?;
        graph.set_hidden(rows);
        let mut last = graph.add(self.norm(final_norm), &[rows], None)?;
        if recipe.logit_scale != 1.0 {
            last = graph.add(Op::Scale { factor: recipe.logit_scale }, &[last], None)?;
        }
        let mut logits = graph.add(linear(head), &[last], None)?;
        if let Some(cap) = recipe.logit_softcap {
            logits = graph.add(Op::Softcap { cap }, &[logits], None)?;
        }
        graph.set_logits(logits);
        Ok(())
    }
}

/// The graph of a model that embeds tokens, adds to the residual stream layer by layer, and ends in a norm and a head.
///
/// # Errors
/// [`ModelError`] for a tensor that is missing, has another shape, or is one that no graph of this recipe reads.
pub(super) fn decoder(source: &Source<'_>, recipe: &Recipe) -> Result<Graph, ModelError> {
    let Source { config, fields, tensors, .. } = *source;
    let naming = Naming::of(fields.container());
    let layers = recipe.before_layers.unwrap_or(naming.layers);
    let naming = Naming { renamed: recipe.names, layers, ..naming };
    let mut list = WeightList::after(tensors, Vec::new());
    let table = [config.vocabulary, config.hidden_size];
    let embedding = list.find(naming.weight("token_embd", "model.embed_tokens"), &table)?;
    let layer_inputs = match &recipe.layer_inputs {
        Some(inputs) => Some(inputs.find(&mut list, naming, config)?),
        None => None,
    };
    let find = |index| LayerWeights::find(&mut list, naming, index, config, recipe);
    let layers = (0..config.layers).map(find).collect::<Result<Vec<_>, _>>()?;
    let final_norm = naming.weight("output_norm", "model.norm");
    let final_norm = list.gain(final_norm, config.hidden_size, recipe.gain_offset)?;
    let head = match config.tied_head {
        true => embedding,
        false => list.find(naming.weight("output", "lm_head"), &table)?,
    };
    refuse_unread(config, recipe, tensors, &list)?;

    let mut graph = Graph::new(&config.name, list.specs, cache(config, recipe));
    let mut frame = Frame::begin(&mut graph, config, (config.family.pairing)(naming.container), recipe)?;
    let mut x = graph.add(Op::Embed { weight: embedding }, &[frame.tokens], None)?;
    if recipe.embedding_scale != 1.0 {
        x = graph.add(Op::Scale { factor: recipe.embedding_scale }, &[x], None)?;
    }
    if let Some((inputs, weights)) = recipe.layer_inputs.as_ref().zip(layer_inputs) {
        frame.layer_inputs = Some(inputs.add(&frame, &mut graph, &weights, x)?);
    }
    for (index, weights) in layers.iter().enumerate() {
        x = layer(&frame, &mut graph, index, weights, recipe, x)?;
    }
    frame.end(&mut graph, recipe, x, final_norm, head)?;
    Ok(graph)
}

/// What the layers of a recipe keep of rows.
pub(super) fn cache(config: &ModelConfig, recipe: &Recipe) -> KvSpec {
    let [kv_heads, head_dim] = recipe.other_heads.unwrap_or_default();
    let others = OtherHeads { layers: recipe.caches(.., None, true), kv_heads, head_dim };
    let convolve = |rule: &&LayerRule| matches!(rule.instead, Some(Instead::ShortConv { .. }));
    KvSpec {
        layers: recipe.caches(.., None, false) + others.layers,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        others,
        conv: ConvSpec {
            layers: recipe.layers.iter().filter(convolve).count(),
            channels: config.hidden_size,
        },
        states: StateSpec {
            layers: recipe.caches(.., Some(Instead::Recurrence), false),
            shape: recipe.recurrence.map_or(StateShape::default(), |(shape, _)| shape),
        },
    }
}

/// Refuses biases, norms and what files of quantised weights scale or shift by that the graph does not compute: without
/// them the model would be another.
fn refuse_unread(
    config: &ModelConfig,
    recipe: &Recipe,
    tensors: &TensorTable,
    list: &WeightList<'_>,
) -> Result<(), ModelError> {
    let read: std::collections::BTreeSet<&str> = list.specs.iter().map(|spec| spec.name.as_str()).collect();
    for (suffix, found) in [
        (".bias", "a bias"),
        ("norm.weight", "a norm"),
        (".pre_quant_scale", "a scale of inputs"),
        (".weight_zero_point", "a zero point"),
    ] {
        let is_other = |name: &str| recipe.others.iter().any(|other| name.starts_with(other));
        let mut unread = tensors.keys().filter(|name| !read.contains(name.as_str()) && !is_other(name));
        if let Some(name) = unread.find(|name| name.ends_with(suffix)) {
            let supported = format!("{} models without it", config.family.name);
            return Err(ModelError::unsupported(format_args!("tensor `{name}`"), found, supported));
        }
    }
    Ok(())
}
