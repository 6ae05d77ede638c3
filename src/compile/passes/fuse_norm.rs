//! Fuses normalisations into the linear ops that read them.

use crate::compile::in_place::{can_order, to_read};
use crate::ir::{Graph, GraphError, Norm, Op, ValueId};

/// A normalisation that only linear and gated linear ops of its own group read becomes their prologue.
///
/// Leaves alone normalisations with any other reader, being kept included, and those of a value that is overwritten
/// before a reader runs, and those of groups of elements.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fuse_norm(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological() {
        let Op::RmsNorm(norm) = graph.node(value).op else { continue };
        let x = graph.operands(value)[0];
        if graph.weight(norm.weight).columns != graph.node(value).value_type.columns {
            continue;
        }
        let readers = graph.readers(value);
        let fused: Vec<_> =
            readers.iter().filter_map(|reader| with_prologue(graph, *reader, value, norm)).collect();
        let all = fused.len() == readers.len() && !graph.is_kept(value);
        let demands: Vec<_> = readers.iter().flat_map(|reader| to_read(graph, *reader, x)).collect();
        if readers.is_empty() || !all || !can_order(graph, &demands) {
            continue;
        }
        for (reader, op) in readers.into_iter().zip(fused) {
            let mut operands = graph.operands(reader);
            operands[0] = x;
            graph.rewrite(reader, op, &operands)?;
        }
        graph.remove(value);
    }
    Ok(())
}

/// The op of `reader` with the norm in front, if it takes one and reads `normed` as nothing but its input.
fn with_prologue(graph: &Graph, reader: ValueId, normed: ValueId, own: Norm) -> Option<Op> {
    let node = graph.node(reader);
    let mut op = node.op.clone();
    let (Op::Linear { norm, .. } | Op::GatedLinear { norm, .. }) = &mut op else { return None };
    let plain = norm.replace(own).is_none();
    let operands = graph.operands(reader);
    let as_input = operands[0] == normed && !operands[1..].contains(&normed);
    (plain && as_input && node.group == graph.node(normed).group).then_some(op)
}
