//! What whoever holds a clock can see of a replay, and what its threads can do to show what bounds them.
//!
//! No clock is read here.

use ygg_kernels::cpu::Arithmetic;

/// A moment of an observed replay, on the first worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// All workers stand before the first step.
    Begun,
    /// The first worker has done its share of a step, which is named by its number in the program.
    ShareDone(usize),
    /// All workers have done theirs.
    StepDone(usize),
}

/// Told of every moment as it comes.
pub type Observer<'a> = &'a mut (dyn FnMut(Moment) + Send);

/// What the threads of a replay can do beside replaying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exercise {
    /// Read all weights from memory, shared as steps share them: bytes.
    ReadWeights {
        /// How often.
        passes: u64,
    },
    /// Multiply and add in registers: operations of all threads.
    MultiplyAdds {
        /// In which way.
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
