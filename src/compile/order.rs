//! The order of a bound graph's values: operands first, readers of a residual before the sum that replaces it in
//! place, each group in one piece, ties by creation.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CompileError,
    in_place::{byte_readers, replaced, viewed},
};
use crate::ir::{Graph, GroupId, ValueId};

/// Values that are ordered as one unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Group(GroupId),
    Single(ValueId),
}

/// All values in order of execution.
///
/// # Errors
/// [`CompileError::Order`] if sums in place or closed groups make every order impossible.
pub(super) fn order(graph: &Graph) -> Result<Vec<ValueId>, CompileError> {
    let values = graph.topological();
    let edges = constraints(graph, &values)?;
    let unit = |value: ValueId| graph.node(value).group.map_or(Unit::Single(value), Unit::Group);

    let mut number = BTreeMap::new();
    let mut members: Vec<Vec<ValueId>> = Vec::new();
    for value in &values {
        let unit = *number.entry(unit(*value)).or_insert_with(|| {
            members.push(Vec::new());
            members.len() - 1
        });
        members[unit].push(*value);
    }
    let between: Vec<_> = edges.iter().map(|(a, b)| (number[&unit(*a)], number[&unit(*b)])).collect();
    let units = sorted(members.len(), between.into_iter().filter(|(a, b)| a != b)).map_err(|stuck| {
        let first = members[stuck][0];
        CompileError::Order {
            place: graph.node(first).group.map_or(first.to_string(), |group| graph.group_name(group)),
            expected: "groups that run one after the other",
            found: "a circle of values between groups".to_owned(),
        }
    })?;

    let mut order = Vec::with_capacity(values.len());
    for unit in units {
        let members = &members[unit];
        let place: BTreeMap<_, _> = members.iter().enumerate().map(|(i, v)| (*v, i)).collect();
        let inside = edges.iter().filter_map(|(a, b)| Some((*place.get(a)?, *place.get(b)?)));
        let sorted = sorted(members.len(), inside).map_err(|stuck| CompileError::Order {
            place: members[stuck].to_string(),
            expected: "every reader of a residual before the sum that replaces it",
            found: "a reader that waits for the sum".to_owned(),
        })?;
        order.extend(sorted.into_iter().map(|i| members[i]));
    }
    Ok(order)
}

/// Pairs `(earlier, later)`.
fn constraints(graph: &Graph, values: &[ValueId]) -> Result<Vec<(ValueId, ValueId)>, CompileError> {
    let mut edges = Vec::new();
    for value in values {
        edges.extend(graph.operands(*value).into_iter().map(|operand| (operand, *value)));
        let Some(residual) = replaced(graph, *value) else { continue };
        let bytes = viewed(graph, residual);
        let times_read = graph.operands(*value).iter().filter(|o| viewed(graph, **o) == bytes).count();
        let refuse = |found: String| {
            Err(CompileError::Order {
                place: value.to_string(),
                expected: "a sum that may overwrite its residual",
                found,
            })
        };
        if times_read != 1 {
            return refuse(format!("{residual} read by the sum a second time"));
        }
        if graph.kept().any(|kept| viewed(graph, kept) == bytes) {
            return refuse(format!("{residual} wanted when the forward is over"));
        }
        let others = byte_readers(graph, residual).into_iter().filter(|reader| reader != value);
        edges.extend(others.map(|reader| (reader, *value)));
    }
    Ok(edges)
}

/// Numbers `0..count` so that every edge goes forward, lowest first (for the reason of [`Graph::topological`]); or a
/// number that is on a circle or reachable from one.
fn sorted(count: usize, edges: impl Iterator<Item = (usize, usize)>) -> Result<Vec<usize>, usize> {
    let mut waiting = vec![0usize; count];
    let mut later = vec![Vec::new(); count];
    for (a, b) in edges {
        later[a].push(b);
        waiting[b] += 1;
    }
    let mut ready: BTreeSet<_> = (0..count).filter(|n| waiting[*n] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(n) = ready.pop_first() {
        order.push(n);
        for next in &later[n] {
            waiting[*next] -= 1;
            if waiting[*next] == 0 {
                ready.insert(*next);
            }
        }
    }
    match waiting.iter().position(|left| *left > 0) {
        None => Ok(order),
        Some(stuck) => Err(stuck),
    }
}
