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
pub(super) fn replacers(graph: &Graph, value: ValueId) -> impl Iterator<Item = ValueId> {
    let bytes = viewed(graph, value);
    byte_readers(graph, value)
        .into_iter()
        .filter(move |sum| replaced(graph, *sum).is_some_and(|r| viewed(graph, r) == bytes))
}

/// A demand on the order of steps: the first value before the second.
pub(super) type Before = (ValueId, ValueId);

/// What it takes for `reader`, which is no view, to read `value` itself: it runs before the bytes are overwritten.
pub(super) fn to_read(graph: &Graph, reader: ValueId, value: ValueId) -> Vec<Before> {
    replacers(graph, value).map(|sum| (reader, sum)).collect()
}

/// Whether all that read `copy`, which is no view, can read `original` instead: the copy is not there to outlive the
/// original, nor to be overwritten in its stead.
pub(super) fn can_stand_in(graph: &Graph, original: ValueId, copy: ValueId) -> bool {
    let kept = |value: ValueId| graph.kept().any(|kept| viewed(graph, kept) == viewed(graph, value));
    let overwritten = |value: ValueId| replacers(graph, value).next().is_some();
    if byte_readers(graph, original).into_iter().eq([copy]) && !kept(original) {
        return true;
    }
    if overwritten(copy) || (kept(copy) && overwritten(original)) {
        return false;
    }
    let readers = byte_readers(graph, copy);
    let demands: Vec<_> = readers.iter().flat_map(|reader| to_read(graph, *reader, original)).collect();
    can_order(graph, &demands)
}

/// What it takes for `sum`, which reads `residual`, to overwrite it: every other reader runs before. `None` if
/// something kept is among those bytes.
pub(super) fn to_replace(graph: &Graph, sum: ValueId, residual: ValueId) -> Option<Vec<Before>> {
    let kept = graph.kept().any(|kept| viewed(graph, kept) == viewed(graph, residual));
    let others = byte_readers(graph, residual).into_iter().filter(|reader| *reader != sum);
    (!kept).then(|| others.map(|reader| (reader, sum)).collect())
}

/// Whether there is still an order of steps when all `demands` are added to what the graph demands already.
pub(super) fn can_order(graph: &Graph, demands: &[Before]) -> bool {
    demands.iter().all(|(first, second)| !reaches(graph, demands, *second, *first))
}

/// Whether `to` must run after `from`, or is `from`: by what they read, because one overwrites what the other reads, by
/// `demands`, or because groups run in one piece.
fn reaches(graph: &Graph, demands: &[Before], from: ValueId, to: ValueId) -> bool {
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
        next.extend(demands.iter().filter(|(first, _)| *first == value).map(|(_, second)| *second));
        if within.is_some() {
            next.retain(|value| group(*value) == within);
        } else {
            next.extend(group(value).and_then(|group| members.remove(&group)).unwrap_or_default());
        }
        waiting.extend(next.into_iter().filter(|next| seen.insert(*next)));
    }
    false
}
