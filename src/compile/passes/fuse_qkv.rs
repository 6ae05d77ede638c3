//! Fuses linear ops over one value, such as the query, key and value projections.

use ygg_kernels::WeightFormat;

use super::{fuse_gate_up::gate_up, fuse_residual::residual_sum};
use crate::compile::in_place::replacers;
use crate::ir::{Graph, GraphError, GroupId, Norm, Op, ValueId, WeightId};

/// What linear ops must share to become one.
#[derive(PartialEq)]
struct Shared {
    group: Option<GroupId>,
    format: WeightFormat,
    norm: Option<Norm>,
    is_biased: bool,
}

/// A linear op to merge, its matrices and their biases.
type Member = (ValueId, Vec<WeightId>, Vec<WeightId>);

/// Linear ops of one group over one value, one norm and one format, all with biases or all without, become a single
/// linear over all their matrices; each of them becomes the slice with its columns, in order of creation.
///
/// Leaves alone what later passes take (the two linear ops under a gate, a linear op under a residual sum), linear ops
/// that already add a residual, and those whose bytes a residual sum takes over.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fuse_qkv(graph: &mut Graph) -> Result<(), GraphError> {
    for x in graph.topological() {
        let mut families: Vec<(Shared, Vec<Member>)> = Vec::new();
        for reader in graph.readers(x) {
            let Some((shared, weights, biases)) = free_linear(graph, reader) else { continue };
            match families.iter_mut().find(|(other, _)| *other == shared) {
                Some((_, members)) => members.push((reader, weights, biases)),
                None => families.push((shared, vec![(reader, weights, biases)])),
            }
        }
        for (shared, members) in families.into_iter().filter(|(_, members)| members.len() > 1) {
            merge(graph, x, shared, members)?;
        }
    }
    Ok(())
}

/// A linear op that no later pass takes, as far as merging looks at it.
fn free_linear(graph: &Graph, linear: ValueId) -> Option<(Shared, Vec<WeightId>, Vec<WeightId>)> {
    let node = graph.node(linear);
    let Op::Linear { weights, biases, norm, residual: false } = &node.op else { return None };
    let taken = graph
        .sole_reader(linear)
        .is_some_and(|reader| gate_up(graph, reader).is_some() || residual_sum(graph, reader).is_some());
    let format = graph.weight(weights[0]).format;
    let one_format = weights.iter().all(|w| graph.weight(*w).format == format);
    let overwritten = replacers(graph, linear).next().is_some();
    let shared = Shared { group: node.group, format, norm: *norm, is_biased: !biases.is_empty() };
    (one_format && !taken && !overwritten).then(|| (shared, weights.clone(), biases.clone()))
}

fn merge(graph: &mut Graph, x: ValueId, shared: Shared, members: Vec<Member>) -> Result<(), GraphError> {
    let weights = members.iter().flat_map(|(_, weights, _)| weights).copied().collect();
    let biases = members.iter().flat_map(|(_, _, biases)| biases).copied().collect();
    let merged = Op::Linear { weights, biases, norm: shared.norm, residual: false };
    let merged = graph.add(merged, &[x], shared.group)?;
    let mut start = 0;
    for (linear, ..) in members {
        let len = graph.node(linear).value_type.columns;
        graph.rewrite(linear, Op::Slice { start, len }, &[merged])?;
        start += len;
    }
    Ok(())
}
