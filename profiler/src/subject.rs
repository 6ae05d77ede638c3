//! What can be measured: a subject, and the cells (stage, width, context) it is measured in.
use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::named;

/// Something whose stages can be run one at a time, under a clock it reads itself.
///
/// [`measure`](Subject::measure) returns the time of the run alone: whatever prepares a cell (selecting an executable,
/// setting the committed length, filling inputs) happens before the subject reads its clock.
pub trait Subject {
    /// Why a cell could not be run.
    type Error: std::error::Error + 'static;

    /// Brings `cell` into the state it will be measured in and runs it untimed.
    ///
    /// # Errors
    /// If the cell cannot be run.
    fn warm_up(&mut self, cell: &Cell) -> Result<(), Self::Error>;

    /// Runs `cell` once and returns the time that run took, by a monotonic clock, without its preparation.
    ///
    /// # Errors
    /// If the cell cannot be run.
    fn measure(&mut self, cell: &Cell) -> Result<Duration, Self::Error>;
}

/// One point of the grid: a stage at a width, with `context` committed tokens before it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// What is run.
    pub stage: Stage,
    /// Token rows of the run.
    pub width: u32,
    /// Committed tokens before the run.
    pub context: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at width {}, context {}", self.stage, self.width, self.context)
    }
}

/// A stage of one step. Its text form is stable: `verify`, `verify_walk`, `verify_tail:NAME`, `draft:NAME`,
/// `draft_head:NAME`, `first_growth:NAME`, `next_growth:NAME`, `verify_grown:NAME`, `read`, `resident`, `ends`,
/// `host:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Stage {
    /// One verifier forward of a greedy request, which ends with the best token of every row; width 1 is the plain
    /// decoding step.
    Verify,
    /// A verification in one launch of the device: such a forward, the walk through its tree and the move of what is
    /// accepted in the cache; width = rows verified.
    VerifyWalk,
    /// Such a forward on a device that runs in parallel with the host, and at the same time a forward of a drafter that
    /// runs a model of its own: of the verified rows but the root, and at most as many as a growth has. Both are waited
    /// for; width = rows verified.
    VerifyTail(DrafterName),
    /// One forward of a model drafter at a width, which ends with the candidates of every row, or (at width 1) one
    /// whole proposal of a drafter without a model.
    Draft(DrafterName),
    /// The first forward in a step of a drafter that runs a model of its own: after a forward of the verifier, whose
    /// weights have pushed the drafter's out of the caches. Its other forwards are [`Draft`](Self::Draft).
    DraftHead(DrafterName),
    /// A draft phase of one growth in one launch of the device: the root's forward, and the growth; width = nodes
    /// grown.
    FirstGrowth(DrafterName),
    /// What one growth more adds to such a phase: a forward of a growth's nodes, and the growth; width = nodes grown.
    NextGrowth(DrafterName),
    /// What a verification adds after a draft phase that the host does not wait for, where the device chooses the
    /// nodes, walks and moves by itself; width = rows verified.
    VerifyGrown(DrafterName),
    /// The reading of all streamed weights by a forward that computes next to nothing and finds the staging buffer
    /// full; width 1.
    Read,
    /// The part of a forward for which no weight is read: embedding, head, and the groups that are whole in memory;
    /// width = rows.
    Resident,
    /// A forward without any group: embedding and head; width = rows.
    Ends,
    /// Work [between forwards](StepStage::BETWEEN_FORWARDS).
    Host(StepStage),
}

impl Stage {
    /// Forwards of the model, or parts of them.
    const OF_MODEL: [Self; 5] = [Self::Verify, Self::VerifyWalk, Self::Read, Self::Resident, Self::Ends];

    /// The stage of a step that it is, or is a part of.
    pub fn of_step(&self) -> StepStage {
        match self {
            Stage::Verify
            | Stage::VerifyWalk
            | Stage::VerifyGrown(_)
            | Stage::VerifyTail(_)
            | Stage::Read
            | Stage::Resident
            | Stage::Ends => StepStage::Verify,
            Stage::Draft(_) | Stage::DraftHead(_) | Stage::FirstGrowth(_) | Stage::NextGrowth(_) => {
                StepStage::Draft
            }
            Stage::Host(stage) => *stage,
        }
    }

    /// The drafter whose stage it is, if it is of one.
    pub fn drafter(&self) -> Option<&DrafterName> {
        match self {
            Stage::VerifyTail(name)
            | Stage::Draft(name)
            | Stage::DraftHead(name)
            | Stage::FirstGrowth(name)
            | Stage::NextGrowth(name)
            | Stage::VerifyGrown(name) => Some(name),
            Stage::Verify
            | Stage::VerifyWalk
            | Stage::Read
            | Stage::Resident
            | Stage::Ends
            | Stage::Host(_) => None,
        }
    }

    /// The same stage of another drafter.
    #[must_use]
    pub fn of_drafter(&self, name: &DrafterName) -> Self {
        match self {
            Stage::VerifyTail(_) => Stage::VerifyTail(name.clone()),
            Stage::Draft(_) => Stage::Draft(name.clone()),
            Stage::DraftHead(_) => Stage::DraftHead(name.clone()),
            Stage::FirstGrowth(_) => Stage::FirstGrowth(name.clone()),
            Stage::NextGrowth(_) => Stage::NextGrowth(name.clone()),
            Stage::VerifyGrown(_) => Stage::VerifyGrown(name.clone()),
            Stage::Verify
            | Stage::VerifyWalk
            | Stage::Read
            | Stage::Resident
            | Stage::Ends
            | Stage::Host(_) => self.clone(),
        }
    }
}

named! {
    /// A stage of a step, as the clock of a decoder sees it. Work [between forwards](Self::BETWEEN_FORWARDS) is done
    /// once per step, unless said otherwise; the width of its cells is given with each.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum StepStage {
        /// Predicting how deep to draft; width 1.
        Predict = "predict",
        /// Trying what else a layer-skip drafter could leave out.
        Tune = "tune",
        /// Drafter forwards, heads of the next step among them, which end with the candidates of their rows, or the
        /// search of a drafter without a model.
        Draft = "draft",
        /// Growth between drafter forwards; measured of one growth, width = nodes grown.
        Grow = "grow",
        /// Choosing how many nodes to verify; width = nodes of the drafted tree.
        Decide = "decide",
        /// Choosing the nodes to verify; width = rows kept.
        Prune = "prune",
        /// Filling the inputs of the verify forward, the ancestor mask among them; width = rows verified.
        Mask = "mask",
        /// The verify forward; of a greedy request it ends with the best token of every row, else with logits. Where
        /// the device walks by itself, it has accepted and committed then.
        Verify = "verify",
        /// Walking the tree, and drawing the tokens of a request that is not greedy; width = rows verified.
        Accept = "accept",
        /// Moving the accepted rows in the cache; width = rows verified.
        Commit = "commit",
        /// Looking for forced tokens, and taking what a grammar cannot take out of trees. Masks are computed while
        /// accepting.
        Constrain = "constrain",
        /// Showing the step to a drafter that learns.
        Learn = "learn",
    }
}

impl StepStage {
    /// Work between forwards that profiles measure.
    pub const BETWEEN_FORWARDS: [Self; 7] =
        [Self::Predict, Self::Grow, Self::Decide, Self::Prune, Self::Mask, Self::Accept, Self::Commit];
}

/// What a profile calls one drafter: lowercase letters, digits and `_`, unique in the profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DrafterName(String);

impl DrafterName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`NameError::Drafter`] if the name is empty or has other characters.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if name.is_empty() || !name.bytes().all(good) {
            return Err(NameError::Drafter { name });
        }
        Ok(DrafterName(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DrafterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<DrafterName> for String {
    fn from(name: DrafterName) -> String {
        name.0
    }
}

impl TryFrom<String> for DrafterName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        DrafterName::new(name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Verify => f.write_str("verify"),
            Stage::VerifyWalk => f.write_str("verify_walk"),
            Stage::VerifyTail(name) => write!(f, "verify_tail:{name}"),
            Stage::Draft(name) => write!(f, "draft:{name}"),
            Stage::DraftHead(name) => write!(f, "draft_head:{name}"),
            Stage::FirstGrowth(name) => write!(f, "first_growth:{name}"),
            Stage::NextGrowth(name) => write!(f, "next_growth:{name}"),
            Stage::VerifyGrown(name) => write!(f, "verify_grown:{name}"),
            Stage::Read => f.write_str("read"),
            Stage::Resident => f.write_str("resident"),
            Stage::Ends => f.write_str("ends"),
            Stage::Host(stage) => write!(f, "host:{}", stage.name()),
        }
    }
}

impl FromStr for Stage {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut of_model = Stage::OF_MODEL.into_iter();
        if let Some(stage) = of_model.find(|stage| stage.to_string() == text) {
            return Ok(stage);
        }
        type OfDrafter = fn(DrafterName) -> Stage;
        let of_drafters: [(&str, OfDrafter); 6] = [
            ("verify_tail:", Stage::VerifyTail),
            ("draft:", Stage::Draft),
            ("draft_head:", Stage::DraftHead),
            ("first_growth:", Stage::FirstGrowth),
            ("next_growth:", Stage::NextGrowth),
            ("verify_grown:", Stage::VerifyGrown),
        ];
        for (kind, stage) in of_drafters {
            if let Some(name) = text.strip_prefix(kind) {
                return DrafterName::new(name).map(stage);
            }
        }
        text.strip_prefix("host:")
            .and_then(|name| StepStage::BETWEEN_FORWARDS.into_iter().find(|stage| stage.name() == name))
            .map(Stage::Host)
            .ok_or_else(|| NameError::Stage { text: text.to_owned() })
    }
}

impl From<Stage> for String {
    fn from(stage: Stage) -> String {
        stage.to_string()
    }
}

impl TryFrom<String> for Stage {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

/// A stage or drafter name that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text names no stage.
    #[error(
        "unknown stage `{text}`: expected `verify`, `verify_walk`, `verify_tail:NAME`, `draft:NAME`, \
         `draft_head:NAME`, `first_growth:NAME`, `next_growth:NAME`, `verify_grown:NAME`, `read`, `resident`, `ends` \
         or `host:` with predict, grow, decide, prune, mask, accept or commit"
    )]
    Stage {
        /// The text found.
        text: String,
    },
    /// The text is no drafter name.
    #[error("bad drafter name `{name}`: expected lowercase letters, digits and `_`")]
    Drafter {
        /// The text found.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_survive_their_text_form() {
        let name = || DrafterName::new("layer_skip").unwrap();
        let mut stages = Stage::OF_MODEL.to_vec();
        stages.extend([
            Stage::VerifyTail(name()),
            Stage::Draft(name()),
            Stage::DraftHead(name()),
            Stage::FirstGrowth(name()),
            Stage::NextGrowth(name()),
            Stage::VerifyGrown(name()),
        ]);
        stages.extend(StepStage::BETWEEN_FORWARDS.map(Stage::Host));
        for stage in stages {
            assert_eq!(stage.to_string().parse(), Ok(stage));
        }
        assert_eq!(Stage::Draft(DrafterName::new("layer_skip").unwrap()).to_string(), "draft:layer_skip");
        assert_eq!(Stage::Host(StepStage::Grow).to_string(), "host:grow");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "Verify", "verify:", "draft:", "draft:a b", "draft:X", "host:", "host:learn", "draft"]
        {
            assert!(text.parse::<Stage>().is_err(), "{text}");
        }
    }
}
