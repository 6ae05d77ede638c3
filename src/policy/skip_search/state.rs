//! `SkipState`: what the search for a skip set knows, and keeps over requests and runs.

use serde::{Deserialize, Serialize};
use ygg_profiler::Random;

use crate::plan::GroupSet;

use super::level::Level;

/// A set that was tried, and the share of tokens that it reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriedSet {
    /// The groups left out.
    pub set: GroupSet,
    /// The share of the last tokens that a forward without them says too.
    pub matchness: f64,
}

/// Whether sets are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// Sets are tried: SWIFT's optimisation phase.
    Searching {
        /// Since the phase began.
        tries: u32,
        /// Since the best set changed, or the phase began.
        without_progress: u32,
    },
    /// The best set serves until drafts are accepted less often.
    Settled,
}

/// What the search knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkipState {
    /// Groups of the model.
    pub(super) groups: u32,
    /// The set that drafts are made with.
    pub(super) best: TriedSet,
    /// Whether the matchness of the best set was measured since the phase began.
    pub(super) is_scored: bool,
    pub(super) phase: Phase,
    /// Sets tried lately, in no order.
    pub(super) points: Vec<TriedSet>,
    /// Which of the points the next one replaces, if there is no room.
    pub(super) oldest: u32,
    pub(super) level: Level,
    /// State of the generator of choices.
    pub(super) random: Random,
    /// Tries in all.
    pub(super) tries: u64,
    /// How often the best set changed.
    pub(super) changes: u64,
    /// How often the search began again.
    pub(super) reopened: u64,
}

impl SkipState {
    /// Most points kept.
    pub const MOST_POINTS: usize = 128;

    /// More than any search counts, and far from where counts would overflow.
    const MOST_COUNTED: u64 = 1 << 31;

    pub(super) fn new(groups: u32, start: GroupSet, seed: u64) -> Self {
        Self {
            groups,
            best: TriedSet { set: start, matchness: 0.0 },
            is_scored: false,
            phase: Phase::Searching { tries: 0, without_progress: 0 },
            points: Vec::with_capacity(Self::MOST_POINTS),
            oldest: 0,
            level: Level::default(),
            random: Random::new(seed),
            tries: 0,
            changes: 0,
            reopened: 0,
        }
    }

    /// The set that drafts are made with.
    pub fn best(&self) -> &GroupSet {
        &self.best.set
    }

    /// The sets tried lately, in the order of tries until there are [`MOST_POINTS`](Self::MOST_POINTS).
    pub fn points(&self) -> &[TriedSet] {
        &self.points
    }

    /// What is wrong with it, if something is.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let Self {
            groups,
            best,
            is_scored: _,
            phase,
            points,
            oldest,
            level,
            random: _,
            tries,
            changes,
            reopened,
        } = self;
        let lawful = |tried: &TriedSet| {
            let inner = tried.set.iter().all(|group| group < *groups);
            inner && (0.0..=1.0).contains(&tried.matchness)
        };
        if *groups > GroupSet::MOST_GROUPS {
            return Some("more groups than any model has");
        }
        if !points.iter().chain([best]).all(lawful) {
            return Some("a set with groups that the model has not, or a matchness that is no share");
        }
        if points.len() > Self::MOST_POINTS || *oldest as usize >= Self::MOST_POINTS {
            return Some("more points than are kept");
        }
        let in_phase = match *phase {
            Phase::Searching { tries, without_progress } => [tries.into(), without_progress.into()],
            Phase::Settled => [0; 2],
        };
        if in_phase.iter().chain([tries, changes, reopened]).any(|count| *count > Self::MOST_COUNTED) {
            return Some("more tries than any search makes");
        }
        (!level.is_sound()).then_some("a running acceptance that is no share")
    }
}
