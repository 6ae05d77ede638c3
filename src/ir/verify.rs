//! The law of graphs, checked after every pass.
//!
//! 1. Every value's type is what its op infers from its operands.
//! 2. Each cache layer is appended once; attention of a layer reads the effect of that layer's append, in whatever group
//!    it is. Each layer of convolutions has one, and so has each of recurrences.
//! 3. What is shown is declared and float, one row per output; so are the hidden rows and the inner rows, if declared,
//!    or they are all rows of the forward; candidates are read by nothing else.
//! 4. A group is closed: nothing outside reads a value made inside, but for one value, the residual sum, whose
//!    residual operand comes from outside the group. So leaving the group out is the identity on the residual stream.
//!    The effect of an append may be read outside; then the group is [never left out](lending).

use std::collections::BTreeSet;

use super::{Dtype, Graph, GraphError, GroupId, Op, ValueId, ValueType};

/// Checks the whole law.
///
/// # Errors
/// The first breach, with place, expectation and finding.
pub fn verify(graph: &Graph) -> Result<(), GraphError> {
    let order = graph.topological();
    types(graph, &order)?;
    cache(graph, &order)?;
    shown(graph, &order)?;
    groups(graph, &order)
}

fn law(place: impl ToString, expected: impl ToString, found: impl ToString) -> GraphError {
    GraphError::Law { place: place.to_string(), expected: expected.to_string(), found: found.to_string() }
}

fn types(graph: &Graph, order: &[ValueId]) -> Result<(), GraphError> {
    for value in order {
        let node = graph.node(*value);
        let operands: Vec<_> = graph.operands(*value).iter().map(|v| graph.node(*v).value_type).collect();
        let inferred =
            node.op.infer(graph, &operands).map_err(|e| law(value, "operands that fit the op", e))?;
        if inferred != node.value_type {
            return Err(law(value, format!("type {inferred}"), node.value_type));
        }
    }
    Ok(())
}

fn cache(graph: &Graph, order: &[ValueId]) -> Result<(), GraphError> {
    let mut appended = vec![None; graph.kv().layers];
    let mut convolved = vec![None; graph.kv().conv.layers];
    let mut followed = vec![None; graph.kv().states.layers];
    for value in order {
        match graph.node(*value).op {
            Op::AppendKv { layer, .. } => {
                if let Some(earlier) = appended[layer].replace(*value) {
                    return Err(law(value, format!("one append in layer {layer}"), format!("{earlier} too")));
                }
            }
            Op::Attention { layer, .. } => {
                let effect = graph.operands(*value)[1];
                if appended[layer] != Some(effect) {
                    return Err(law(value, format!("the append of layer {layer}"), effect));
                }
            }
            Op::ShortConv { layer, .. } => {
                if let Some(earlier) = convolved[layer].replace(*value) {
                    let expected = format!("one convolution in layer {layer}");
                    return Err(law(value, expected, format!("{earlier} too")));
                }
            }
            Op::Recurrence { layer, .. } => {
                if let Some(earlier) = followed[layer].replace(*value) {
                    return Err(law(
                        value,
                        format!("one recurrence in layer {layer}"),
                        format!("{earlier} too"),
                    ));
                }
            }
            Op::Input(_)
            | Op::GivenRows { .. }
            | Op::Embed { .. }
            | Op::RmsNorm(_)
            | Op::Linear { .. }
            | Op::GatedLinear { .. }
            | Op::Route { .. }
            | Op::RoutedGated { .. }
            | Op::RoutedLinear { .. }
            | Op::Gate(_)
            | Op::Rope(_)
            | Op::Add
            | Op::Scale { .. }
            | Op::Softcap { .. }
            | Op::Slice { .. }
            | Op::SelectRows
            | Op::Candidates { .. } => {}
        }
    }
    Ok(())
}

fn shown(graph: &Graph, order: &[ValueId]) -> Result<(), GraphError> {
    let Some(shown) = graph.shown() else {
        return Err(law("what is shown", "a declared value", "none"));
    };
    let of = |value: ValueId| graph.node(value).value_type;
    let found = of(shown);
    if found.dtype != Dtype::F32 || found.rows != graph.outputs_rows() {
        return Err(law("what is shown", "float rows, one per output", found));
    }
    let rows = [graph.outputs_rows(), graph.width_rows()];
    let is_unlawful = |found: &ValueType| found.dtype != Dtype::F32 || !rows.contains(&found.rows);
    let hidden = graph.hidden().into_iter().chain(graph.inner().iter().copied());
    if let Some(found) = hidden.map(of).find(is_unlawful) {
        return Err(law("the hidden rows", "float rows, one per output or one per row", found));
    }
    let candidates = order.iter().filter(|value| matches!(graph.node(**value).op, Op::Candidates { .. }));
    for value in candidates {
        if let Some(reader) = graph.readers(*value).first() {
            return Err(law(value, "candidates that no op reads", format!("a read by {reader}")));
        }
    }
    Ok(())
}

/// The value a group hands on: the only one read outside. `None` if nothing is.
pub fn group_result(graph: &Graph, group: GroupId) -> Option<ValueId> {
    graph.topological().into_iter().find(|v| graph.node(*v).group == Some(group) && leaves_group(graph, *v))
}

/// Whether a value made in a group is read outside it; an effect is no value.
pub fn leaves_group(graph: &Graph, value: ValueId) -> bool {
    let node = graph.node(value);
    let is_value = node.value_type.dtype != Dtype::Effect;
    is_value && node.group.is_some() && (graph.is_kept(value) || is_read_outside(graph, value))
}

fn is_read_outside(graph: &Graph, value: ValueId) -> bool {
    let group = graph.node(value).group;
    graph.readers(value).iter().any(|reader| graph.node(*reader).group != group)
}

/// The groups to whose keys and values others attend. Forwards have their steps whatever they leave out: without them
/// the others would attend to what other rows left.
pub fn lending(graph: &Graph) -> BTreeSet<GroupId> {
    let lends = |value: &ValueId| {
        graph.node(*value).value_type.dtype == Dtype::Effect && is_read_outside(graph, *value)
    };
    graph
        .topological()
        .iter()
        .filter(|value| lends(value))
        .filter_map(|value| graph.node(*value).group)
        .collect()
}

/// The residual operand of a residual sum: the one that may be overwritten in place.
pub fn residual_operand(graph: &Graph, value: ValueId) -> Option<ValueId> {
    match graph.node(value).op {
        Op::Add => Some(graph.operands(value)[0]),
        Op::Linear { residual: true, .. } => Some(graph.operands(value)[1]),
        Op::Linear { residual: false, .. }
        | Op::Input(_)
        | Op::GivenRows { .. }
        | Op::Embed { .. }
        | Op::RmsNorm(_)
        | Op::GatedLinear { .. }
        | Op::Route { .. }
        | Op::RoutedGated { .. }
        | Op::RoutedLinear { .. }
        | Op::Gate(_)
        | Op::Rope(_)
        | Op::AppendKv { .. }
        | Op::Attention { .. }
        | Op::ShortConv { .. }
        | Op::Recurrence { .. }
        | Op::Scale { .. }
        | Op::Softcap { .. }
        | Op::Slice { .. }
        | Op::SelectRows
        | Op::Candidates { .. } => None,
    }
}

fn groups(graph: &Graph, order: &[ValueId]) -> Result<(), GraphError> {
    let mut result = vec![None; graph.groups() as usize];
    for value in order {
        let Some(GroupId(group)) = graph.node(*value).group else { continue };
        if !leaves_group(graph, *value) {
            continue;
        }
        if let Some(other) = result[group as usize].replace(*value) {
            return Err(law(
                graph.group_name(GroupId(group)),
                "one value read outside",
                format!("{other} and {value}"),
            ));
        }
        let from_outside = residual_operand(graph, *value)
            .is_some_and(|residual| graph.node(residual).group != Some(GroupId(group)));
        if !from_outside {
            return Err(law(
                graph.group_name(GroupId(group)),
                "a residual sum over a value from outside",
                value,
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
