//! Schedules: in which order the stages of consecutive steps run.
use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterName, Stage, named};

use super::{DrafterKind, PlanError, RowRule, check::ensure};

named! {
    /// When the head of a step is drafted (the drafter's forward of the root, from which the tree grows), and which
    /// later parts of the step the device runs without the host.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Schedule {
        /// At the start of the step, by a forward of one row. The host grows, prunes, walks and commits.
        Plain = "plain",
        /// In the step before, right after its verification: a forward with a row for the verifier's token at each
        /// verified node. One of these tokens is the next root; the heads of the others are discarded (Yggdrasil,
        /// NeurIPS 2025, <https://arxiv.org/abs/2512.23858>, ahead-of-time head draft). For drafters that run a model
        /// in the verifier's cache, and for drafter models of tokens, whose own cache is extended during the
        /// verification (ahead-of-time tail draft).
        HeadAhead = "head_ahead",
        /// At the start of the step, as the first part of one launch: the device runs all forwards of the draft phase
        /// and the growths between them, and the host waits once. For drafters that run a model and whose trees grow
        /// equally, on devices that offer it.
        OneLaunch = "one_launch",
        /// At the start of the step, as in [`Plain`](Self::Plain). One launch then runs the verifier's forward, walks
        /// the tree and moves the keys and values of accepted rows; the host waits once. For requests without filters,
        /// drafters that do not learn from verified rows, and devices that offer it.
        DeviceWalk = "device_walk",
        /// Two launches: drafted as in [`OneLaunch`](Self::OneLaunch), verified as in [`DeviceWalk`](Self::DeviceWalk).
        TwoLaunches = "two_launches",
        /// As [`TwoLaunches`](Self::TwoLaunches), and the device also prunes the tree between the two, so that the host
        /// waits once per step. Every step verifies as many rows as its shape says.
        WholeStep = "whole_step",
    }
}

impl Schedule {
    /// Whether heads are drafted in the step before theirs.
    pub const fn drafts_ahead(self) -> bool {
        match self {
            Schedule::HeadAhead => true,
            Schedule::Plain
            | Schedule::OneLaunch
            | Schedule::DeviceWalk
            | Schedule::TwoLaunches
            | Schedule::WholeStep => false,
        }
    }

    /// Whether the device runs draft phases by itself: the host has no part between the forwards of one, and cannot
    /// choose what is forwarded next. It knows probabilities and noise: under filters, the host ranks.
    pub const fn drafts_in_one_launch(self) -> bool {
        match self {
            Schedule::OneLaunch | Schedule::TwoLaunches | Schedule::WholeStep => true,
            Schedule::Plain | Schedule::HeadAhead | Schedule::DeviceWalk => false,
        }
    }

    /// Whether the device verifies by itself: it walks through the tree after the verifier's forward, and commits. It
    /// knows logits and noise: requests with filters, adjusted logits, log-probabilities or a grammar are walked by the
    /// host, with the same tokens.
    pub const fn walks_on_device(self) -> bool {
        match self {
            Schedule::DeviceWalk | Schedule::TwoLaunches | Schedule::WholeStep => true,
            Schedule::Plain | Schedule::HeadAhead | Schedule::OneLaunch => false,
        }
    }

    /// Whether the device chooses by itself which nodes are verified: the best, as many as the shape says.
    pub const fn prunes_on_device(self) -> bool {
        match self {
            Schedule::WholeStep => true,
            Schedule::Plain
            | Schedule::HeadAhead
            | Schedule::OneLaunch
            | Schedule::DeviceWalk
            | Schedule::TwoLaunches => false,
        }
    }

    /// What verifications of a drafter's trees are measured as.
    pub fn verification(self, drafter: &DrafterName) -> Stage {
        match self {
            Schedule::WholeStep => Stage::VerifyGrown(drafter.clone()),
            Schedule::DeviceWalk | Schedule::TwoLaunches => Stage::VerifyWalk,
            Schedule::Plain | Schedule::HeadAhead | Schedule::OneLaunch => Stage::Verify,
        }
    }

    /// Whether its steps can choose their rows by a rule.
    pub fn admits_rows(self, rule: RowRule) -> bool {
        !self.prunes_on_device() || rule == RowRule::Widest
    }

    /// The schedule of a name.
    ///
    /// # Errors
    /// The names there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Schedule::ALL.into_iter().find(|schedule| schedule.name() == name);
        found.ok_or_else(|| {
            let names = Schedule::ALL.map(Schedule::name);
            let (last, others) = names.split_last().expect("there are schedules");
            format!("{} or {last}", others.join(", "))
        })
    }

    /// Whether it is possible with a drafter. Heads and growths need a drafter all of whose nodes a model grows, by a
    /// forward for every growth; after a walk on the
    /// device no verified rows are left for a drafter that learns.
    pub fn suits(self, drafter: &DrafterKind) -> bool {
        match self {
            Schedule::Plain => true,
            Schedule::HeadAhead | Schedule::OneLaunch | Schedule::TwoLaunches | Schedule::WholeStep => {
                drafter.grows_by_forwards()
            }
            Schedule::DeviceWalk => !drafter.learns() && *drafter != DrafterKind::None,
        }
    }

    /// Checks that the schedule is possible with a drafter.
    pub(super) fn validate(self, drafter: &DrafterKind) -> Result<(), PlanError> {
        let found = || format!("{self} for drafter {}", drafter.name());
        ensure(self.suits(drafter), "schedule", "a schedule that this drafter supports, such as plain", found)
    }
}
