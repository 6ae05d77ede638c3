//! What a request's decoding did and how long each stage took.

use std::time::{Duration, Instant};

use crate::{
    plan::{DrafterId, StepStage},
    policy::SkipCounts,
    prefix::Served,
    tree::{NodeId, TokenTree},
};

use super::{GuardCounts, Walk};

/// Depths counted one by one; deeper acceptance is counted at the last.
const DEPTHS: usize = 64;

/// Drafted nodes of one proposer; a node that several proposed counts for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProposerCounts {
    /// Nodes that were verified.
    pub drafted: u64,
    /// Nodes that were accepted.
    pub accepted: u64,
}

/// Counters of one request.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Draft-verify-commit rounds.
    pub steps: u64,
    /// Tokens emitted by steps; the first token of a request comes from the prefill and is not among them.
    pub step_tokens: u64,
    /// Drafted nodes that were verified, roots not counted.
    pub drafted: u64,
    /// Drafted nodes that were accepted.
    pub accepted: u64,
    /// Tokens that the request's grammar left no choice about, emitted without being drafted or drawn.
    pub forced: u64,
    /// Masks after accepted nodes that were computed while the forward ran.
    pub masks_ahead: u64,
    /// Proposals whose head was drafted in the step before.
    pub heads_ahead: u64,
    /// Steps of a mixture that did without its model, since a copy was nearly certain.
    pub models_left_out: u64,
    /// Steps in which a drafter's model read text by a forward of its own, since that with the root did not hold it.
    pub texts_read: u64,
    /// Steps whose tree the device walked through by itself.
    pub walked_by_device: u64,
    /// What the guard did; nothing without one.
    pub guard: GuardCounts,
    /// What the drafter's search for a skip set did, if it searches.
    pub skip_search: Option<SkipCounts>,
    /// Tokens of the prompt whose keys and values were there already, or were kept.
    pub reused: u64,
    /// Those of them that a store of prefixes served.
    pub served: Served,
    /// Tokens of the text that a store served to the drafter's own cache.
    pub served_to_drafter: Served,
    /// Time of the prefill.
    pub prefill: Duration,
    stage_time: [Duration; StepStage::ALL.len()],
    by_proposer: [ProposerCounts; DrafterId::ALL.len()],
    /// Sum over the steps of the tokens per second of each.
    step_rates: f64,
    offered_by_depth: [u64; DEPTHS],
    accepted_by_depth: [u64; DEPTHS],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            steps: 0,
            step_tokens: 0,
            drafted: 0,
            accepted: 0,
            forced: 0,
            masks_ahead: 0,
            heads_ahead: 0,
            models_left_out: 0,
            texts_read: 0,
            walked_by_device: 0,
            guard: GuardCounts::default(),
            skip_search: None,
            reused: 0,
            served: Served::default(),
            served_to_drafter: Served::default(),
            prefill: Duration::ZERO,
            stage_time: [Duration::ZERO; StepStage::ALL.len()],
            by_proposer: [ProposerCounts::default(); DrafterId::ALL.len()],
            step_rates: 0.0,
            offered_by_depth: [0; DEPTHS],
            accepted_by_depth: [0; DEPTHS],
        }
    }
}

impl Stats {
    /// Average accepted length: tokens per step, the bonus token included. `None` before the first step.
    pub fn aal(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.step_tokens as f64 / self.steps as f64)
    }

    /// Acceptance rate: accepted nodes of those that were verified. `None` if there were none.
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }

    /// Macro throughput: the mean over the steps of their tokens per second (SPECTRA). `None` before the first step.
    pub fn macro_tokens_per_s(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.step_rates / self.steps as f64)
    }

    /// What became of the nodes of every proposer.
    pub fn by_proposer(&self) -> impl Iterator<Item = (DrafterId, ProposerCounts)> {
        DrafterId::ALL.into_iter().zip(self.by_proposer)
    }

    /// Time spent in a stage over all steps.
    pub fn stage_time(&self, stage: StepStage) -> Duration {
        self.stage_time[stage as usize]
    }

    /// Time of all steps.
    pub fn step_time(&self) -> Duration {
        self.stage_time.iter().sum()
    }

    /// For depths 1, 2, ...: among the steps that offered a node of this depth, the share that accepted one.
    pub fn acceptance_by_depth(&self) -> Vec<f64> {
        let offered = self.offered_by_depth.iter().take_while(|o| **o > 0);
        offered.zip(&self.accepted_by_depth).map(|(o, a)| *a as f64 / *o as f64).collect()
    }

    /// For depths 1, 2, ...: the steps that offered a node of this depth, and those of them that accepted one.
    pub fn counts_by_depth(&self) -> Vec<(u64, u64)> {
        let offered = self.offered_by_depth.iter().take_while(|offered| **offered > 0);
        offered.copied().zip(self.accepted_by_depth).collect()
    }

    /// Steps that verified a drafted node, and those of them that accepted one.
    pub(super) fn at_first_depth(&self) -> (u64, u64) {
        (self.offered_by_depth[0], self.accepted_by_depth[0])
    }

    pub(super) fn add_time(&mut self, stage: StepStage, time: Duration) {
        self.stage_time[stage as usize] += time;
    }

    /// Counts a step that verified `rows` of `tree` and went where `walk` says.
    pub(super) fn count_step(&mut self, tree: &TokenTree, rows: &[NodeId], walk: &Walk) {
        self.steps += 1;
        self.step_tokens += walk.emitted.len() as u64;
        self.drafted += rows.len() as u64 - 1;
        self.accepted += walk.accepted as u64;
        let deepest = rows.iter().map(|node| tree.depth(*node) as usize).max().unwrap_or(0);
        self.count_depths(deepest, walk.accepted);
        for node in rows.iter().filter(|node| **node != NodeId::ROOT) {
            let (sources, is_accepted) = (tree.sources(*node), walk.path.binary_search(node).is_ok());
            for (counts, proposer) in self.by_proposer.iter_mut().zip(DrafterId::ALL) {
                if sources.contains(proposer.source()) {
                    counts.drafted += 1;
                    counts.accepted += u64::from(is_accepted);
                }
            }
        }
    }

    /// Counts a step of `forced` tokens, and perhaps one that was drawn after them.
    pub(super) fn count_forced(&mut self, forced: usize, emitted: usize) {
        self.steps += 1;
        self.step_tokens += emitted as u64;
        self.forced += forced as u64;
    }

    pub(super) fn count_depths(&mut self, offered: usize, accepted: usize) {
        for depth in 0..offered.min(DEPTHS) {
            self.offered_by_depth[depth] += 1;
        }
        for depth in 0..accepted.min(DEPTHS) {
            self.accepted_by_depth[depth] += 1;
        }
    }

    /// Counts the rate of a step that took `time`.
    pub(super) fn count_rate(&mut self, tokens: usize, time: Duration) {
        self.step_rates += tokens as f64 / time.max(Duration::from_nanos(1)).as_secs_f64();
    }
}

/// A stopwatch that hands out the time since it was last asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap(Instant);

impl Lap {
    #[allow(clippy::disallowed_methods, reason = "stage times are measured here and decide nothing")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    #[allow(clippy::disallowed_methods, reason = "stage times are measured here and decide nothing")]
    pub(super) fn next(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}
