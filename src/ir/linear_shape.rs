//! What one linear multiplies: all that its speed depends on beside the machine.

use std::fmt;

use ygg_kernels::{KernelId, NumericClass, Operand as Reads, cpu::Tuning};

use super::{Op, Program, Step, WeightId};

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
        let outputs = match &step.op {
            Op::Linear { weights, .. } => outputs_of(weights),
            Op::GatedLinear { gate, .. } => outputs_of(&[*gate]),
            Op::Candidates { head: Some(head), .. } => outputs_of(&head.weights),
            Op::Input(_)
            | Op::GivenRows { .. }
            | Op::Embed { .. }
            | Op::RmsNorm(_)
            | Op::Swiglu
            | Op::Rope(_)
            | Op::AppendKv { .. }
            | Op::Attention { .. }
            | Op::Add
            | Op::Scale { .. }
            | Op::Slice { .. }
            | Op::SelectRows
            | Op::Candidates { head: None, .. } => return None,
        };
        let x = step.operands[0].region().expect("a product has a left side");
        Some(Self { kernel: step.kernel, outputs, columns: x.columns, rows: x.rows })
    }

    /// Tunings worth measuring, the default first.
    pub fn candidates(&self) -> Vec<Tuning> {
        match self.kernel.class.operand {
            Reads::Weight(format) => {
                let NumericClass { activations, tier, .. } = self.kernel.class;
                Tuning::candidates(tier, activations, format, self.rows)
            }
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
