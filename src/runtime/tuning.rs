//! The tunings of a session's linears, by shape.

use std::collections::BTreeSet;

use crate::{
    backend::Tuning,
    ir::{Id, LinearShape, StepId},
};

use super::{ExecutableSet, RuntimeError, Session};

impl ExecutableSet {
    /// Shapes of all linears of all executables.
    pub fn linear_shapes(&self) -> BTreeSet<LinearShape> {
        let programs = self.executables().programs().iter();
        programs.flat_map(|p| p.steps.iter().filter_map(|step| LinearShape::of(p, step))).collect()
    }
}

impl Session {
    /// Makes every linear of `shape` go as `tuning` says. Results are the same bits; a session begins with the default.
    ///
    /// # Errors
    /// [`RuntimeError::Tuning`] if the kernels of that shape have no such tuning.
    pub fn tune(&mut self, shape: &LinearShape, tuning: Tuning) -> Result<(), RuntimeError> {
        let candidates = shape.candidates();
        if !candidates.contains(&tuning) {
            return Err(RuntimeError::Tuning {
                shape: shape.to_string(),
                found: tuning.to_string(),
                expected: candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "),
            });
        }
        // Without instruments every linear has one tuning.
        let Some(instruments) = self.replay.instruments() else { return Ok(()) };
        for (id, program) in self.set.executables().programs().pairs() {
            for (step, linear) in (0..).map(StepId::new).zip(&program.steps) {
                if LinearShape::of(program, linear).as_ref() == Some(shape) {
                    instruments.tune(id, step, tuning);
                }
            }
        }
        Ok(())
    }
}
