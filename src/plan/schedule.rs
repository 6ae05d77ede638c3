//! Schedules: in which order the stages of consecutive steps run.
use std::fmt;

use serde::{Deserialize, Serialize};

use super::PlanError;

/// When the head of a step is drafted: the forward of its root, from which its tree grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// When the root is known: one row at the start of the step.
    Plain,
    /// In the step before, right after its verification: one row for what the verifier said at each verified node, since
    /// one of these tokens is the next root. All heads but that one are dropped (Yggdrasil, NeurIPS 2025,
    /// <https://arxiv.org/abs/2512.23858>, ahead-of-time head draft). For drafters that run a model in the verifier's cache.
    HeadAhead,
}

impl Schedule {
    /// All schedules; of equals the first is preferred.
    pub const ALL: [Schedule; 2] = [Schedule::Plain, Schedule::HeadAhead];

    /// The name in plans and fixes.
    pub const fn name(self) -> &'static str {
        match self {
            Schedule::Plain => "plain",
            Schedule::HeadAhead => "head_ahead",
        }
    }

    /// The schedule of a name.
    ///
    /// # Errors
    /// The names there are.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = Schedule::ALL.into_iter().find(|schedule| schedule.name() == name);
        found.ok_or_else(|| format!("{} or {}", Schedule::Plain, Schedule::HeadAhead))
    }

    /// Checks that a drafter can keep this schedule.
    pub(super) fn validate(self, drafts_ahead: bool) -> Result<(), PlanError> {
        let found = || format!("{self} for a drafter that cannot draft heads ahead");
        super::contents::ensure(self == Schedule::Plain || drafts_ahead, "schedule", "plain", found)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
