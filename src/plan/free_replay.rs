//! Replaying drafters that need no model: the drafter itself runs over recorded requests.
use std::collections::BTreeMap;

use ygg_profiler::{DrafterName, LatencyTable, TableError, TokenTrace};

use super::{
    AcceptedLengths,
    objective::{Shape, StageTime, free_step},
};
use crate::tree::{NodeId, TokenTree};

/// A drafter that is a pure function of the committed tokens.
pub trait ReplayDrafter {
    /// Adds a proposal to `tree`, whose root carries the last token of `history`.
    fn propose(&mut self, history: &[u32], limits: &ProposalLimits, tree: &mut TokenTree);
}

/// How large a proposal may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalLimits {
    /// Tokens along a path, Dd.
    pub depth: u32,
    /// Branches, Wd: as the drafter understands them.
    pub width: u32,
    /// Nodes in the tree, the root among them, Wv.
    pub nodes: u32,
}

/// What a shape gave over the recorded requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeReplay {
    accepted: AcceptedLengths,
    /// Steps by the width they ran at.
    steps_by_width: BTreeMap<u32, u64>,
}

impl FreeReplay {
    /// Replays `traces` step by step: propose, accept the longest path the recorded output follows, emit one more token.
    ///
    /// The first output token comes from prefill and is the first root. A step runs at the smallest of `verify_widths`
    /// that holds its proposal; no proposal runs at width 1. The end of a recorded output shortens no proposal: most
    /// outputs end where the recording was stopped.
    ///
    /// # Panics
    /// If `verify_widths` (ascending) lacks 1 or the shape's verify width, or the drafter exceeds the limits.
    pub fn new(
        traces: &[TokenTrace],
        drafter: &mut dyn ReplayDrafter,
        shape: &Shape,
        verify_widths: &[u32],
    ) -> Self {
        let limits =
            ProposalLimits { depth: shape.depth, width: shape.draft_width, nodes: shape.verify_width };
        let mut tree = TokenTree::with_capacity(shape.verify_width as usize);
        let mut replay = FreeReplay::default();
        let mut history = Vec::new();
        for TokenTrace { kind: _, prompt, output } in traces {
            history.clear();
            history.extend_from_slice(prompt);
            history.extend(output.first());
            let mut emitted = 1;
            while emitted < output.len() {
                let rest = &output[emitted..];
                tree.reset(output[emitted - 1]);
                drafter.propose(&history, &limits, &mut tree);
                let deepest = tree.nodes().map(|n| tree.depth(n)).max().unwrap_or(0);
                assert!(deepest <= limits.depth, "a proposal of depth {deepest} exceeds {limits:?}");

                let accepted = accepted_length(&tree, rest);
                let tokens = (accepted + 1).min(rest.len());
                let width = verify_widths
                    .iter()
                    .find(|w| **w as usize >= tree.len())
                    .expect("the planned widths hold every proposal");
                replay.accepted.record(accepted, rest.len());
                *replay.steps_by_width.entry(*width).or_default() += 1;
                history.extend_from_slice(&rest[..tokens]);
                emitted += tokens;
            }
        }
        replay
    }

    /// Steps replayed.
    pub fn steps(&self) -> u64 {
        self.accepted.steps()
    }

    /// What the steps accepted and emitted.
    pub fn accepted(&self) -> &AcceptedLengths {
        &self.accepted
    }

    /// Steps by the width they ran at.
    pub fn steps_by_width(&self) -> &BTreeMap<u32, u64> {
        &self.steps_by_width
    }

    /// The stages of the mean step: every width weighted by how often it ran.
    ///
    /// # Errors
    /// [`TableError::Unmeasured`] if a stage lacks a width.
    pub fn mean_step(
        &self,
        table: &LatencyTable,
        drafter: &DrafterName,
        context: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        let mut mean: Vec<StageTime> = Vec::new();
        for (width, steps) in &self.steps_by_width {
            let share = *steps as f64 / self.steps() as f64;
            let stages = free_step(table, drafter, *width, context)?;
            if mean.is_empty() {
                mean = stages.iter().map(|s| StageTime { stage: s.stage.clone(), us: 0.0 }).collect();
            }
            for (mean, stage) in mean.iter_mut().zip(&stages) {
                mean.us += share * stage.us;
            }
        }
        Ok(mean)
    }
}

fn accepted_length(tree: &TokenTree, rest: &[u32]) -> usize {
    let mut at = NodeId::ROOT;
    rest.iter()
        .map_while(|token| {
            at = tree.child(at, *token)?;
            Some(())
        })
        .count()
}
