//! The shape of a linear: everything but the machine that its speed depends on.

use std::fmt;

use ygg_kernels::{KernelId, Operand as Reads, cpu::Tuning};

use super::{OpWeights, Program, Step, WeightId};

/// Kernel and shape of a linear. Displays as `linear.q4_1.avx512 [960, 576] of 4 rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinearShape {
    /// Op, format and tier.
    pub kernel: KernelId,
    /// Outputs of all its matrices; of the gate, for a gated pair.
    pub outputs: usize,
    /// Inputs.
    pub columns: usize,
    /// Rows that it is given.
    pub rows: usize,
}

impl LinearShape {
    /// That of a step, if it is a linear.
    pub fn of(program: &Program, step: &Step) -> Option<Self> {
        let outputs_of =
            |ids: &[WeightId]| ids.iter().map(|id| program.weights[id.0 as usize].rows).sum::<usize>();
        let outputs = match step.op.weights() {
            OpWeights::Stack { weights, .. } => outputs_of(weights),
            OpWeights::Gated { gate, .. } => outputs_of(&[gate]),
            // Products of experts have no tuning: how many rows each is given differs from forward to forward.
            OpWeights::Nothing
            | OpWeights::Rows(_)
            | OpWeights::Gain(_)
            | OpWeights::Vectors(_)
            | OpWeights::Experts { .. } => return None,
        };
        let x = step.operands[0].region().expect("a product has a left side");
        Some(Self { kernel: step.kernel, outputs, columns: x.columns, rows: x.rows })
    }

    /// Tunings worth measuring, the default first.
    pub fn candidates(&self) -> Vec<Tuning> {
        match self.kernel.class.operand {
            Reads::Weight(format) => Tuning::candidates(self.kernel.class.tier, format, self.rows),
            Reads::Rows | Reads::Kv(_) => vec![Tuning::DEFAULT],
        }
    }
}

impl fmt::Display for LinearShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, outputs, columns, rows } = self;
        write!(f, "{kernel} [{outputs}, {columns}] of {rows} rows")
    }
}
