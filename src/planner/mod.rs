//! The planner: from a profile to the plan that decides everything about speculation on one machine. Offline.
//!
//! The walk: [`make_plan`] replays the recorded acceptance for every shape ([`TreeReplay`], [`replay_free`], [`replay_live`]), prices
//! every shape with the latency table ([`objective`], eq. 3 of Yggdrasil; for trees under every [`Schedule`](crate::plan::Schedule), by
//! the [`Timeline`] of its [`StageGraph`]), keeps the best sub-plan of every drafter and plain decoding among them, once for every
//! temperature that requests were recorded at, searches it again at every longer context that was measured
//! ([`ContextRange`](crate::plan::ContextRange)), chooses the tuning of every linear ([`choose_tunings`]), and returns a
//! [`Plan`](crate::plan::Plan). Where weights are streamed, [`make_plan_within`] divides memory, too. [`report`] shows plans, says why one is as it is, and in what two differ. [`compare`] searches what is
//! planned only to compare with.
//!
//! Invariants: nothing is interpolated across widths; no plan is chosen that is predicted slower than plain decoding unless it was
//! asked for by a [`Fix`].
#![forbid(unsafe_code)]

mod acceptance;
mod calibration;
pub mod compare;
mod depth_replay;
mod depth_search;
mod error;
mod fix;
mod free_replay;
mod free_search;
mod from_profile;
mod grown_trees;
mod guard_limits;
mod live_replay;
mod longer_contexts;
mod makespan;
mod memory_search;
pub mod objective;
mod paired;
mod pricing;
mod rates;
pub mod report;
mod search;
mod selection;
mod sharpening;
mod side_by_side;
mod splits;
mod stages;
mod tally;
mod tree_replay;
mod tree_search;
mod tunings;
mod unseen;

pub use acceptance::{AcceptedLengths, acceptance_by_rank};
pub use calibration::JudgedNode;
pub use error::SearchError;
pub use fix::{Fix, FixedWidth, Objective};
pub use free_replay::{judge_proposals, replay_free};
pub use free_search::FreeDrafter;
pub use from_profile::{
    Searching, plan_first, plan_from_profile, plan_from_profile_watched, plan_within_memory,
};
pub use live_replay::{judge_live, replay_live};
pub use makespan::{Lanes, TimeSpan, Timeline};
pub use memory_search::{MemoryBudget, make_plan_within};
pub use search::{make_plan, make_plan_watched};
pub use selection::NOISE_MARGIN;
pub use stages::{Part, Resource, StageGraph, StageRun, Tail, TreeStep, Wait};
pub use tally::Tally;
pub use tree_replay::{MOST_MISSING, TreeReplay, judge_trees};
pub use tunings::{FEWEST_ROUNDS, TUNING_MARGIN, choose_tunings};

#[cfg(test)]
mod tests;
