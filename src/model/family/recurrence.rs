//! Layers whose rows have a state: gated delta rules and selective scans. Their weights in a file, and their part of the
//! graph.

use super::{
    frame::{Frame, linear},
    recipe::Recipe,
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Elements, Graph, GroupId, Op, ValueId, WeightId},
    model::{Container, ModelError},
};
use ygg_kernels::{Nonlinearity, StateForm, StateRule, StateShape};

/// Most channels of a recurrence: as many as any other size of a model may be.
const MOST_CHANNELS: usize = 1 << 20;

/// Refuses sizes that kernels do not take; `what` is what has them.
///
/// # Errors
/// [`ModelError`] with the sizes.
pub(super) fn lawful(shape: StateShape, what: &str) -> Result<StateShape, ModelError> {
    if shape.is_lawful() && shape.channels() <= MOST_CHANNELS {
        return Ok(shape);
    }
    let expected = format!(
        "1 to {} elements of keys and of values, 1 to {} taps, as many heads of values as of keys or several times as \
         many, and up to {MOST_CHANNELS} channels",
        StateShape::MOST_DIM,
        StateShape::MOST_TAPS
    );
    Err(ModelError::invalid(what, expected, format_args!("{shape:?}")))
}

/// The weights of a recurrence.
pub(super) enum RecurrenceWeights {
    /// Of a gated delta rule.
    Delta {
        /// Of queries, keys and values together.
        input: WeightId,
        /// Of the gates of what comes out.
        gate: WeightId,
        /// Of what rows say of steps, and of how far states follow them.
        says: [WeightId; 2],
        /// Taps, decays, and what is added to what rows say of steps.
        vectors: [WeightId; 3],
        /// The gain of the norm of every head of what comes out.
        norm: WeightId,
        output: WeightId,
    },
    /// Of a selective scan.
    Scan {
        /// Of gates of what comes out; of values, keys and queries; and of what rows say of steps: all together.
        input: WeightId,
        /// Taps, decays, what is added to what rows say of steps, and to convolutions, and factors of values in what
        /// comes out.
        vectors: [WeightId; 5],
        /// For each group of heads, which read one key head, the gain of its norm and its part of the output's matrix.
        groups: Vec<[WeightId; 2]>,
    },
}

impl RecurrenceWeights {
    /// Looks up the weights of a layer over rows of `d` elements.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape.
    pub(super) fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        index: usize,
        d: usize,
        (shape, form): (StateShape, StateForm),
    ) -> Result<Self, ModelError> {
        let (heads, channels) = (shape.value_heads, shape.channels());
        let name = |gguf, folder| naming.layer_weight(index, gguf, folder);
        let vector = |gguf, folder| naming.layer_vector(index, gguf, folder);
        let decays = if form.is_logarithm { "logarithms of decays" } else { "decays" };
        if shape.rule == StateRule::Scan {
            let input = name("ssm_in", "mamba.in_proj");
            let input = list.find(input, &[shape.values() + channels + heads, d])?;
            let vectors = [
                list.taps(naming, name("ssm_conv1d", "mamba.conv1d"), [channels, shape.taps])?,
                list.row(vector("ssm_a", "mamba.A_log"), heads, decays)?,
                list.vector(vector("ssm_dt.bias", "mamba.dt_bias"), heads, "a bias")?,
                list.vector(naming.layer_bias(index, "ssm_conv1d", "mamba.conv1d"), channels, "a bias")?,
                list.row(vector("ssm_d", "mamba.D"), heads, "factors of heads")?,
            ];
            let norms = Self::norms(list, naming, name("ssm_norm", "mamba.norm"), shape)?;
            let output = name("ssm_out", "mamba.out_proj");
            let outputs = match norms.len() {
                1 => vec![list.find(output, &[d, shape.values()])?],
                groups => list.columns(&output, d, &vec![shape.values() / groups; groups])?,
            };
            let groups = norms.into_iter().zip(outputs).map(|(norm, output)| [norm, output]).collect();
            return Ok(Self::Scan { input, vectors, groups });
        }
        let input = list.find(name("attn_qkv", "linear_attn.in_proj_qkv"), &[channels, d])?;
        let gate = list.find(name("attn_gate", "linear_attn.in_proj_z"), &[shape.values(), d])?;
        let says = [
            list.find(name("ssm_alpha", "linear_attn.in_proj_a"), &[heads, d])?,
            list.find(name("ssm_beta", "linear_attn.in_proj_b"), &[heads, d])?,
        ];
        let vectors = [
            list.taps(naming, name("ssm_conv1d", "linear_attn.conv1d"), [channels, shape.taps])?,
            list.vector(vector("ssm_a", "linear_attn.A_log"), heads, decays)?,
            list.vector(vector("ssm_dt.bias", "linear_attn.dt_bias"), heads, "a bias")?,
        ];
        let norm = list.gain(name("ssm_norm", "linear_attn.norm"), shape.value_dim, 0.0)?;
        let output = list.find(name("ssm_out", "linear_attn.out_proj"), &[d, shape.values()])?;
        Ok(Self::Delta { input, gate, says, vectors, norm, output })
    }

    /// The gains of a scan's norms, one for each group of heads.
    fn norms(
        list: &mut WeightList<'_>,
        naming: Naming,
        name: String,
        shape: StateShape,
    ) -> Result<Vec<WeightId>, ModelError> {
        let groups = shape.key_heads;
        if groups == 1 {
            return Ok(vec![list.row(name, shape.values(), "a norm gain")?]);
        }
        let len = shape.values() / groups;
        let each = |group| Elements { first: group * len, ..Elements::in_order(len) };
        let stored: &[usize] = match naming.container {
            Container::Gguf => &[groups, len],
            Container::Folder => &[groups * len],
        };
        list.spread(&name, stored, [1, len], (0..groups).map(each))
    }

    /// Adds the recurrence of the rows `n` to a layer's first group, with the product of what comes out.
    ///
    /// # Errors
    /// None for weights that [`find`](Self::find) found.
    pub(super) fn add(
        &self,
        frame: &Frame<'_>,
        graph: &mut Graph,
        layer: usize,
        recipe: &Recipe,
        n: ValueId,
    ) -> Result<ValueId, ModelError> {
        let group = Some(GroupId(u32::try_from(2 * layer).expect("layers are limited")));
        let (shape, form) = recipe.recurrence.expect("a recipe with such a layer says of what form");
        let cache = recipe.cache_layer(layer);
        match self {
            Self::Delta { input, gate, says, vectors, norm, output } => {
                let x = graph.add(linear(*input), &[n], group)?;
                let gate = graph.add(linear(*gate), &[n], group)?;
                let steps = graph.add(linear(says[0]), &[n], group)?;
                let rates = graph.add(linear(says[1]), &[n], group)?;
                let rule = Op::Recurrence { layer: cache, vectors: vectors.to_vec(), form };
                let out = graph.add(rule, &[x, steps, rates, frame.slots, frame.tails], group)?;
                let out = graph.add(frame.norm(*norm), &[out], group)?;
                let out = graph.add(Op::Gate(Nonlinearity::Silu), &[gate, out], group)?;
                Ok(graph.add(linear(*output), &[out], group)?)
            }
            Self::Scan { input, vectors, groups } => {
                let all = graph.add(linear(*input), &[n], group)?;
                let (values, channels) = (shape.values(), shape.channels());
                let mut slice = |start, len| graph.add(Op::Slice { start, len }, &[all], group);
                let gate = slice(0, values)?;
                let x = slice(values, channels)?;
                let steps = slice(values + channels, shape.value_heads)?;
                let rule = Op::Recurrence { layer: cache, vectors: vectors.to_vec(), form };
                let out = graph.add(rule, &[x, steps, frame.slots, frame.tails], group)?;
                let gated = graph.add(Op::Gate(Nonlinearity::Silu), &[gate, out], group)?;
                let len = values / groups.len();
                let product = |graph: &mut Graph, number: usize| -> Result<ValueId, ModelError> {
                    let [norm, output] = groups[number];
                    let part = match groups.len() {
                        1 => gated,
                        _ => graph.add(Op::Slice { start: number * len, len }, &[gated], group)?,
                    };
                    let part = graph.add(frame.norm(norm), &[part], group)?;
                    Ok(graph.add(linear(output), &[part], group)?)
                };
                let mut sum = product(graph, 0)?;
                for number in 1..groups.len() {
                    let next = product(graph, number)?;
                    sum = graph.add(Op::Add, &[sum, next], group)?;
                }
                Ok(sum)
            }
        }
    }
}
