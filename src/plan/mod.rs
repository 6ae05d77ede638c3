//! The planner: from a profile to the plan that decides everything about speculation on one machine.
//!
//! The walk: [`make_plan`] replays the recorded acceptance for every shape ([`TreeReplay`], [`FreeReplay`]), prices every
//! shape with the latency table ([`objective`], eq. 3 of Yggdrasil), keeps the best sub-plan of every drafter and plain
//! decoding among them, chooses the tuning of every linear ([`choose_tunings`]), and returns a [`Plan`]. [`write()`] and [`read()`] move plans through checked files; [`FittedPlan`] is
//! a plan whose fingerprints are those of the machine, model and build at hand; [`text`] and [`json`] show one.
//!
//! What is decided while decoding is decided by pure functions of this room too: [`RowChoice`] says how many rows a step
//! verifies, by values that a [`Calibration`] turned into probabilities and costs that [`StepCosts`] corrects by the clock, and
//! [`GuardState`] whether a request drafts at all.
//!
//! Invariants: a [`Plan`] that was read or made is valid ([`Plan::validate`]); nothing is interpolated across widths;
//! no plan is chosen that is predicted slower than plain decoding unless it was asked for by a [`Fix`].
#![forbid(unsafe_code)]

mod acceptance;
mod calibration;
mod contents;
mod drafter;
mod error;
mod file;
mod fit;
mod fix;
mod free_replay;
mod guard;
pub mod leviathan;
pub mod objective;
mod pricing;
mod row_choice;
mod search;
mod show;
mod step_costs;
mod tree_replay;
mod tunings;

pub use acceptance::{Acceptance, AcceptedLengths, acceptance_by_rank};
pub use calibration::{Calibration, HeldOut, JudgedNode, Knot};
pub use contents::{Alternative, LeftOut, Plan, PlannedWidths, Prediction, Refusal, SubPlan};
pub use drafter::DrafterKind;
pub use error::PlanError;
pub use file::{PLAN_FORMAT, decode, encode, read, write};
pub use fit::FittedPlan;
pub use fix::{Fix, FixedWidth, Objective};
pub use free_replay::{FreeReplay, ProposalLimits, ReplayDrafter, judge_proposals};
pub use guard::{GuardMode, GuardState, GuardTerms, GuardedStep};
pub use objective::{Shape, StageTime};
pub use row_choice::{RowChoice, RowRule, RowScratch, WidthCost};
pub use search::{FreeDrafter, NOISE_MARGIN, make_plan};
pub use show::{json, text};
pub use step_costs::StepCosts;
pub use tree_replay::{MOST_MISSING, TreeReplay, judge_trees};
pub use tunings::{ChosenTuning, FEWEST_ROUNDS, TUNING_MARGIN, choose_tunings};
pub use ygg_profiler::{
    BuildFingerprint, Fingerprints, MachineFingerprint, ModelFingerprint, Stage, TunedShape,
};

#[cfg(test)]
mod tests;
