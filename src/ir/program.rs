//! The program: one width, ordered steps, byte offsets in one arena.
//!
//! All activations are f32. A step's operands are regions of the arena, row inputs, or nothing (effects). The arena's
//! law, judged in `compile`: no step reads a byte that another value has overwritten, whichever groups are left out.

use std::sync::Arc;

use ygg_kernels::KernelId;

use super::{Binding, GroupId, Input, KvSpec, Op, RopeSpec, ValueId, WeightSpec};

/// A rectangle `[rows, columns]` of f32 in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The value that lives there.
    pub value: ValueId,
    /// First byte; a multiple of 64 unless it is a column slice.
    pub offset_bytes: usize,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
}

/// What a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A row input supplied by the host.
    Input(Input),
    /// Bytes of the arena.
    Arena(Region),
    /// No bytes.
    Effect,
}

impl Operand {
    /// The region, if the operand has bytes in the arena.
    pub fn region(&self) -> Option<Region> {
        match self {
            Operand::Arena(region) => Some(*region),
            Operand::Input(_) | Operand::Effect => None,
        }
    }
}

/// One kernel call. Its op is never an input or a slice: those cost nothing and are folded into operands.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is computed.
    pub op: Op,
    /// By which kernel.
    pub kernel: KernelId,
    /// The group it belongs to; left out when the group is skipped.
    pub group: Option<GroupId>,
    /// Operands in the op's order.
    pub operands: Vec<Operand>,
    /// Where the result goes; equal to the residual operand's region for residual sums in place.
    pub result: Operand,
}

/// Everything a backend needs to make an executable, but for the weights' bytes.
#[derive(Clone, Debug)]
pub struct Program {
    /// Model name.
    pub name: String,
    /// Rows.
    pub binding: Binding,
    /// In order of execution.
    pub steps: Vec<Step>,
    /// Size of the arena.
    pub arena_bytes: usize,
    /// All weights of the model.
    pub weights: Arc<[WeightSpec]>,
    /// All rotary embeddings.
    pub ropes: Vec<RopeSpec>,
    /// Shape of the cache.
    pub kv: KvSpec,
    /// Number of groups.
    pub groups: u32,
    /// What a forward leaves to be read: the logits `[R, V]`, or rows of candidates.
    pub shown: Region,
    /// The last hidden rows `[R, D]`, or `[W, D]`, left to be read as well, if the graph declares them.
    pub hidden: Option<Region>,
    /// Rows `[R, D]`, or `[W, D]`, of the residual stream between layers, left to be read as well; none unless the
    /// graph [keeps some](crate::ir::Graph::keep_inner).
    pub inner: Vec<Region>,
}

impl Program {
    /// Rows of the residual stream that are left to be read: the hidden rows as number 0, then the inner rows.
    pub fn rows_left(&self, part: usize) -> Option<&Region> {
        match part.checked_sub(1) {
            None => self.hidden.as_ref(),
            Some(inner) => self.inner.get(inner),
        }
    }

    /// What a forward leaves to be read: what is shown, the hidden rows, and the inner rows.
    pub fn left(&self) -> impl Iterator<Item = &Region> {
        [&self.shown].into_iter().chain(&self.hidden).chain(&self.inner)
    }

    /// Elements of the rows that the host gives with every forward; 0 if it gives none.
    pub fn given_columns(&self) -> usize {
        let columns =
            |step: &Step| if let Op::GivenRows { columns } = step.op { Some(columns) } else { None };
        self.steps.iter().find_map(columns).unwrap_or(0)
    }
}
