//! Instruments of a replay: what measurements and checks need in addition to forwards.
//!
//! No clock is read here.

use std::{fmt::Debug, ops::Range};

use ygg_kernels::cpu::{Arithmetic, Tuning};

use crate::ir::{ProgramId, RowInputs, StepId};

/// A moment of an observed replay, on the first worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// All workers stand before the first step.
    Begun,
    /// The streamed matrix that a step multiplies by has come.
    Fetched(StepId),
    /// The first worker has done its share of a step.
    ShareDone(StepId),
    /// All workers have done theirs.
    StepDone(StepId),
}

/// Called at every moment as it comes.
pub type Observer<'a> = &'a mut (dyn FnMut(Moment) + Send);

/// Work other than forwards that shows one limit of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exercise {
    /// Read all weights that are in memory, shared as steps share them: bytes.
    ReadWeights {
        /// How often.
        passes: u64,
    },
    /// Multiply and add in registers: operations of all threads.
    MultiplyAdds {
        /// With which instructions.
        arithmetic: Arithmetic,
        /// How often.
        rounds: u64,
    },
    /// Walk steps in which nothing is done: steps.
    EmptySteps {
        /// How many.
        steps: u64,
    },
}

/// A replay that can be measured, tuned and checked.
pub trait Instruments: Debug {
    /// Like [`Replay::begin`](super::Replay::begin), and calls the observer at every [`Moment`]. Results are the same
    /// bits.
    fn replay_observed(
        &mut self,
        program: ProgramId,
        inputs: &RowInputs,
        skipped: &[bool],
        observer: Observer<'_>,
    );

    /// Sets the tuning of a linear. Results are the same bits.
    ///
    /// # Panics
    /// If that step is no linear with this choice.
    fn tune(&mut self, program: ProgramId, step: StepId, tuning: Tuning);

    /// Does an exercise with the threads and memory of replays; returns the amount done, in the unit of the exercise.
    fn exercise(&mut self, exercise: Exercise) -> u64;

    /// Overwrites slots with finite noise. Nothing that is read afterwards may depend on them.
    fn poison_slots(&mut self, slots: Range<u32>, seed: u64);
}
