//! From a bound, rewritten graph to a program: kernels, order, arena, then the list of steps.

use super::{
    CompileError,
    arena::{Placement, lay_out},
    order::order,
    select_kernels::select_kernel,
};
use crate::ir::{
    DeviceSpec, Dtype, Graph, KernelChoice, Op, Operand, Program, Step, ValueId, verify::lending,
};

/// Makes the program of a lawful bound graph.
///
/// # Errors
/// [`CompileError`] of kernel selection, order and arena.
pub(super) fn to_program(graph: &Graph, device: &DeviceSpec) -> Result<Program, CompileError> {
    to_program_placed(graph, device, Placement::Reused)
}

/// Like [`to_program`], with values placed as `placement` says.
///
/// # Errors
/// As `to_program`.
pub(super) fn to_program_placed(
    graph: &Graph,
    device: &DeviceSpec,
    placement: Placement,
) -> Result<Program, CompileError> {
    let choice = KernelChoice::for_device(device);
    let order = order(graph)?;
    let layout = lay_out(graph, &order, device, placement)?;
    let operand = |value: ValueId| {
        let node = graph.node(value);
        match (node.value_type.dtype, &node.op) {
            (Dtype::F32, _) => Operand::Arena(layout.regions[&value]),
            (Dtype::Effect, _) => Operand::Effect,
            (Dtype::U32, Op::Input(input)) => Operand::Input(*input),
            (Dtype::U32, op) => unreachable!("`{}` makes no integers", op.name()),
        }
    };
    let always = lending(graph);
    let mut steps = Vec::new();
    for value in &order {
        let Some(kernel) = select_kernel(graph, *value, &choice)? else { continue };
        let node = graph.node(*value);
        let operands = graph.operands(*value).into_iter().map(operand).collect();
        steps.push(Step {
            op: node.op.clone(),
            kernel,
            group: node.group.filter(|group| !always.contains(group)),
            operands,
            result: operand(*value),
        });
    }
    let shown = graph.shown().expect("a lawful graph declares what it shows");
    Ok(Program {
        name: graph.name().to_owned(),
        binding: graph.binding().expect("bind_width has run"),
        steps,
        arena_bytes: layout.arena_bytes,
        weights: graph.weights().clone(),
        ropes: graph.ropes().to_vec(),
        kv: graph.kv(),
        groups: graph.groups(),
        shown: layout.regions[&shown],
        hidden: graph.hidden().map(|hidden| layout.regions[&hidden]),
        inner: graph.inner().iter().map(|inner| layout.regions[inner]).collect(),
    })
}
