//! Fuses the two linear ops under a gate with it.

use ygg_kernels::Nonlinearity;

use crate::ir::{Graph, GraphError, Norm, Op, ValueId, WeightId};

/// The two linear ops that become one gated linear.
pub(super) struct GateUp {
    /// The linear ops: gate, up.
    pub(super) linears: [ValueId; 2],
    function: Nonlinearity,
    x: ValueId,
    gate: WeightId,
    up: WeightId,
    norm: Option<Norm>,
}

/// `Gate(Linear(x, g), Linear(x, u))` becomes `GatedLinear(x, g, u)`.
///
/// Leaves alone linear ops with another reader, with a bias, of another group, over different values or norms, or with
/// matrices of different formats.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fuse_gate_up(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological() {
        let Some(GateUp { linears, function, x, gate, up, norm }) = gate_up(graph, value) else { continue };
        graph.rewrite(value, Op::GatedLinear { function, gate, up, norm }, &[x])?;
        linears.into_iter().for_each(|linear| graph.remove(linear));
    }
    Ok(())
}

/// The pair under `value`, if it is one that this pass fuses.
pub(super) fn gate_up(graph: &Graph, value: ValueId) -> Option<GateUp> {
    let Op::Gate(function) = graph.node(value).op else { return None };
    let linears: [ValueId; 2] = graph.operands(value).try_into().ok()?;
    let [(gate_x, gate, gate_norm), (up_x, up, up_norm)] =
        [plain_linear(graph, linears[0], value)?, plain_linear(graph, linears[1], value)?];
    let same = gate_x == up_x && gate_norm == up_norm;
    let same_format = graph.weight(gate).format == graph.weight(up).format;
    (same && same_format).then_some(GateUp { linears, function, x: gate_x, gate, up, norm: gate_norm })
}

fn plain_linear(
    graph: &Graph,
    linear: ValueId,
    reader: ValueId,
) -> Option<(ValueId, WeightId, Option<Norm>)> {
    let node = graph.node(linear);
    let Op::Linear { weights, biases, norm, residual: false } = &node.op else { return None };
    if !biases.is_empty() {
        return None;
    }
    let [weight] = weights[..] else { return None };
    let fits = graph.sole_reader(linear) == Some(reader) && node.group == graph.node(reader).group;
    fits.then(|| (graph.operands(linear)[0], weight, *norm))
}
