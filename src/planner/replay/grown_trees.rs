//! Recorded steps as trees of one draft width, grown once for all the ways in which their rows may be chosen.
//!
//! A smaller tree than the recorded one is grown from the recorded candidates by the same [`Frontier`]. The tree of
//! every depth is a prefix of that of the full depth. Nodes are then valued, by the drafter or by a calibration, and
//! ordered by value: which of them a number of rows holds, and what they are expected to give, follows for every depth.
use ygg_profiler::{Candidate, DrafterName, Expansion, StepTrace, Trace};

use crate::planner::{
    JudgedNode,
    replay::recorded::{recorded_prompts, recorded_tree},
};
use crate::tree::{Frontier, NodeId, Source, TokenTree};
use crate::{
    plan::Calibration,
    policy::{NodeOutcome, node_outcomes},
};

/// The steps of `traces`, all of one drafter, with `draft_width` nodes per growth.
#[derive(Debug)]
pub(in crate::planner) struct GrownTrees<'t> {
    pub(in crate::planner) drafter: DrafterName,
    pub(in crate::planner) draft_width: u32,
    /// Growths of every tree.
    depth: usize,
    /// Whether what is missing may count as drafting nothing, since a bound from below will do.
    is_bound: bool,
    steps: Vec<GrownStep<'t>>,
}

/// One step's tree at the full depth.
#[derive(Debug)]
struct GrownStep<'t> {
    prompt: usize,
    recorded: &'t StepTrace,
    /// Whether the recorded step ended the request inside its tree, so that no bonus token follows.
    is_cut: bool,
    /// Nodes after each growth; the root alone first.
    sizes: Vec<usize>,
    nodes: Vec<GrownNode>,
    /// Drafted nodes along the verifier's tokens.
    path: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct GrownNode {
    parent: usize,
    token: u32,
    depth: u32,
    /// The drafter's probability of its path.
    score: f32,
    /// Whether its candidates are recorded; false for nodes that are not forwarded.
    is_known: bool,
    outcome: NodeOutcome,
}

/// The steps with values.
#[derive(Debug)]
pub(in crate::planner) struct ValuedTrees<'g> {
    pub(in crate::planner) grown: &'g GrownTrees<'g>,
    pub(in crate::planner) steps: Vec<ValuedStep<'g>>,
}

/// One step.
#[derive(Debug)]
pub(in crate::planner) struct ValuedStep<'g> {
    /// The place of its prompt among all.
    pub(in crate::planner) prompt: usize,
    pub(in crate::planner) recorded: &'g StepTrace,
    /// Most tokens that it emits.
    pub(in crate::planner) most: usize,
    /// What its tree is after each growth, the root alone first.
    pub(in crate::planner) by_depth: Vec<ValuedTree>,
}

/// A tree of one depth.
#[derive(Debug)]
pub(in crate::planner) struct ValuedTree {
    /// Tokens that its best w nodes are expected to give, `[nodes + 1]`.
    pub(in crate::planner) expected: Vec<f64>,
    /// Places by value, the root's being 0, of the nodes along the verifier's tokens; rising.
    places: Vec<usize>,
}

impl ValuedTree {
    /// Drafted tokens that are accepted among the best `rows` nodes.
    pub(in crate::planner) fn accepted(&self, rows: u32) -> usize {
        self.places.iter().take_while(|place| **place < rows as usize).count()
    }

    /// Its nodes.
    pub(in crate::planner) fn nodes(&self) -> u32 {
        u32::try_from(self.expected.len() - 1).unwrap_or(u32::MAX)
    }
}

impl<'t> GrownTrees<'t> {
    /// Grows the tree of every step, as deep as every trace is.
    ///
    /// # Panics
    /// If there is no trace, or `draft_width` is 0 or above a trace's `top_k`, which would starve the first growth.
    pub(in crate::planner) fn new(traces: &[&'t Trace], draft_width: u32) -> Self {
        let drafter = traces.first().expect("a replay has a trace").drafter.clone();
        let top_k = traces.iter().map(|t| t.top_k).min().unwrap_or(0);
        assert!((1..=top_k).contains(&draft_width), "draft width {draft_width} is outside 1..={top_k}");
        let depth = traces.iter().map(|t| t.depth).min().unwrap_or(0) as usize;
        let mut growth = Growth::new(depth, draft_width as usize, top_k as usize);
        let prompts = recorded_prompts(traces);
        let steps = prompts.flat_map(|(prompt, steps)| steps.iter().map(move |step| (prompt, step)));
        let steps = steps.map(|(prompt, step)| growth.grown(prompt, step)).collect();
        GrownTrees { drafter, draft_width, depth, is_bound: false, steps }
    }

    /// The same, if `is_bound` for a bound from below: nodes without recorded candidates draft nothing, however many
    /// they are.
    pub(in crate::planner) fn bounded_below(self, is_bound: bool) -> Self {
        Self { is_bound, ..self }
    }

    /// Of the nodes that trees of every depth forward, from 1 on, the share whose candidates were not recorded; none of
    /// a bound.
    pub(in crate::planner) fn missing(&self) -> Vec<f64> {
        if self.is_bound {
            return vec![0.0; self.depth];
        }
        let missing = |depth: usize| {
            let (mut forwarded, mut missing) = (0_u64, 0_u64);
            for GrownStep { sizes, nodes, .. } in &self.steps {
                let nodes = &nodes[..sizes[depth - 1]];
                forwarded += nodes.len() as u64;
                missing += nodes.iter().filter(|node| !node.is_known).count() as u64;
            }
            missing as f64 / forwarded.max(1) as f64
        };
        (1..=self.depth).map(missing).collect()
    }

    /// The place of the prompt of each step among all, and the committed tokens before it, by the order of the steps.
    pub(in crate::planner) fn places(&self) -> impl Iterator<Item = (usize, u32)> {
        self.steps.iter().map(|step| (step.prompt, step.recorded.context))
    }

    /// The root of a step.
    pub(in crate::planner) fn root(&self, step: usize) -> u32 {
        self.steps[step].recorded.tokens[0]
    }

    /// Fills `tree`, which has the root alone, with what so many growths of a step give.
    pub(in crate::planner) fn plant(&self, step: usize, growths: u32, tree: &mut TokenTree) {
        let GrownStep { sizes, nodes, .. } = &self.steps[step];
        let size = sizes[(growths as usize).min(sizes.len() - 1)];
        for GrownNode { parent, token, score, .. } in &nodes[1..size] {
            let _added = tree.insert(NodeId::from_index(*parent), *token, *score, 0, Source::NONE);
        }
    }

    /// The drafted nodes whose outcome the traces tell.
    pub(in crate::planner) fn judged(&self) -> Vec<JudgedNode> {
        let judged = |step: &GrownStep<'_>| {
            let prompt = step.prompt;
            let node = move |GrownNode { depth, score, outcome, .. }: &GrownNode| {
                Some(JudgedNode { prompt, score: *score, depth: *depth, accepted: is_accepted(*outcome)? })
            };
            step.nodes[1..].iter().filter_map(node).collect::<Vec<_>>()
        };
        self.steps.iter().flat_map(judged).collect()
    }

    /// The steps with nodes worth what `calibration` says, else the drafter's probability of their path.
    pub(in crate::planner) fn valued(&self, calibration: Option<&Calibration>) -> ValuedTrees<'_> {
        let mut values = Vec::new();
        let mut order = Vec::new();
        let mut steps = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            values.clear();
            for GrownNode { parent, depth, score, .. } in &step.nodes {
                let value = match (values.get(*parent), calibration) {
                    // Not above its ancestors'.
                    (Some(parent), None) => score.min(*parent),
                    (Some(parent), Some(c)) => c.probability(*score, *depth).min(*parent),
                    (None, _) => 1.0,
                };
                values.push(value);
            }
            order.clear();
            order.extend(0..values.len());
            order.sort_unstable_by(|a: &usize, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
            steps.push(ValuedStep {
                prompt: step.prompt,
                recorded: step.recorded,
                most: if step.is_cut { step.recorded.verified.len() } else { usize::MAX },
                by_depth: step.sizes.iter().map(|nodes| step.valued(*nodes, &values, &order)).collect(),
            });
        }
        ValuedTrees { grown: self, steps }
    }
}

impl GrownStep<'_> {
    /// The tree of its first `nodes` nodes, of which those of the whole are given best first.
    fn valued(&self, nodes: usize, values: &[f32], best_first: &[usize]) -> ValuedTree {
        let mut expected = Vec::with_capacity(nodes + 1);
        expected.push(0.0);
        let mut places = Vec::with_capacity(self.path.len());
        let mut sum = 0.0;
        for (place, node) in best_first.iter().filter(|node| **node < nodes).enumerate() {
            sum += f64::from(values[*node]);
            expected.push(sum);
            // No node comes before its parent.
            if self.path.get(places.len()) == Some(node) {
                places.push(place);
            }
        }
        ValuedTree { expected, places }
    }
}

/// Whether the verifier accepted a node, if its step tells.
pub(in crate::planner) fn is_accepted(outcome: NodeOutcome) -> Option<bool> {
    match outcome {
        NodeOutcome::Accepted => Some(true),
        NodeOutcome::Rejected => Some(false),
        NodeOutcome::Unknown => None,
    }
}

/// Grows one step's tree after another.
struct Growth<'t> {
    depth: usize,
    width: usize,
    top_k: usize,
    tree: TokenTree,
    frontier: Frontier,
    grown: Vec<NodeId>,
    /// The recorded node of every node, where there is one.
    recorded: Vec<Option<NodeId>>,
    /// The candidates of every recorded node.
    candidates: Vec<&'t [Candidate]>,
    outcomes: Vec<NodeOutcome>,
}

impl<'t> Growth<'t> {
    fn new(depth: usize, width: usize, top_k: usize) -> Self {
        let nodes = depth * width + 1;
        Growth {
            depth,
            width,
            top_k,
            tree: TokenTree::with_capacity(nodes),
            frontier: Frontier::with_capacity(nodes, top_k),
            grown: Vec::with_capacity(width),
            recorded: Vec::with_capacity(nodes),
            candidates: Vec::with_capacity(nodes),
            outcomes: Vec::with_capacity(nodes),
        }
    }

    fn grown(&mut self, prompt: usize, step: &'t StepTrace) -> GrownStep<'t> {
        let whole = recorded_tree(step);
        let sizes = self.grow(step, &whole);
        let verified = || step.verified.iter().copied();
        node_outcomes(&self.tree, &step.verified, &mut self.outcomes);
        let node = |node: NodeId| GrownNode {
            parent: self.tree.parent(node).map_or(usize::MAX, NodeId::index),
            token: self.tree.token(node),
            depth: self.tree.depth(node),
            score: self.tree.value(node),
            is_known: self.known(node.index()).is_some_and(|known| !known.is_empty()),
            outcome: self.outcomes[node.index()],
        };
        GrownStep {
            prompt,
            recorded: step,
            is_cut: whole.follow(verified()).count() == step.verified.len(),
            sizes,
            nodes: self.tree.nodes().map(node).collect(),
            path: self.tree.follow(verified()).map(NodeId::index).collect(),
        }
    }

    /// The recorded candidates of a node, where the recorded tree has it.
    fn known(&self, node: usize) -> Option<&'t [Candidate]> {
        self.recorded[node].map(|node| self.candidates[node.index()])
    }

    /// Grows the tree, and returns its nodes after each growth, the root alone first.
    fn grow(&mut self, step: &'t StepTrace, whole: &TokenTree) -> Vec<usize> {
        self.candidates.clear();
        self.candidates.resize(step.parents.len(), &[]);
        for Expansion { node, candidates } in &step.expanded {
            self.candidates[*node as usize] = candidates;
        }
        self.tree.reset(step.tokens[0]);
        self.frontier.clear();
        self.recorded.clear();
        self.recorded.push(Some(NodeId::ROOT));
        let mut sizes = Vec::with_capacity(self.depth + 1);
        sizes.push(1);
        let mut forwarded = 0..1;
        for _ in 0..self.depth {
            for node in forwarded {
                let known = self.known(node).unwrap_or_default();
                let known = known.iter().take(self.top_k).map(|c| (c.token, c.log_prob));
                self.frontier.expand(&self.tree, NodeId::from_index(node), known);
            }
            self.frontier.grow(&mut self.tree, self.width, Source::NONE, &mut self.grown);
            for node in &self.grown {
                let parent = self.tree.parent(*node).expect("only the root has no parent").index();
                let recorded = self.recorded[parent];
                self.recorded.push(recorded.and_then(|parent| whole.child(parent, self.tree.token(*node))));
            }
            forwarded = sizes[sizes.len() - 1]..self.tree.len();
            sizes.push(self.tree.len());
        }
        sizes
    }
}
