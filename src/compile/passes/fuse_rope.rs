//! Fuses rotations into the op that uses the rotated rows.

use crate::compile::in_place::{can_order, to_read};
use crate::ir::{Graph, GraphError, Op, ValueId};

/// A rotation whose only reader is an append, as keys, or an attention, as queries, becomes that op's own.
///
/// Leaves alone rotations with another reader, of another group, of other heads than the cache's or by other positions,
/// and rotations of a value that is overwritten before the reader runs.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fuse_rope(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological() {
        let Some((reader, op)) = rotating_reader(graph, value) else { continue };
        let mut operands = graph.operands(reader);
        operands[0] = graph.operands(value)[0];
        graph.rewrite(reader, op, &operands)?;
        graph.remove(value);
    }
    Ok(())
}

/// The reader that takes over the rotation, and its op with it.
fn rotating_reader(graph: &Graph, rotated: ValueId) -> Option<(ValueId, Op)> {
    let node = graph.node(rotated);
    let Op::Rope(rope) = node.op else { return None };
    let reader = graph.sole_reader(rotated)?;
    let mut op = graph.node(reader).op.clone();
    let (Op::AppendKv { layer, rope: own } | Op::Attention { layer, rope: own, .. }) = &mut op else {
        return None;
    };
    let [_, head_dim] = graph.kv().heads(*layer);
    if own.replace(rope).is_some() {
        return None;
    }
    let [x, positions] = graph.operands(rotated)[..] else { return None };
    let [first, _, _, its_positions] = graph.operands(reader)[..] else { return None };
    let same_positions = graph.node(positions).op == graph.node(its_positions).op;
    let same_heads = graph.rope(rope).head_dim == head_dim;
    let same_group = graph.node(reader).group == node.group;
    let fits = first == rotated && same_positions && same_heads && same_group;
    (fits && can_order(graph, &to_read(graph, reader, x))).then_some((reader, op))
}
