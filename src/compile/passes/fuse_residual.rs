//! Fuses residual sums into the linear op that feeds them.

use crate::compile::in_place::{can_order, to_read, to_replace, viewed};
use crate::ir::{Graph, GraphError, Op, ValueId};

/// A linear op and the sum that takes it over.
pub(super) struct ResidualSum {
    linear: ValueId,
    op: Op,
    /// Its input and the residual.
    operands: [ValueId; 2],
}

/// `Add(residual, Linear(x))` becomes a linear op that adds into the residual in place.
///
/// Leaves alone linear ops with another reader, with a bias, of another group, or over bytes of the residual itself,
/// and sums whose residual something still needs afterwards.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fuse_residual(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological() {
        let Some(ResidualSum { linear, op, operands }) = residual_sum(graph, value) else { continue };
        graph.rewrite(value, op, &operands)?;
        graph.remove(linear);
    }
    Ok(())
}

/// The linear op under the sum `add`, if it is one that this pass fuses.
pub(super) fn residual_sum(graph: &Graph, add: ValueId) -> Option<ResidualSum> {
    let Op::Add = graph.node(add).op else { return None };
    let [residual, linear] = graph.operands(add)[..] else { return None };
    let node = graph.node(linear);
    let mut op = node.op.clone();
    let Op::Linear { biases, residual: adds @ false, .. } = &mut op else { return None };
    if !biases.is_empty() {
        return None;
    }
    *adds = true;
    let x = graph.operands(linear)[0];
    let taken_over = graph.sole_reader(linear) == Some(add) && node.group == graph.node(add).group;
    let apart = viewed(graph, x) != viewed(graph, residual);
    let demands = [to_replace(graph, add, residual)?, to_read(graph, add, x)].concat();
    (taken_over && apart && can_order(graph, &demands)).then_some(ResidualSum {
        linear,
        op,
        operands: [x, residual],
    })
}
