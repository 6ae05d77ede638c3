//! Several drafters in one tree: each proposes by itself, and the rows of the step go to the nodes that are worth most.
//!
//! A node that several propose is one node, worth what the most trusted of them gives it. How far each is trusted is the arbiter's
//! policy, [`Trust`]: it follows what became of the drafter's proposals, so the same history always shares the rows alike.

use crate::{
    plan::{Mixture, ProposalLimits},
    policy::{NodeOutcome, Trust, node_outcomes},
    speculate::{SpeculateError, StepOutcome, StepShape, StepStage, stats::Lap},
    tree::{NodeId, TokenTree},
};

use super::{
    Budget, Drafter, DrafterState,
    registry::{MakeContext, MakeDrafter, make_growing_drafter},
};

/// Drafters that run no model, and share a tree.
#[derive(Debug)]
pub struct Mixed {
    parts: Vec<Part>,
    limits: ProposalLimits,
    order: Vec<Proposed>,
    outcomes: Vec<NodeOutcome>,
    /// Whether the parts' trees are those of the step whose outcome comes next.
    drafted: bool,
}

/// One drafter and its last proposal.
#[derive(Debug)]
struct Part {
    drafter: Box<dyn Drafter>,
    trust: Trust,
    tree: TokenTree,
    /// By its nodes: the value, not above those of the ancestors.
    values: Vec<f32>,
    /// By its nodes: what the value is worth, not above what those of the ancestors are.
    worths: Vec<f32>,
    /// By its nodes: the node of the common tree, if it came in.
    places: Vec<Option<NodeId>>,
}

/// A node of a part.
#[derive(Clone, Copy, Debug)]
struct Proposed {
    part: usize,
    node: NodeId,
    worth: f32,
    pinned: bool,
}

impl Proposed {
    /// Pinned first, then worth more first. Of equals the earlier part's, then the lower id: no node comes before its parent.
    fn order(a: &Self, b: &Self) -> std::cmp::Ordering {
        let by_worth = b.pinned.cmp(&a.pinned).then(b.worth.total_cmp(&a.worth));
        by_worth.then(a.part.cmp(&b.part)).then(a.node.cmp(&b.node))
    }
}

impl Mixed {
    /// A mixture of drafters that were each made for `shape`. Of nodes worth the same, those of earlier drafters come first.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if there are fewer than two.
    pub fn new(parts: Vec<Box<dyn Drafter>>, shape: &StepShape) -> Result<Self, SpeculateError> {
        if parts.len() < 2 {
            let expected = "two or more".to_owned();
            return Err(SpeculateError::Shape {
                what: "drafters of a mixture",
                expected,
                found: parts.len(),
            });
        }
        let limits = shape.limits();
        let nodes = limits.nodes as usize;
        let part = |drafter| Part {
            drafter,
            trust: Trust::new(),
            tree: TokenTree::with_capacity(nodes),
            values: Vec::with_capacity(nodes),
            worths: Vec::with_capacity(nodes),
            places: Vec::with_capacity(nodes),
        };
        let order = Vec::with_capacity(parts.len() * nodes);
        let parts = parts.into_iter().map(part).collect();
        Ok(Self { parts, limits, order, outcomes: Vec::with_capacity(nodes), drafted: false })
    }

    /// Moves the best of what the parts propose into `tree`, as far as it may grow.
    fn merge(&mut self, tree: &mut TokenTree) {
        let Self { parts, limits, order, .. } = self;
        order.clear();
        for (i, part) in parts.iter_mut().enumerate() {
            part.value();
            let proposed = part.tree.nodes().skip(1).map(|node| Proposed {
                part: i,
                node,
                worth: part.worths[node.index()],
                pinned: part.tree.is_pinned(node),
            });
            order.extend(proposed);
        }
        order.sort_unstable_by(Proposed::order);
        for Proposed { part, node, worth, pinned } in order {
            let Part { tree: from, places, .. } = &mut parts[*part];
            let parent = from.parent(*node).and_then(|parent| places[parent.index()]);
            let Some(parent) = parent else { continue };
            let (token, rank, sources) = (from.token(*node), from.rank(*node), from.sources(*node));
            let most = limits.nodes as usize;
            let Some(place) = tree.insert_within(most, parent, token, *worth, rank, sources) else {
                continue;
            };
            places[node.index()] = Some(place);
            if *pinned {
                tree.pin(place);
            }
        }
    }
}

impl Part {
    /// Values and worths of the proposal that do not rise along any path, and no places yet but the root's.
    fn value(&mut self) {
        let Self { trust, tree, values, worths, places, .. } = self;
        values.clear();
        worths.clear();
        places.clear();
        values.push(1.0);
        worths.push(1.0);
        places.push(Some(NodeId::ROOT));
        for node in tree.nodes().skip(1) {
            let above = tree.parent(node).map_or(0, NodeId::index);
            let value = tree.value(node).min(values[above]);
            values.push(value);
            worths.push(trust.worth(value).min(worths[above]));
            places.push(None);
        }
    }
}

impl MakeDrafter for Mixture {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let MakeContext { growth, shape, session } = *context;
        let parts = self.parts();
        let drafters = parts.iter().map(|part| make_growing_drafter(part, growth, shape, session));
        let drafters: Vec<_> = drafters.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Some(Box::new(Mixed::new(drafters, shape)?)))
    }
}

impl Drafter for Mixed {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        // Parts propose as they were recorded, however many rows the step verifies: the best of all are verified.
        let Budget { session, history, depth, rows: _, coupling, stats, observer: _ } = budget;
        let rows = self.limits.nodes as usize;
        self.drafted = false;
        for Part { drafter, tree: own, .. } in &mut self.parts {
            own.reset(tree.token(NodeId::ROOT));
            let (session, stats) = (&mut *session, &mut *stats);
            let budget = Budget { session, history, depth, rows, coupling, stats, observer: None };
            drafter.propose(own, budget)?;
        }
        let mut lap = Lap::start();
        self.merge(tree);
        self.drafted = true;
        stats.add_time(StepStage::Draft, lap.next());
        Ok(())
    }

    /// As many as the part that learns from most, and at least one: trust needs the outcome of every step.
    fn candidates_to_learn(&self) -> usize {
        self.parts.iter().map(|part| part.drafter.candidates_to_learn()).max().unwrap_or(0).max(1)
    }

    /// Of the first part that keeps any: parts are of different kinds, and one of them keeps what it learned.
    fn state(&self) -> Option<DrafterState> {
        self.parts.iter().find_map(|part| part.drafter.state())
    }

    fn restore(&mut self, state: &DrafterState, vocabulary: usize) -> Result<bool, SpeculateError> {
        let mut taken = false;
        for Part { drafter, .. } in &mut self.parts {
            taken |= drafter.restore(state, vocabulary)?;
        }
        Ok(taken)
    }

    fn begin(&mut self, history: &[u32]) {
        self.drafted = false;
        for Part { drafter, .. } in &mut self.parts {
            drafter.begin(history);
        }
    }

    fn learn(&mut self, outcome: &StepOutcome<'_>) {
        let drafted = std::mem::take(&mut self.drafted);
        let emitted = &outcome.history[outcome.history.len() - outcome.emitted..];
        for Part { drafter, trust, tree, values, .. } in &mut self.parts {
            if drafted {
                node_outcomes(tree, emitted, &mut self.outcomes);
                trust.learn(values, &self.outcomes);
            }
            if drafter.candidates_to_learn() > 0 {
                drafter.learn(outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::{speculate::CandidateRows, tree::Source};

    /// Proposes nothing: the tests write into the parts' trees.
    #[derive(Debug)]
    struct Silent;

    impl Drafter for Silent {
        fn propose(&mut self, _tree: &mut TokenTree, _budget: Budget<'_>) -> Result<(), SpeculateError> {
            Ok(())
        }
    }

    fn mixed(parts: usize, verify_width: usize) -> Mixed {
        let shape = StepShape { depth: 8, draft_width: 8, verify_width, top_k: 0, draft_temperature: 1.0 };
        let silent = || Box::new(Silent) as Box<dyn Drafter>;
        let mut mixed = Mixed::new((0..parts).map(|_| silent()).collect(), &shape).unwrap();
        mixed.parts.iter_mut().for_each(|part| part.tree.reset(0));
        mixed
    }

    fn add(tree: &mut TokenTree, path: &[u32], value: f32) -> Option<NodeId> {
        let parent =
            path[..path.len() - 1].iter().try_fold(NodeId::ROOT, |node, token| tree.child(node, *token));
        tree.insert(parent?, *path.last()?, value, 0, Source::new(1)).node()
    }

    fn path(tree: &TokenTree, node: NodeId) -> Vec<u32> {
        let mut nodes = Vec::new();
        tree.path(node, &mut nodes);
        nodes[1..].iter().map(|node| tree.token(*node)).collect()
    }

    fn merged(mixed: &mut Mixed) -> TokenTree {
        let mut tree = TokenTree::with_capacity(65);
        tree.reset(0);
        mixed.merge(&mut tree);
        tree.check().unwrap();
        tree
    }

    /// What happened to the last merged tree of `mixed`.
    fn teach(mixed: &mut Mixed, tree: &TokenTree, emitted: &[u32]) {
        mixed.drafted = true;
        let (rows, offers) = ([NodeId::ROOT], CandidateRows::default());
        let (path, history) = ([NodeId::ROOT], [&[0], emitted].concat());
        let emitted = emitted.len();
        mixed.learn(&StepOutcome {
            tree,
            rows: &rows,
            offers: &offers,
            path: &path,
            history: &history,
            emitted,
        });
    }

    proptest! {
        /// By looking at all paths of all parts.
        #[test]
        fn the_rows_go_to_the_nodes_worth_most(
            proposals in prop::collection::vec(
                prop::collection::vec((0..6_usize, 1..5_u32, 0..=100_u8), 0..8), 2..4),
            nodes in 1..12_usize,
            came in prop::collection::vec((0..=100_u8, any::<bool>()), 0..40),
        ) {
            let mut mixed = mixed(proposals.len(), nodes);
            for (place, (part, proposal)) in mixed.parts.iter_mut().zip(&proposals).enumerate() {
                for (value, accepted) in came.iter().skip(7 * place) {
                    let outcome = if *accepted { NodeOutcome::Accepted } else { NodeOutcome::Rejected };
                    part.trust.learn(&[1.0, f32::from(*value) / 100.0], &[NodeOutcome::Accepted, outcome]);
                }
                for (parent, token, value) in proposal {
                    let parent = NodeId::from_index(parent % part.tree.len());
                    let _full_or_not =
                        part.tree.insert(parent, *token, f32::from(*value) / 100.0, 0, Source::new(1));
                }
            }
            let mut worth: BTreeMap<Vec<u32>, f32> = BTreeMap::new();
            for part in &mixed.parts {
                for node in part.tree.nodes().skip(1) {
                    let mut nodes = Vec::new();
                    part.tree.path(node, &mut nodes);
                    // Neither values nor what they are worth rise along the path.
                    let (mut value, mut worth_here) = (1.0_f32, 1.0_f32);
                    for node in &nodes[1..] {
                        value = value.min(part.tree.value(*node));
                        worth_here = worth_here.min(part.trust.worth(value));
                    }
                    let known = worth.entry(path(&part.tree, node)).or_insert(worth_here);
                    *known = known.max(worth_here);
                }
            }
            let tree = merged(&mut mixed);
            prop_assert_eq!(tree.len(), nodes.min(worth.len() + 1));
            let inside: BTreeSet<Vec<u32>> = tree.nodes().skip(1).map(|node| path(&tree, node)).collect();
            let least = inside.iter().map(|path| worth[path]).fold(f32::INFINITY, f32::min);
            for (path, worth) in worth.iter().filter(|(path, _)| !inside.contains(*path)) {
                prop_assert!(*worth <= least, "{path:?} is worth {worth}, something chosen {least}");
            }
            for node in tree.nodes().skip(1) {
                prop_assert_eq!(tree.value(node), worth[&path(&tree, node)]);
            }
        }
    }

    #[test]
    fn pinned_nodes_come_in_whatever_they_are_worth() {
        let mut mixed = mixed(2, 3);
        let pinned = add(&mut mixed.parts[1].tree, &[7], 0.0).unwrap();
        mixed.parts[1].tree.pin(pinned);
        add(&mut mixed.parts[0].tree, &[5], 0.9);
        add(&mut mixed.parts[0].tree, &[6], 0.8);
        let tree = merged(&mut mixed);
        let paths: BTreeSet<_> = tree.nodes().skip(1).map(|node| path(&tree, node)).collect();
        assert_eq!(paths, BTreeSet::from([vec![5], vec![7]]));
        assert_eq!(tree.pinned(), 1);
    }

    #[test]
    fn a_drafter_that_is_wrong_loses_its_rows_and_wins_them_back() {
        let mut mixed = mixed(2, 2);
        let mut step = |right: u32| {
            for (part, (token, value)) in mixed.parts.iter_mut().zip([(5, 0.9), (6, 0.5)]) {
                part.tree.reset(0);
                add(&mut part.tree, &[token], value);
            }
            let tree = merged(&mut mixed);
            let drafted = path(&tree, NodeId::from_index(1));
            teach(&mut mixed, &tree, &[right, 9]);
            drafted[0]
        };
        assert_eq!(step(6), 5, "taken at its word");
        let drafted: Vec<u32> = (0..20).map(|_| step(6)).collect();
        assert_eq!(drafted[19], 6, "{drafted:?}");
        let drafted: Vec<u32> = (0..60).map(|_| step(5)).collect();
        assert_eq!(drafted[59], 5, "{drafted:?}");
    }

    #[test]
    fn one_drafter_is_no_mixture() {
        let shape = StepShape { depth: 1, draft_width: 1, verify_width: 2, top_k: 0, draft_temperature: 1.0 };
        for parts in [vec![], vec![Box::new(Silent) as Box<dyn Drafter>]] {
            assert!(matches!(Mixed::new(parts, &shape), Err(SpeculateError::Shape { .. })));
        }
    }
}
