//! Which sub-layers a layer-skip drafter leaves out, searched while it runs: SWIFT (<https://arxiv.org/abs/2410.06916>).
//!
//! Everything here is pure: [`SkipSearch`] chooses the set to try next and learns its result; the drafter runs the
//! forwards. What it decides follows from its seed, the history and the counted costs ([`SkipCosts`]), never from a clock.
//! Nothing allocates once it is made. [`SkipState`] is what outlives a run, and [`write_skip_state`] and [`read_skip_state`] move
//! it through checked files.

mod gaussian_process;
mod level;
mod search;
mod state;
mod state_file;
#[cfg(test)]
mod tests;
mod worth;

pub use search::{SkipCounts, SkipSearch, SkipSearchSettings};
pub use state::{SkipState, TriedSet};
pub use state_file::{SkipStateError, read_skip_state, write_skip_state};
pub use worth::{SkipCosts, SkipObjective, SkipTimes, expected_speedup};
