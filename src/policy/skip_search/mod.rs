//! Which sub-layers a layer-skip drafter leaves out, searched while it runs: SWIFT
//! (<https://arxiv.org/abs/2410.06916>).
//!
//! Everything here is pure: [`SkipSearch`] chooses the set to try next and learns its result; the drafter runs the
//! forwards. What it decides follows from its seed, the history and the counted costs ([`SkipCosts`]), never from a
//! clock. Nothing allocates once it is made. [`SkipState`] is what outlives a run.

mod gaussian_process;
mod level;
mod search;
mod state;
#[cfg(test)]
mod tests;
mod worth;

pub use search::{SkipCounts, SkipSearch, SkipSearchSettings};
pub use state::{SkipState, TriedSet};
pub use worth::{SkipCosts, SkipObjective, SkipTimes, expected_speedup};
