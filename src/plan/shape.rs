//! The shape of a step, and where its time goes.
use serde::{Deserialize, Serialize};
use ygg_profiler::Stage;

/// The shape of a step: Dd growths of Wd nodes, pruned to Wv rows with the root. Plain decoding is (0, 0, 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Growths, Dd.
    pub depth: u32,
    /// Nodes per growth, Wd.
    pub draft_width: u32,
    /// Rows verified, Wv, the root among them.
    pub verify_width: u32,
}

impl Shape {
    /// Plain decoding.
    pub const PLAIN: Shape = Shape { depth: 0, draft_width: 0, verify_width: 1 };

    /// Nodes of the full tree: Dd * Wd + 1.
    pub fn nodes(&self) -> u64 {
        u64::from(self.depth) * u64::from(self.draft_width) + 1
    }
}

/// What one stage takes of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Its time in one step, over all its runs, in microseconds.
    pub us: f64,
}

/// The time of a step, in microseconds.
pub fn step_us(stages: &[StageTime]) -> f64 {
    stages.iter().map(|stage| stage.us).sum()
}
