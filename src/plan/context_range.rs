//! What changes in the steps of a sub-plan as a request grows.
//!
//! Over a longer context attention costs more: by forward, which rows share, and by row, which they do not. So the depth and the rows
//! that pay change while a request grows, and with them whether drafting pays at all.
use serde::{Deserialize, Serialize};

use super::{DepthChoice, Prediction, RowChoice, Unseen};

/// How the steps of a sub-plan go on at a longer context: by the same drafter, draft width, growth, schedule and rules, with depth, rows
/// and costs of their own. Acceptance is taken to be what was recorded at shorter ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextRange {
    /// Committed tokens from which it holds, up to where the next begins: half-way between those that the steps on both sides were priced
    /// at.
    pub from: u32,
    /// Committed tokens at which its steps were priced: measured ones.
    pub context: u32,
    /// Whether drafting is a gain beyond doubt here, or was asked for. Requests that leave the choice to the plan decode plainly where not.
    pub drafts: bool,
    /// Growths, Dd.
    pub depth: u32,
    /// How a step chooses its depth.
    pub depth_choice: DepthChoice,
    /// The widths a step may verify, with their costs, and how it chooses; the last is Wv.
    pub row_choice: RowChoice,
    /// Predicted speed over the recorded prompts, if they were so long.
    pub predicted: Prediction,
    /// The speed-up to expect on others.
    pub unseen: Unseen,
}
