//! From a graph of symbolic width to the program of one width.
//!
//! [`compile`] clones the graph, binds its rows, rewrites it pass by pass, then selects kernels, orders the steps and
//! lays the values out in one arena. Invariants:
//! - the law of graphs ([`crate::ir::verify`]) is checked after every pass, and the error names the pass;
//! - no pass fuses across a group, so a skipped group is a set of steps left out, with all offsets unchanged;
//! - a residual sum in place keeps the offset of the residual stream through all groups;
//! - everything is deterministic: same graph, binding and device, same program.
//!
//! [`check_arena`] is the independent judge of the layout. [`compile_stages`] and [`compile_until`] show every stage.
//! With the feature `planner`, `compile_unfused` makes what a framework without a compiler would run, to be measured
//! against.
#![forbid(unsafe_code)]

mod arena;
mod arena_checker;
mod error;
mod in_place;
mod order;
mod passes;
mod select_kernels;
mod stages;
mod to_program;
#[cfg(feature = "planner")]
mod unfused;

#[cfg(test)]
mod tests;

pub use arena_checker::{ArenaError, check_arena};
pub use error::CompileError;
pub use stages::{Stage, compile_stages, compile_until, stage_names};
#[cfg(feature = "planner")]
pub use unfused::compile_unfused;

use crate::ir::{Binding, DeviceSpec, Graph, GraphError, Program};

/// A rewrite of a bound graph that keeps its meaning.
type Pass = fn(&mut Graph) -> Result<(), GraphError>;

/// The passes after `bind_width`, in order.
const PASSES: [(&str, Pass); 8] = [
    ("fold_constants", passes::fold_constants),
    ("fuse_qkv", passes::fuse_qkv),
    ("fuse_gate_up", passes::fuse_gate_up),
    ("fuse_rope", passes::fuse_rope),
    ("fuse_norm", passes::fuse_norm),
    ("fuse_residual", passes::fuse_residual),
    ("fuse_head", passes::fuse_head),
    ("drop_dead", passes::drop_dead),
];

/// Compiles a lawful graph for one width.
///
/// # Errors
/// [`CompileError`] if the binding is impossible, the graph is unlawful, or it asks for something no kernel or layout
/// can give.
///
/// # Panics
/// If the arena breaks its law, in builds with debug assertions: a bug of this room.
pub fn compile(graph: &Graph, binding: Binding, device: &DeviceSpec) -> Result<Program, CompileError> {
    let bound = stages::run_passes(graph, binding, &mut |_, _| stages::Proceed::On)?;
    let program = to_program::to_program(&bound, device)?;
    if cfg!(debug_assertions) {
        for skip in [false, true] {
            let skipped = vec![skip; program.groups as usize];
            check_arena(&program, &skipped).unwrap_or_else(|e| panic!("unlawful arena: {e}"));
        }
    }
    Ok(program)
}
