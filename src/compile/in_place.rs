//! Which values take over the bytes of another, and what that demands of the order of steps.
//!
//! A residual sum in place overwrites its residual operand, so every other reader of those bytes must run before it,
//! readers through views included. Passes that move a read ask here first; `order` obeys.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::{
    Graph, GroupId, Op, ValueId,
    verify::{leaves_group, residual_operand},
};

/// The value whose bytes `value` takes over: the residual of a fused sum, and of the sum a group hands on, fused or
/// not, because a skipped group leaves the residual where it is.
pub(super) fn replaced(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let residual = residual_operand(graph, value)?;
    let node = graph.node(value);
    let handed_on = || graph.node(residual).group != node.group && leaves_group(graph, value);
    (matches!(node.op, Op::Linear { .. }) || handed_on()).then_some(residual)
}

/// The value whose columns `value` shows: itself unless it is a slice.
pub(super) fn viewed(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Op::Slice { .. } = graph.node(value).op {
        value = graph.operands(value)[0];
    }
    value
}

/// Every value computed from the bytes that `value` shows, views seen through; in order of creation.
pub(super) fn byte_readers(graph: &Graph, value: ValueId) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    let mut views = vec![viewed(graph, value)];
    while let Some(view) = views.pop() {
        for reader in graph.readers(view) {
            if let Op::Slice { .. } = graph.node(reader).op {
                views.push(reader);
            } else {
                found.insert(reader);
            }
        }
    }
    found
}

/// The values that overwrite the bytes `value` shows.
fn replacers(graph: &Graph, value: ValueId) -> impl Iterator<Item = ValueId> {
    let bytes = viewed(graph, value);
    byte_readers(graph, value)
        .into_iter()
        .filter(move |sum| replaced(graph, *sum).is_some_and(|r| viewed(graph, r) == bytes))
}

/// Whether `to` must run after `from`, or is `from`: by what they read, because one overwrites what the other reads, or
/// because groups run in one piece.
fn reaches(graph: &Graph, from: ValueId, to: ValueId) -> bool {
    let group = |value: ValueId| graph.node(value).group;
    let within = group(from).filter(|_| group(from) == group(to));
    let mut members: BTreeMap<GroupId, Vec<ValueId>> = BTreeMap::new();
    if within.is_none() {
        for value in graph.topological() {
            group(value).into_iter().for_each(|group| members.entry(group).or_default().push(value));
        }
    }
    let mut seen = BTreeSet::from([from]);
    let mut waiting = vec![from];
    while let Some(value) = waiting.pop() {
        if value == to {
            return true;
        }
        let mut next = graph.readers(value);
        next.extend(graph.operands(value).into_iter().flat_map(|operand| replacers(graph, operand)));
        if within.is_some() {
            next.retain(|value| group(*value) == within);
        } else {
            next.extend(group(value).and_then(|group| members.remove(&group)).unwrap_or_default());
        }
        waiting.extend(next.into_iter().filter(|next| seen.insert(*next)));
    }
    false
}

/// Whether `reader` can read `value` itself: nothing that `reader` waits for has overwritten it by then.
pub(super) fn may_read(graph: &Graph, reader: ValueId, value: ValueId) -> bool {
    replacers(graph, value).all(|sum| !reaches(graph, sum, reader))
}

/// Whether `sum`, which reads `residual`, can overwrite it: no other reader of those bytes waits for `sum`, and the
/// logits are not among them.
pub(super) fn may_replace(graph: &Graph, sum: ValueId, residual: ValueId) -> bool {
    let kept = graph.logits().is_some_and(|logits| viewed(graph, logits) == viewed(graph, residual));
    let mut others = byte_readers(graph, residual).into_iter().filter(|reader| *reader != sum);
    !kept && others.all(|reader| !reaches(graph, sum, reader))
}
