//! What can go wrong while decoding.

use super::StoreError;
use crate::{
    grammar::GrammarError,
    plan::{PlanError, Schedule},
    runtime::RuntimeError,
    sample::SampleError,
    storage::SealError,
};

/// Why decoding refuses.
#[derive(Debug, thiserror::Error)]
pub enum SpeculateError {
    /// The session refused.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The sampling parameters are out of range.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The request's grammar cannot be followed any further.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// The corpus store of a drafter cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Bands or a sub-plan that contradict themselves, or a sub-plan without what its steps need.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A prompt without tokens.
    #[error("the prompt is empty: expected at least one token")]
    EmptyPrompt,
    /// A shape the executables cannot run.
    #[error("shape {what}: expected {expected}, found {found}; plan again or fix another shape")]
    Shape {
        /// Which number of the shape.
        what: &'static str,
        /// What is possible.
        expected: String,
        /// What was asked for.
        found: usize,
    },
    /// What drafters kept is damaged, or of another model, drafter or settings.
    #[error("kept state of drafters: {0}; name another file or remove the file to begin anew")]
    KeptState(#[from] SealError),
    /// A schedule that the device does not offer.
    #[error(
        "schedule {schedule}: expected a device that {expected} by itself, a GPU, found one that runs forwards only; plan again here or fix schedule={}",
        Schedule::Plain
    )]
    Device {
        /// The schedule.
        schedule: Schedule,
        /// What the device would have to do.
        expected: &'static str,
    },
    /// A schedule that the drafter cannot keep.
    #[error(
        "schedule {schedule}: expected {expected}, found {found}; plan again or fix schedule={}",
        Schedule::Plain
    )]
    Schedule {
        /// The schedule.
        schedule: Schedule,
        /// What it needs.
        expected: &'static str,
        /// What there is.
        found: &'static str,
    },
}
