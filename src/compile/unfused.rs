//! The program that a framework without a compiler would run: ops as the model's graph has them, each result in bytes
//! of its own.
//!
//! Passes that fuse ops are left out; those that only fold constants and drop what is dead stay. Kernels, and so bits,
//! are those of [`compile`](super::compile): fusion changes no bit.

use super::{
    CompileError, arena::Placement, check_arena, passes, stages::run_lawfully, to_program::to_program_placed,
};
use crate::ir::{Binding, DeviceSpec, Graph, Program};

/// Compiles a lawful graph for one width without fusing anything and without reusing bytes, for eager execution. Groups
/// of such a program cannot be skipped: residual sums are not in place.
///
/// # Errors
/// As [`compile`](super::compile).
///
/// # Panics
/// As [`compile`](super::compile).
pub fn compile_unfused(
    graph: &Graph,
    binding: Binding,
    device: &DeviceSpec,
) -> Result<Program, CompileError> {
    let Binding { width, outputs } = binding;
    if !(1..=width).contains(&outputs) {
        return Err(CompileError::Binding { width, outputs });
    }
    let mut graph = graph.clone();
    run_lawfully("bind_width", &|graph| passes::bind_width(graph, binding), &mut graph)?;
    run_lawfully("fold_constants", &passes::fold_constants, &mut graph)?;
    run_lawfully("drop_dead", &passes::drop_dead, &mut graph)?;
    let program = to_program_placed(&graph, device, Placement::Apart)?;
    if cfg!(debug_assertions) {
        let nothing_skipped = vec![false; program.groups as usize];
        check_arena(&program, &nothing_skipped).unwrap_or_else(|e| panic!("unlawful arena: {e}"));
    }
    Ok(program)
}
