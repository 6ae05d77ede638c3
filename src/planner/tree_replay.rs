//! Replaying recorded steps with smaller Equal-Growth Trees: acceptance of every shape off one trace, without models.
//!
//! A trace holds the tree of the largest shape and the candidates of every node it expanded, at every place of the recorded
//! answers. A smaller tree is grown from those candidates by the same [`Frontier`], pruned by value as [`crate::tree::select`]
//! does, and walked along the tokens the verifier emitted. So every shape takes its own steps along the answers: the next one stands
//! behind the tokens that the last one emitted. A node that the smaller tree forwards but the recorded one never did has no candidates;
//! a shape that needs too many such nodes is refused.
use std::collections::BTreeMap;

use ygg_profiler::{Candidate, DrafterName, StepTrace, Trace};

use super::{JudgedNode, SearchError, Tally};
use crate::tree::{Frontier, NodeId, Source, TokenTree};
use crate::{
    plan::{Calibration, RowChoice},
    policy::{NodeOutcome, RowScratch, node_outcomes},
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

#[derive(Debug, Clone, Default)]
struct DepthCounts {
    forwarded: u64,
    missing: u64,
    outcomes: Vec<Outcome>,
}

/// What steps of one depth and choice of rows gave.
#[derive(Debug, Clone)]
struct Outcome {
    choice: RowChoice,
    tally: Tally<u32>,
    place: StepPlace,
}

/// Where a shape stands in the recorded answers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepPlace {
    prompt: usize,
    /// The committed tokens behind which its next step stands.
    context: u64,
}

impl StepPlace {
    /// Whether the shape takes a step at this place of a recorded answer, which comes behind the places asked for before.
    pub(super) fn is_at(&mut self, prompt: usize, context: u32) -> bool {
        if self.prompt != prompt {
            *self = Self { prompt, context: 0 };
        }
        u64::from(context) >= self.context
    }

    /// Takes a step that accepted `length` drafted tokens.
    pub(super) fn step(&mut self, context: u32, length: usize) {
        self.context = u64::from(context) + length as u64 + 1;
    }
}

impl TreeReplay {
    /// Replays the answers of `traces`, all of one drafter, with `draft_width` nodes per growth, at every depth d the traces
    /// have and verifying as many rows as each of `choices[d - 1]` says, none of which is as wide as another. Nodes are
    /// worth what `calibration` says, else the drafter's probability of their path.
    ///
    /// # Panics
    /// If there is no trace, `draft_width` is 0 or above a trace's `top_k`, which would starve the first growth, or a depth
    /// has no entry in `choices`.
    pub fn new(
        traces: &[&Trace],
        draft_width: u32,
        choices: &[Vec<RowChoice>],
        calibration: Option<&Calibration>,
    ) -> Self {
        let drafter = traces.first().expect("a replay has a trace").drafter.clone();
        let top_k = traces.iter().map(|t| t.top_k).min().unwrap_or(0);
        assert!((1..=top_k).contains(&draft_width), "draft width {draft_width} is outside 1..={top_k}");
        let depth = traces.iter().map(|t| t.depth).min().unwrap_or(0);
        let outcome = |choice: &RowChoice| Outcome {
            choice: choice.clone(),
            tally: Tally::default(),
            place: StepPlace::default(),
        };
        let depths = choices[..depth as usize].iter().map(|choices| DepthCounts {
            outcomes: choices.iter().map(outcome).collect(),
            ..Default::default()
        });
        let mut replay = TreeReplay { drafter, draft_width, depths: depths.collect() };
        let mut growth = Growth::new(depth as usize, draft_width as usize, top_k as usize);
        for (prompt, steps) in recorded_prompts(traces) {
            for step in steps {
                growth.grow(step, calibration);
                replay.count(&mut growth, prompt, step);
            }
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
        let missing = counts.missing as f64 / counts.forwarded.max(1) as f64;
        if missing > MOST_MISSING {
            return Err(SearchError::IncompleteTrace {
                drafter: self.drafter.clone(),
                depth,
                draft_width: self.draft_width,
                missing,
                most: MOST_MISSING,
            });
        }
        let found = counts.outcomes.iter().find(|outcome| outcome.choice.widest() == verify_width);
        Ok(&found.expect("the verify width was replayed").tally)
    }

    fn count(&mut self, growth: &mut Growth, prompt: usize, step: &StepTrace) {
        growth.walk(&step.verified);
        for (depth, counts) in (1..).zip(&mut self.depths) {
            let forwarded = &growth.known[..growth.sizes[depth - 1]];
            counts.forwarded += forwarded.len() as u64;
            counts.missing += forwarded.iter().filter(|known| !**known).count() as u64;
            let most = if growth.is_cut { step.verified.len() } else { usize::MAX };
            growth.place_path(depth);
            let values = &growth.values[..growth.sizes[depth]];
            for Outcome { choice, tally, place } in &mut counts.outcomes {
                if !place.is_at(prompt, step.context) {
                    continue;
                }
                let rows = choice.rows_of(values, &mut growth.scratch);
                let verified = growth.places.iter().take_while(|place| **place < rows as usize).count();
                tally.record(prompt, verified, most, rows);
                place.step(step.context, verified);
            }
        }
    }
}

/// The steps of every prompt of `traces`, with the place of the prompt among all.
pub(super) fn recorded_prompts<'t>(traces: &[&'t Trace]) -> impl Iterator<Item = (usize, &'t [StepTrace])> {
    traces.iter().flat_map(|trace| &trace.prompts).map(|prompt| &prompt.steps[..]).enumerate()
}

/// The nodes of all trees of `traces` with `draft_width` nodes per growth whose outcome the traces tell.
///
/// # Panics
/// As [`TreeReplay::new`].
pub fn judge_trees(traces: &[&Trace], draft_width: u32) -> Vec<JudgedNode> {
    let mut judged = Vec::new();
    let depth = traces.iter().map(|trace| trace.depth).max().unwrap_or(0) as usize;
    let top_k = traces.iter().map(|trace| trace.top_k).max().unwrap_or(0) as usize;
    let mut growth = Growth::new(depth, draft_width as usize, top_k);
    for (prompt, steps) in recorded_prompts(traces) {
        for step in steps {
            growth.grow(step, None);
            growth.walk(&step.verified);
            judge(&growth.tree, prompt, &step.verified, &mut judged);
        }
    }
    judged
}

/// Adds the nodes of a tree whose outcome `verified`, the verifier's own tokens behind the root, tells: all but those below its
/// last token.
pub(super) fn judge(tree: &TokenTree, prompt: usize, verified: &[u32], judged: &mut Vec<JudgedNode>) {
    let mut outcomes = Vec::with_capacity(tree.len());
    node_outcomes(tree, verified, &mut outcomes);
    for (node, outcome) in tree.nodes().zip(outcomes).skip(1) {
        let accepted = match outcome {
            NodeOutcome::Accepted => true,
            NodeOutcome::Rejected => false,
            NodeOutcome::Unknown => continue,
        };
        judged.push(JudgedNode { prompt, score: tree.value(node), depth: tree.depth(node), accepted });
    }
}

/// One step's tree at the full depth; the trees of smaller depths are its prefixes.
pub(super) struct Growth {
    depth: usize,
    width: usize,
    top_k: usize,
    tree: TokenTree,
    frontier: Frontier,
    grown: Vec<NodeId>,
    /// Nodes after each growth; the root alone first.
    pub(super) sizes: Vec<usize>,
    /// The recorded node of every node, where there is one.
    recorded: Vec<Option<u32>>,
    /// Whether a node's candidates are recorded.
    known: Vec<bool>,
    /// A node's value, not above its ancestors'.
    pub(super) values: Vec<f32>,
    /// Whether the recorded step ended the request inside its tree, so that no bonus token follows.
    pub(super) is_cut: bool,
    /// Drafted nodes along the verifier's tokens, and how many nodes of the current prefix are worth more than each.
    path: Vec<NodeId>,
    pub(super) places: Vec<usize>,
    pub(super) scratch: RowScratch,
}

impl Growth {
    pub(super) fn new(depth: usize, width: usize, top_k: usize) -> Self {
        let nodes = depth * width + 1;
        Growth {
            depth,
            width,
            top_k,
            tree: TokenTree::with_capacity(nodes),
            frontier: Frontier::with_capacity(nodes, top_k),
            grown: Vec::with_capacity(width),
            sizes: Vec::with_capacity(depth + 1),
            recorded: Vec::with_capacity(nodes),
            known: Vec::with_capacity(nodes),
            values: Vec::with_capacity(nodes),
            is_cut: false,
            path: Vec::with_capacity(depth),
            places: Vec::with_capacity(depth),
            scratch: RowScratch::with_capacity(nodes),
        }
    }

    pub(super) fn grow(&mut self, step: &StepTrace, calibration: Option<&Calibration>) {
        let mut candidates: Vec<&[Candidate]> = vec![&[]; step.parents.len()];
        for expansion in &step.expanded {
            candidates[expansion.node as usize] = &expansion.candidates;
        }
        let edges = step.parents.iter().zip(&step.tokens).map(|(parent, token)| (*parent, *token));
        let children: BTreeMap<(u32, u32), u32> = edges.zip(0u32..).skip(1).collect();
        let end = step.verified.iter().try_fold(0, |node, token| children.get(&(node, *token)).copied());
        self.is_cut = end.is_some();

        self.tree.reset(step.tokens[0]);
        self.frontier.clear();
        self.sizes.clear();
        self.recorded.clear();
        self.known.clear();
        self.values.clear();
        self.enter(NodeId::ROOT, Some(0), 1.0);
        self.sizes.push(1);
        for growth in 0..self.depth {
            let forwarded = if growth == 0 { 0..1 } else { self.sizes[growth - 1]..self.sizes[growth] };
            for node in forwarded {
                let known = self.recorded[node].map_or(&[][..], |node| candidates[node as usize]);
                self.known[node] = !known.is_empty();
                let known = known.iter().take(self.top_k).map(|c| (c.token, c.log_prob));
                self.frontier.expand(&self.tree, NodeId::from_index(node), known);
            }
            self.frontier.grow(&mut self.tree, self.width, Source::NONE, &mut self.grown);
            for i in 0..self.grown.len() {
                let node = self.grown[i];
                let parent = self.tree.parent(node).expect("only the root has no parent").index();
                let recorded =
                    self.recorded[parent].and_then(|p| children.get(&(p, self.tree.token(node))).copied());
                let score = self.tree.value(node);
                let value = calibration.map_or(score, |c| c.probability(score, self.tree.depth(node)));
                self.enter(node, recorded, value.min(self.values[parent]));
            }
            self.sizes.push(self.tree.len());
        }
    }

    fn enter(&mut self, node: NodeId, recorded: Option<u32>, value: f32) {
        debug_assert_eq!(node.index(), self.recorded.len(), "nodes enter in the order of their ids");
        self.recorded.push(recorded);
        self.known.push(false);
        self.values.push(value);
    }

    /// Finds the drafted nodes along `verified` in the full tree.
    pub(super) fn walk(&mut self, verified: &[u32]) {
        self.path.clear();
        self.places.clear();
        let mut at = NodeId::ROOT;
        for token in verified {
            let Some(child) = self.tree.child(at, *token) else { break };
            self.path.push(child);
            at = child;
        }
    }

    /// Finds the places by value, 0 being the root's, of the path's nodes in the tree after `depth` growths; rising along
    /// the path. To be called with depths 1, 2, ... in turn.
    pub(super) fn place_path(&mut self, depth: usize) {
        let (before, now) = (self.sizes[depth - 1], self.sizes[depth]);
        for (node, place) in self.path.iter().zip(&mut self.places) {
            let value = self.values[node.index()];
            *place += self.values[before..now].iter().filter(|other| **other > value).count();
        }
        let added = self.path[self.places.len()..].iter().take_while(|node| node.index() < now).count();
        for node in &self.path[self.places.len()..][..added] {
            let value = self.values[node.index()];
            let earlier = self.values[..node.index()].iter().filter(|other| **other >= value).count();
            let later = self.values[node.index() + 1..now].iter().filter(|other| **other > value).count();
            self.places.push(earlier + later);
        }
    }
}
