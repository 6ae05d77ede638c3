//! A priced shape, as the search keeps it.
use crate::plan::SubPlan;
use crate::planner::price::prompt_speed::PromptSpeed;

/// How far a predicted gain may be off whatever was measured: medians of interleaved repetitions on a quiet machine
/// still differ by about this much between runs.
pub const NOISE_MARGIN: f64 = 0.03;

/// One priced shape.
pub(in crate::planner) struct Point {
    /// Place of the drafter in the profile.
    pub(in crate::planner) place: usize,
    /// Whether the fix allows choosing it.
    pub(in crate::planner) asked_for: bool,
    /// What its steps gave by prompt.
    pub(in crate::planner) by_prompt: Vec<PromptSpeed>,
    pub(in crate::planner) sub_plan: SubPlan,
}
