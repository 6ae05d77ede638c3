//! Reports on plans: [`text`] shows one on a screen and [`json`] all of it, [`explain()`] says why it is as it is,
//! [`diff()`] in what two differ.

pub mod diff;
pub mod explain;
mod layout;
mod reading;
mod show;
mod step_chart;
pub(in crate::planner) mod verdict;
mod words;

pub use diff::{PlanDiff, diff};
pub use explain::{Explanation, explain, explain_at};
pub use reading::reads;
pub use show::{json, text};
pub use verdict::{Verdict, notable_stages, verdict};
pub use words::{TUNING_TITLES, drafter_cell, tuning_cells};
