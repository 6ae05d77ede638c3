//! Replaying recorded steps with smaller Equal-Growth Trees: acceptance of every shape off one trace, without models.
//!
//! A trace holds the tree of the largest shape and the candidates of every node it expanded, at every place of the
//! recorded answers. A smaller tree is grown from those candidates ([`GrownTrees`]), pruned by value as
//! [`crate::tree::select`] does, and walked along the tokens the verifier emitted. So every shape takes its own steps
//! along the answers: the next one stands after the tokens that the last one emitted. A node that the smaller tree
//! forwards but the recorded one never did has no candidates; a shape that needs too many such nodes is refused.
use ygg_profiler::{DrafterName, Trace};

use crate::planner::{
    JudgedNode, SearchError, Tally,
    replay::grown_trees::{GrownTrees, ValuedStep, ValuedTrees, is_accepted},
};
use crate::tree::TokenTree;
use crate::{
    plan::{Calibration, RowChoice},
    policy::{RowScratch, node_outcomes},
};

/// The largest share of forwarded nodes that a replay may lack.
pub const MOST_MISSING: f64 = 0.01;

/// The acceptance of every shape with one draft width.
#[derive(Debug, Clone)]
pub struct TreeReplay {
    drafter: DrafterName,
    draft_width: u32,
    /// By depth, from 1 on.
    depths: Vec<DepthCounts>,
}

#[derive(Debug, Clone)]
struct DepthCounts {
    /// Share of forwarded nodes without candidates.
    missing: f64,
    outcomes: Vec<Outcome>,
}

/// What steps of one depth and choice of rows gave.
#[derive(Debug, Clone)]
struct Outcome {
    /// The widest of the choice.
    verify_width: u32,
    tally: Tally<u32>,
    place: StepPlace,
}

/// Where a shape stands in the recorded answers.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::planner) struct StepPlace {
    prompt: usize,
    /// The committed tokens after which its next step stands.
    context: u64,
}

impl StepPlace {
    /// Whether the shape takes a step at this place of a recorded answer, which comes after the places asked for
    /// before.
    pub(in crate::planner) fn is_at(&mut self, prompt: usize, context: u32) -> bool {
        if self.prompt != prompt {
            *self = Self { prompt, context: 0 };
        }
        u64::from(context) >= self.context
    }

    /// Takes a step that accepted `length` drafted tokens.
    pub(in crate::planner) fn step(&mut self, context: u32, length: usize) {
        self.context = u64::from(context) + length as u64 + 1;
    }
}

impl TreeReplay {
    /// Replays the answers of `traces`, all of one drafter, with `draft_width` nodes per growth, at every depth d the
    /// traces have and verifying as many rows as each of `choices[d - 1]` says, none of which is as wide as another.
    /// Nodes are worth what `calibration` says, else the drafter's probability of their path.
    ///
    /// # Panics
    /// If there is no trace, `draft_width` is 0 or above a trace's `top_k`, which would starve the first growth, or a
    /// depth has no entry in `choices`.
    pub fn new(
        traces: &[&Trace],
        draft_width: u32,
        choices: &[Vec<RowChoice>],
        calibration: Option<&Calibration>,
    ) -> Self {
        Self::of(&GrownTrees::new(traces, draft_width).valued(calibration), choices)
    }

    /// The same of trees that are grown and valued.
    pub(in crate::planner) fn of(trees: &ValuedTrees<'_>, choices: &[Vec<RowChoice>]) -> Self {
        let GrownTrees { drafter, draft_width, .. } = trees.grown;
        let outcome = |choice: &RowChoice| Outcome {
            verify_width: choice.widest(),
            tally: Tally::default(),
            place: StepPlace::default(),
        };
        let missing = trees.grown.missing();
        let choices = &choices[..missing.len()];
        let depths = missing.into_iter().zip(choices).map(|(missing, choices)| DepthCounts {
            missing,
            outcomes: choices.iter().map(outcome).collect(),
        });
        let mut replay =
            TreeReplay { drafter: drafter.clone(), draft_width: *draft_width, depths: depths.collect() };
        let mut scratch = RowScratch::with_capacity(0);
        for step in &trees.steps {
            replay.count(step, choices, &mut scratch);
        }
        replay
    }

    /// What the steps of a shape accepted and emitted, by the width they ran at: all at Wv, unless steps choose.
    ///
    /// # Errors
    /// [`SearchError::IncompleteTrace`] if the shape needs too many nodes that the traces never expanded.
    ///
    /// # Panics
    /// If the depth or the verify width was not replayed.
    pub fn tally(&self, depth: u32, verify_width: u32) -> Result<&Tally<u32>, SearchError> {
        let counts = &self.depths[depth as usize - 1];
        if counts.missing > MOST_MISSING {
            return Err(SearchError::IncompleteTrace {
                drafter: self.drafter.clone(),
                depth,
                draft_width: self.draft_width,
                missing: counts.missing,
                most: MOST_MISSING,
            });
        }
        let found = counts.outcomes.iter().find(|outcome| outcome.verify_width == verify_width);
        Ok(&found.expect("the verify width was replayed").tally)
    }

    fn count(&mut self, step: &ValuedStep<'_>, choices: &[Vec<RowChoice>], scratch: &mut RowScratch) {
        let context = step.recorded.context;
        let trees = step.by_depth.iter().skip(1);
        for (tree, (counts, choices)) in trees.zip(self.depths.iter_mut().zip(choices)) {
            for (Outcome { tally, place, .. }, choice) in counts.outcomes.iter_mut().zip(choices) {
                if !place.is_at(step.prompt, context) {
                    continue;
                }
                let rows = choice.rows_expecting(&tree.expected, scratch);
                let accepted = tree.accepted(rows);
                tally.record(step.prompt, accepted, step.most, rows);
                place.step(context, accepted);
            }
        }
    }
}

/// The nodes of all trees of `traces` with `draft_width` nodes per growth whose outcome the traces tell.
///
/// # Panics
/// As [`TreeReplay::new`].
pub fn judge_trees(traces: &[&Trace], draft_width: u32) -> Vec<JudgedNode> {
    GrownTrees::new(traces, draft_width).judged()
}

/// Adds the nodes of a tree whose outcome `verified`, the verifier's own tokens after the root, tells: all but those
/// below its last token.
pub(in crate::planner) fn judge(
    tree: &TokenTree,
    prompt: usize,
    verified: &[u32],
    judged: &mut Vec<JudgedNode>,
) {
    let mut outcomes = Vec::with_capacity(tree.len());
    node_outcomes(tree, verified, &mut outcomes);
    for (node, outcome) in tree.nodes().zip(outcomes).skip(1) {
        let Some(accepted) = is_accepted(outcome) else { continue };
        judged.push(JudgedNode { prompt, score: tree.value(node), depth: tree.depth(node), accepted });
    }
}
