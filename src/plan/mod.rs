//! The plan: the file that decides everything about speculation on one machine, and what it is made of.
//!
//! A [`Plan`] names for every band of temperatures ([`Band`]) a sub-plan ([`SubPlan`]): the drafter ([`DrafterKind`]),
//! how its trees grow ([`GrowthChoice`]), in which order the stages of a step run ([`Schedule`]), and for every range
//! of contexts ([`ContextRange`]) how deep a step drafts ([`DepthChoice`]) and how many rows it verifies
//! ([`RowChoice`]). Decoders step by that description itself. [`write()`] and [`read()`] move plans through checked
//! files; a [`FittedPlan`] is one whose fingerprints are those of the machine, model and build at hand.
//!
//! Invariant: a [`Plan`] that was read or made is valid ([`Plan::validate`]). What is decided while decoding is in
//! `policy`; how a plan is found is in `planner`, which a program that only decodes does not link.
#![forbid(unsafe_code)]

mod bands;
mod calibration;
mod check;
mod contents;
mod context_range;
mod depth_choice;
mod drafter;
mod error;
mod file;
mod fit;
mod group_set;
mod growth_choice;
mod guard_limits;
mod memory;
mod planned_widths;
mod prediction;
mod priced_shape;
mod proposal;
mod row_choice;
mod schedule;
mod shape;
mod sub_plan;
mod token_list;

pub use bands::{Alternative, Band, LeftOut, Refusal, check_temperatures, nearest};
pub use calibration::{Calibration, HeldOut, INTERVALS, Interval, Knot};
pub use contents::{ChosenTuning, Header, Plan, PlannedPredictor};
pub use context_range::ContextRange;
pub use depth_choice::{DepthChoice, DepthCost, DepthCosts, DepthRule};
pub use drafter::*;
pub use error::PlanError;
pub use file::{PLAN_FORMAT, decode, encode, read, write};
pub use fit::FittedPlan;
pub use group_set::GroupSet;
pub use growth_choice::{GrowthChoice, GrowthRule, StaticTree};
pub use guard_limits::GuardLimits;
pub use memory::{DEFAULT_CONTEXT, Division, PlannedMemory};
pub use planned_widths::PlannedWidths;
pub use prediction::{Acceptance, Prediction, Unseen};
pub use priced_shape::PricedShape;
pub use proposal::{ProposalLimits, ReplayDrafter};
pub use row_choice::{RowChoice, RowRule, WidthCost};
pub use schedule::Schedule;
pub use shape::{Shape, StageTime, step_us};
pub use sub_plan::SubPlan;
pub use ygg_profiler::{
    BuildFingerprint, DepthNetwork, DepthReport, DrafterFile, Fingerprints, MachineFingerprint,
    ModelFingerprint, Stage, StepStage, TunedShape, UnixTime,
};
