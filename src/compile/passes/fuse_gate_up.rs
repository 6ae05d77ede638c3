//! Fuses the two linear ops under a SwiGLU with it.

use crate::ir::{Graph, GraphError, Norm, Op, ValueId, WeightId};

/// The two linear ops that become one gated linear.
pub(super) struct GateUp {
    /// The linear ops: gate, up.
    pub(super) linears: [ValueId; 2],
    x: ValueId,
    gate: WeightId,
    up: WeightId,
    norm: Option<Norm>,
}

/// `Swiglu(Linear(x, g), Linear(x, u))` becomes `GatedLinear(x, g, u)`.
///
/// Leaves alone linear ops with another reader, of another group, over different values or norms, or with matrices of
/// different formats.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fuse_gate_up(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological() {
        let Some(GateUp { linears, x, gate, up, norm }) = gate_up(graph, value) else { continue };
        graph.rewrite(value, Op::GatedLinear { gate, up, norm }, &[x])?;
        linears.into_iter().for_each(|linear| graph.remove(linear));
    }
    Ok(())
}

/// The pair under `swiglu`, if it is one that this pass fuses.
pub(super) fn gate_up(graph: &Graph, swiglu: ValueId) -> Option<GateUp> {
    let Op::Swiglu = graph.node(swiglu).op else { return None };
    let linears: [ValueId; 2] = graph.operands(swiglu).try_into().ok()?;
    let [(gate_x, gate, gate_norm), (up_x, up, up_norm)] =
        [plain_linear(graph, linears[0], swiglu)?, plain_linear(graph, linears[1], swiglu)?];
    let same = gate_x == up_x && gate_norm == up_norm;
    let same_format = graph.weight(gate).format == graph.weight(up).format;
    (same && same_format).then_some(GateUp { linears, x: gate_x, gate, up, norm: gate_norm })
}

fn plain_linear(
    graph: &Graph,
    linear: ValueId,
    swiglu: ValueId,
) -> Option<(ValueId, WeightId, Option<Norm>)> {
    let node = graph.node(linear);
    let Op::Linear { weights, norm, residual: false } = &node.op else { return None };
    let [weight] = weights[..] else { return None };
    let fits = graph.sole_reader(linear) == Some(swiglu) && node.group == graph.node(swiglu).group;
    fits.then(|| (graph.operands(linear)[0], weight, *norm))
}
