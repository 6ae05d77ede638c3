//! How the steps of a sub-plan go within one range of contexts.
//!
//! Over a longer context attention costs more: by forward, which rows share, and by row, which they do not. So the
//! depth and the rows that pay change while a request grows, and with them whether drafting pays at all.
use serde::{Deserialize, Serialize};

use super::{DepthChoice, Prediction, RowChoice, Unseen};

/// Steps from a number of committed tokens on. Drafter, draft width, growth, schedule and rules are those of the
/// sub-plan in all of its ranges. At longer contexts acceptance is taken to be what was recorded at shorter
/// ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextRange {
    /// Committed tokens from which it holds, 0 of the first, up to where the next begins: half-way between those that
    /// the steps on both sides were priced at.
    pub from: u32,
    /// Committed tokens at which its steps were priced: of the first range the mean of what was recorded, of others
    /// measured ones.
    pub context: u32,
    /// Whether requests that leave the choice to the plan draft here, once the sub-plan is chosen: in the first range
    /// all but plain decoding does, in others only where that is a gain beyond doubt or was asked for.
    pub drafts: bool,
    /// Growths, Dd.
    pub depth: u32,
    /// How a step chooses its depth, Dd at most.
    pub depth_choice: DepthChoice,
    /// The widths a step may verify, with their costs, and how it chooses; the last is Wv.
    pub row_choice: RowChoice,
    /// Predicted speed over the recorded prompts, if they were so long.
    pub predicted: Prediction,
    /// The speed-up to expect on others.
    pub unseen: Unseen,
}
