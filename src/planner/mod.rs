//! The planner: from a profile to the plan that decides everything about speculation on one machine. Offline.
//!
//! The walk: [`make_plan`] replays the recorded acceptance for every shape ([`TreeReplay`], [`replay_free`],
//! [`replay_live`]), prices every shape with the latency table ([`objective`], eq. 3 of Yggdrasil; for trees under
//! every [`Schedule`](crate::plan::Schedule), by the [`Timeline`] of its [`StageGraph`]), keeps the best sub-plan of
//! every drafter and plain decoding among them, once for every temperature that requests were recorded at, searches it
//! again at every longer context that was measured ([`ContextRange`](crate::plan::ContextRange)), chooses the tuning of
//! every linear ([`choose_tunings`]), and returns a [`Plan`](crate::plan::Plan). Where weights are streamed,
//! [`make_plan_within`] divides memory, too. [`report`] shows plans, says why one is as it is, and in what two differ.
//! [`compare`] searches what is planned only to compare with.
//!
//! Invariants: nothing is interpolated across widths; no plan is chosen that is predicted slower than plain decoding
//! unless it was asked for by a [`Fix`].
#![forbid(unsafe_code)]

pub mod compare;
mod error;
mod judge;
mod price;
mod replay;
pub mod report;
mod search;

pub use error::SearchError;
pub use judge::point::NOISE_MARGIN;
pub use price::makespan::{Lanes, TimeSpan, Timeline};
pub use price::objective;
pub use price::stages::{Resource, StageGraph, StageRun, Tail, TreeStep, Wait};
pub use price::tally::Tally;
pub use replay::acceptance::{AcceptedLengths, acceptance_by_rank};
pub use replay::calibration::JudgedNode;
pub use replay::free_replay::{judge_proposals, replay_free};
pub use replay::live_replay::{judge_live, replay_live};
pub use replay::merged_replay::{MergedStep, replay_merged};
pub use replay::recorded::{recorded_outcome, recorded_tree};
pub use replay::tree_replay::{MOST_MISSING, TreeReplay, judge_trees};
pub use search::divisions::MemoryBudget;
pub use search::fix::{Fix, FixedWidth, Objective};
pub use search::free_search::FreeDrafter;
pub use search::from_profile::{
    Searching, plan_first, plan_from_profile, plan_from_profile_watched, plan_within_memory,
};
pub use search::make_plan::{make_plan, make_plan_watched};
pub use search::memory_search::make_plan_within;
pub use search::tunings::{FEWEST_ROUNDS, TUNING_MARGIN, choose_tunings};

#[cfg(test)]
mod tests;
