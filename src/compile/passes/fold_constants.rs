//! Folds constant factors.

use crate::compile::in_place::{can_order, can_stand_in, to_read};
use crate::ir::{Graph, GraphError, Op, ValueId};

/// Drops `Scale(1)`, merges `Scale(Scale(x))` of one group, and moves a factor that only the queries of an attention of
/// the same group see into the attention's own, through a rotation if need be: rotations are linear.
///
/// Leaves alone what would not be a normal float after merging, and factors over a value that is overwritten before
/// the reader runs.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fold_constants(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological() {
        merge_with_operand(graph, value)?;
        let Op::Scale { factor } = graph.node(value).op else { continue };
        let x = graph.operands(value)[0];
        if !can_stand_in(graph, x, value) {
            continue;
        }
        let attention = into_attention(graph, value, factor);
        if attention.is_none() && factor != 1.0 {
            continue;
        }
        if let Some((attention, op)) = attention {
            let operands = graph.operands(attention);
            graph.rewrite(attention, op, &operands)?;
        }
        graph.replace_uses(value, x);
        graph.remove(value);
    }
    Ok(())
}

fn product(a: f32, b: f32) -> Option<f32> {
    Some(a * b).filter(|product| product.is_normal())
}

/// The attention that alone reads `scale` as its queries, rotated or not, and its op with the factor folded in.
fn into_attention(graph: &Graph, scale: ValueId, factor: f32) -> Option<(ValueId, Op)> {
    let mut q = scale;
    let mut reader = graph.sole_reader(q)?;
    if let Op::Rope(_) = graph.node(reader).op {
        q = reader;
        reader = graph.sole_reader(q)?;
    }
    let same_group = [q, reader].iter().all(|v| graph.node(*v).group == graph.node(scale).group);
    let mut op = graph.node(reader).op.clone();
    let Op::Attention { scoring, .. } = &mut op else { return None };
    scoring.scale = product(scoring.scale, factor)?;
    (same_group && graph.operands(reader)[0] == q).then_some((reader, op))
}

/// `a(b(x))` becomes `ab(x)`; `b` stays for its other readers.
fn merge_with_operand(graph: &mut Graph, outer: ValueId) -> Result<(), GraphError> {
    let Op::Scale { factor } = graph.node(outer).op else { return Ok(()) };
    let inner = graph.operands(outer)[0];
    let Op::Scale { factor: inner_factor } = graph.node(inner).op else { return Ok(()) };
    let x = graph.operands(inner)[0];
    let Some(factor) = product(factor, inner_factor) else { return Ok(()) };
    let same_group = graph.node(inner).group == graph.node(outer).group;
    if !same_group || !can_order(graph, &to_read(graph, outer, x)) {
        return Ok(());
    }
    graph.rewrite(outer, Op::Scale { factor }, &[x])?;
    if graph.readers(inner).is_empty() && !graph.is_kept(inner) {
        graph.remove(inner);
    }
    Ok(())
}
