//! Reports on plans: [`text`] and [`json`] show one, [`explain()`] says why it is as it is, [`diff()`] in what two differ.

pub mod diff;
pub mod explain;
pub(in crate::planner) mod show;
pub(in crate::planner) mod verdict;

pub use diff::{PlanDiff, diff};
pub use explain::{Explanation, explain, explain_at};
pub use show::{TUNING_TITLES, drafter_cell, json, text, tuning_cells};
pub use verdict::{Verdict, notable_stages, verdict};
