//! The planner: from a profile to the plan that decides everything about speculation on one machine.
//!
//! The walk: [`make_plan`] replays the recorded acceptance for every shape ([`TreeReplay`], [`FreeReplay`], [`replay_live`]), prices every
//! shape with the latency table ([`objective`], eq. 3 of Yggdrasil; for trees under every [`Schedule`], by the [`Timeline`] of
//! its [`StageGraph`]), keeps the best sub-plan of every drafter and plain
//! decoding among them, once for every temperature that requests were recorded at ([`Band`]), chooses the tuning of every linear ([`choose_tunings`]), and returns a [`Plan`]. [`write()`] and [`read()`] move plans through checked files; [`FittedPlan`] is
//! a plan whose fingerprints are those of the machine, model and build at hand; [`text`] and [`json`] show one, [`explain()`]
//! says why it is as it is, [`diff()`] in what two differ.
//!
//! Trees that are the same at every step ([`StaticTree`]) are searched where a [`Fix`] names them, to compare with.
//!
//! What is decided while decoding is decided by pure functions of this room too: [`DepthChoice`] says how deep a step drafts, by
//! what a depth network tells ([`tell`]), [`RowChoice`] how many rows it verifies, by values that a [`Calibration`] turned into
//! probabilities and costs that [`StepCosts`] corrects by the clock, [`GuardState`] whether a request drafts at all, [`Trust`]
//! what the values of drafters that share a tree are worth, and [`SkipSearch`] which sub-layers a drafter leaves out.
//!
//! Invariants: a [`Plan`] that was read or made is valid ([`Plan::validate`]); nothing is interpolated across widths;
//! no plan is chosen that is predicted slower than plain decoding unless it was asked for by a [`Fix`].
#![forbid(unsafe_code)]

mod acceptance;
mod arbiter;
mod bands;
mod calibration;
mod choosing;
mod contents;
mod depth;
mod depth_choice;
mod depth_replay;
mod depth_search;
pub mod diff;
mod drafter;
mod error;
pub mod explain;
mod fate;
mod file;
mod fit;
mod fix;
mod free_replay;
mod free_search;
mod growth_choice;
mod guard;
pub mod leviathan;
mod live_replay;
mod makespan;
pub mod objective;
mod pricing;
mod rates;
mod row_choice;
mod schedule;
mod search;
mod show;
mod skip_search;
mod stages;
mod static_replay;
mod static_search;
mod step_costs;
mod token_list;
mod tree_replay;
mod tunings;

pub use acceptance::{Acceptance, AcceptedLengths, acceptance_by_rank};
pub use arbiter::Trust;
pub use bands::{Band, nearest};
pub use calibration::{Calibration, HeldOut, INTERVALS, Interval, JudgedNode, Knot};
pub use choosing::NOISE_MARGIN;
pub use contents::{
    Alternative, LeftOut, Plan, PlannedPredictor, PlannedWidths, Prediction, PricedShape, Refusal, SubPlan,
};
pub use depth::{DepthScratch, normalise, tell};
pub use depth_choice::{DepthChoice, DepthCost, DepthCosts, DepthRule};
pub use diff::{PlanDiff, diff};
pub use drafter::{DrafterKind, MOST_ORDER, Mixture, NgramSettings, SuffixSettings};
pub use error::PlanError;
pub use explain::{Explanation, explain, explain_at};
pub use fate::{Fate, fates};
pub use file::{PLAN_FORMAT, decode, encode, read, write};
pub use fit::FittedPlan;
pub use fix::{Fix, FixedWidth, Objective};
pub use free_replay::{FreeReplay, ProposalLimits, ReplayDrafter, judge_proposals};
pub use free_search::FreeDrafter;
pub use growth_choice::{GrowthChoice, GrowthRule, StaticTree};
pub use guard::{GuardMode, GuardState, GuardTerms, GuardedStep};
pub use live_replay::{judge_live, replay_live};
pub use makespan::{Lanes, TimeSpan, Timeline};
pub use objective::{Shape, StageTime};
pub use row_choice::{RowChoice, RowRule, RowScratch, WidthCost};
pub use schedule::Schedule;
pub use search::make_plan;
pub use show::{TUNING_TITLES, drafter_cell, json, text, tuning_cells};
pub use skip_search::{
    GroupSet, SkipCosts, SkipCounts, SkipObjective, SkipSearch, SkipSearchSettings, SkipState,
    SkipStateError, SkipTimes, TriedSet, expected_speedup, read_skip_state, write_skip_state,
};
pub use stages::{Part, Resource, StageGraph, StageRun, Tail, TreeStep, Wait};
pub use step_costs::StepCosts;
pub use tree_replay::{MOST_MISSING, TreeReplay, judge_trees};
pub use tunings::{ChosenTuning, FEWEST_ROUNDS, TUNING_MARGIN, choose_tunings};
pub use ygg_profiler::{
    BuildFingerprint, DepthNetwork, DepthReport, DrafterFile, Fingerprints, MachineFingerprint,
    ModelFingerprint, Stage, TunedShape,
};

#[cfg(test)]
mod tests;
