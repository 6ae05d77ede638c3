//! What is decided while decoding, as pure functions of what a plan says and what earlier steps did.
//!
//! [`reach_probabilities`] predicts how deep drafts are accepted, and
//! [`DepthCosts::choose`](crate::plan::DepthCosts::choose) takes the depth;
//! [`RowChoice::rows`](crate::plan::RowChoice::rows) chooses how many rows a step verifies, by values that a
//! [`Calibration`](crate::plan::Calibration) turned into probabilities and at costs that [`StepCosts`] corrects by the
//! clock; [`GuardState`] decides whether a request drafts at all, [`SharedTree`] which nodes of drafters that share a
//! tree are verified, [`Trust`] what the values of each are worth, and [`SkipSearch`] which sub-layers a drafter leaves
//! out. The decoder and the planner's replays ask the same functions.
//!
//! Invariants: nothing here reads a clock, and nothing allocates once it is made. No token depends on what is decided
//! here.
#![forbid(unsafe_code)]

mod arbiter;
mod calibration;
mod depth;
mod depth_choice;
mod guard;
mod node_outcome;
mod rows;
mod shared_tree;
mod skip_search;
mod step_costs;

pub use arbiter::Trust;
#[cfg(feature = "planner")]
pub(crate) use calibration::probability;
pub use depth::{DepthScratch, normalise, reach_probabilities};
pub use guard::{GuardMode, GuardState, GuardTerms, GuardedStep};
pub use node_outcome::{NodeOutcome, node_outcomes};
pub use rows::RowScratch;
pub use shared_tree::SharedTree;
pub use skip_search::{
    SkipCosts, SkipCounts, SkipObjective, SkipSearch, SkipSearchSettings, SkipState, SkipTimes, TriedSet,
    expected_speedup,
};
pub use step_costs::StepCosts;
