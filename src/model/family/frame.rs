//! What all decoder graphs have in common: inputs, embedding, a stack of layers, final norm and head.

use super::{
    Source,
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, Input, KvSpec, Norm, Op, RopeId, RopeSpec, ValueId, WeightId},
    model::{ModelConfig, ModelError},
};
use ygg_kernels::RopePairing;

/// The product with a matrix.
pub(super) fn linear(weight: WeightId) -> Op {
    Op::Linear { weights: vec![weight], norm: None, residual: false }
}

/// The inputs of a graph, which its layers read.
pub(super) struct Frame<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) rope: RopeId,
    pub(super) tokens: ValueId,
    pub(super) positions: ValueId,
    pub(super) slots: ValueId,
    pub(super) tails: ValueId,
    output_rows: ValueId,
}

impl<'a> Frame<'a> {
    /// Adds the inputs to an empty graph.
    pub(super) fn begin(
        graph: &mut Graph,
        config: &'a ModelConfig,
        pairing: RopePairing,
    ) -> Result<Self, ModelError> {
        let inv_freq = config.rope.inv_freq(config.head_dim);
        let rope = graph.add_rope(RopeSpec { head_dim: config.head_dim, pairing, inv_freq });
        let mut input = |input| graph.add(Op::Input(input), &[], None);
        Ok(Self {
            config,
            rope,
            tokens: input(Input::Tokens)?,
            positions: input(Input::Positions)?,
            slots: input(Input::Slots)?,
            tails: input(Input::Tails)?,
            output_rows: input(Input::OutputRows)?,
        })
    }

    /// The root mean square norm with this gain.
    pub(super) fn norm(&self, weight: WeightId) -> Op {
        Op::RmsNorm(Norm { weight, eps: self.config.rms_eps })
    }

    /// Adds final norm and head: logits of the requested rows of the residual stream `x`.
    pub(super) fn end(
        &self,
        graph: &mut Graph,
        x: ValueId,
        final_norm: WeightId,
        head: WeightId,
    ) -> Result<(), ModelError> {
        let rows = graph.add(Op::SelectRows, &[x, self.output_rows], None)?;
        graph.set_hidden(rows);
        let last = graph.add(self.norm(final_norm), &[rows], None)?;
        let logits = graph.add(linear(head), &[last], None)?;
        graph.set_logits(logits);
        Ok(())
    }
}

/// The graph of a model that embeds tokens, adds to the residual stream layer by layer, and ends in a norm and a head.
///
/// `find` looks up the weights of a layer. `layer` adds the layer of that index to the graph: it takes the residual stream before it and
/// returns the stream behind it.
pub(super) fn decoder<L>(
    source: &Source<'_>,
    find: impl Fn(&mut WeightList<'_>, Naming, usize) -> Result<L, ModelError>,
    layer: impl Fn(&Frame<'_>, &mut Graph, usize, &L, ValueId) -> Result<ValueId, ModelError>,
) -> Result<Graph, ModelError> {
    let Source { config, fields, tensors } = *source;
    let naming = Naming::of(fields.container());
    let mut list = WeightList { tensors, specs: Vec::new() };
    let table = [config.vocabulary, config.hidden_size];
    let embedding = list.find(naming.weight("token_embd", "model.embed_tokens"), &table)?;
    let layers = (0..config.layers).map(|l| find(&mut list, naming, l)).collect::<Result<Vec<_>, _>>()?;
    let final_norm = list.gain(naming.weight("output_norm", "model.norm"), config.hidden_size)?;
    let head = match config.tied_head {
        true => embedding,
        false => list.find(naming.weight("output", "lm_head"), &table)?,
    };

    let kv = KvSpec { layers: config.layers, kv_heads: config.kv_heads, head_dim: config.head_dim };
    let mut graph = Graph::new(&config.name, list.specs, kv);
    let frame = Frame::begin(&mut graph, config, (config.family.pairing)(naming.container))?;
    let mut x = graph.add(Op::Embed { weight: embedding }, &[frame.tokens], None)?;
    for (index, weights) in layers.iter().enumerate() {
        x = layer(&frame, &mut graph, index, weights, x)?;
    }
    frame.end(&mut graph, x, final_norm, head)?;
    Ok(graph)
}
