//! Schedules: in which order the stages of consecutive steps run.
use std::fmt;

use serde::{Deserialize, Serialize};

use super::PlanError;

/// When the head of a step is drafted (the forward of its root, from which its tree grows), and who runs what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// When the root is known: one row at the start of the step.
    Plain,
    /// In the step before, right after its verification: one row for what the verifier said at each verified node, since
    /// one of these tokens is the next root. All heads but that one are dropped (Yggdrasil, NeurIPS 2025,
    /// <https://arxiv.org/abs/2512.23858>, ahead-of-time head draft). For drafters that run a model in the verifier's cache.
    HeadAhead,
    /// When the root is known, as the first part of one launch: the device runs all forwards of the draft phase and the growths
    /// between them by itself, and the host waits once. For drafters that run a model whose trees grow equally, on devices that
    /// offer it.
    OneLaunch,
}

impl Schedule {
    /// All schedules; of equals the first is preferred.
    pub const ALL: [Schedule; 3] = [Schedule::Plain, Schedule::HeadAhead, Schedule::OneLaunch];

    /// The name in plans and fixes.
    pub const fn name(self) -> &'static str {
        match self {
            Schedule::Plain => "plain",
            Schedule::HeadAhead => "head_ahead",
            Schedule::OneLaunch => "one_launch",
        }
    }

    /// What it adds to the description of a shape: nothing, or words behind a comma.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Schedule::Plain => "",
            Schedule::HeadAhead => ", heads drafted ahead",
            Schedule::OneLaunch => ", drafted in one launch",
        }
    }

    /// Whether the host takes part between the forwards of a draft phase: it can then choose what is forwarded next.
    pub(super) const fn is_driven_by_the_host(self) -> bool {
        match self {
            Schedule::Plain | Schedule::HeadAhead => true,
            Schedule::OneLaunch => false,
        }
    }

    /// The schedule of a name.
    ///
    /// # Errors
    /// The names there are.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = Schedule::ALL.into_iter().find(|schedule| schedule.name() == name);
        found
            .ok_or_else(|| format!("{}, {} or {}", Schedule::Plain, Schedule::HeadAhead, Schedule::OneLaunch))
    }

    /// Checks that a drafter can keep this schedule.
    pub(super) fn validate(self, shares_a_model: bool) -> Result<(), PlanError> {
        let found = || format!("{self} for a drafter without a model, or with a cache of its own");
        super::contents::ensure(self == Schedule::Plain || shares_a_model, "schedule", "plain", found)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
