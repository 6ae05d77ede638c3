//! A tree that several drafters share: each proposes by itself, and the rows of the step go to the nodes that are worth
//! most. Pure.
//!
//! A node that several propose is one node, worth what the most trusted of them gives it. How far each is trusted is
//! the arbiter's policy, [`Trust`]: it follows what became of the drafter's proposals, so the same history always
//! shares the rows alike. The decoder and the planner's replays fill the tree by the same functions.
use crate::tree::{NodeId, TokenTree};

use super::{NodeOutcome, Trust, node_outcomes};

/// The proposals of several drafters for one step after another, in storage reserved once.
#[derive(Debug)]
pub struct SharedTree {
    parts: Vec<Part>,
    order: Vec<Proposed>,
    outcomes: Vec<NodeOutcome>,
    /// Whether the parts' trees are those of the step whose outcome comes next.
    drafted: bool,
}

/// The last proposal of one drafter, and how far it is trusted.
#[derive(Debug)]
struct Part {
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
    /// Pinned first, then worth more first. Of equals the earlier part's, then the lower id: no node comes before its
    /// parent.
    fn order(a: &Self, b: &Self) -> std::cmp::Ordering {
        let by_worth = b.pinned.cmp(&a.pinned).then(b.worth.total_cmp(&a.worth));
        by_worth.then(a.part.cmp(&b.part)).then(a.node.cmp(&b.node))
    }
}

impl Part {
    fn with_capacity(nodes: usize) -> Self {
        Part {
            trust: Trust::new(),
            tree: TokenTree::with_capacity(nodes),
            values: Vec::with_capacity(nodes),
            worths: Vec::with_capacity(nodes),
            places: Vec::with_capacity(nodes),
        }
    }

    /// Values and worths of the proposal that do not rise along any path, and no places yet but the root's.
    fn value(&mut self) {
        let Self { trust, tree, values, worths, places } = self;
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

impl SharedTree {
    /// Room for proposals of so many nodes each, roots included, one of every drafter. All are taken at their word at
    /// first.
    pub fn with_capacities(nodes: impl IntoIterator<Item = usize>) -> Self {
        let parts: Vec<Part> = nodes.into_iter().map(Part::with_capacity).collect();
        let all = parts.iter().map(|part| part.tree.capacity()).sum();
        let largest = parts.iter().map(|part| part.tree.capacity()).max().unwrap_or(0);
        Self { parts, order: Vec::with_capacity(all), outcomes: Vec::with_capacity(largest), drafted: false }
    }

    /// What follows is not the outcome of the last proposals: another request begins.
    pub fn forget_proposals(&mut self) {
        self.drafted = false;
    }

    /// Another step begins, of which nothing is proposed yet.
    pub fn begin_step(&mut self, root: u32) {
        self.drafted = false;
        self.parts.iter_mut().for_each(|part| part.tree.reset(root));
    }

    /// The tree of a drafter, for it to propose into.
    pub fn proposal(&mut self, part: usize) -> &mut TokenTree {
        &mut self.parts[part].tree
    }

    /// How probable it is that the text follows some path of the proposals so far to `depth`, which is 1 or more, by
    /// the most trusted path that is as deep; 0 without one.
    pub fn followed_to(&mut self, depth: u32) -> f32 {
        let mut best = 0.0_f32;
        for part in &mut self.parts {
            part.value();
            let deep = part.tree.nodes().filter(|node| part.tree.depth(*node) == depth);
            best = deep.map(|node| part.worths[node.index()]).fold(best, f32::max);
        }
        best
    }

    /// Moves the best of what the drafters propose into `tree`, up to `most` nodes.
    pub fn merge(&mut self, most: usize, tree: &mut TokenTree) {
        let Self { parts, order, drafted, .. } = self;
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
            let Some(place) = tree.insert_within(most, parent, token, *worth, rank, sources) else {
                continue;
            };
            places[node.index()] = Some(place);
            if *pinned {
                tree.pin(place);
            }
        }
        *drafted = true;
    }

    /// Takes note of the tokens that a step emitted, whether it drafted or not.
    pub fn learn(&mut self, emitted: &[u32]) {
        if !std::mem::take(&mut self.drafted) {
            return;
        }
        for Part { trust, tree, values, .. } in &mut self.parts {
            node_outcomes(tree, emitted, &mut self.outcomes);
            trust.learn(values, &self.outcomes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::tree::Source;

    fn shared(parts: usize) -> SharedTree {
        let mut shared = SharedTree::with_capacities((0..parts).map(|_| 65));
        shared.begin_step(0);
        shared
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

    fn merged(shared: &mut SharedTree, most: usize) -> TokenTree {
        let mut tree = TokenTree::with_capacity(65);
        tree.reset(0);
        shared.merge(most, &mut tree);
        tree.check().unwrap();
        tree
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
            let mut shared = shared(proposals.len());
            for (place, (part, proposal)) in shared.parts.iter_mut().zip(&proposals).enumerate() {
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
            for part in &shared.parts {
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
            for depth in 1..7 {
                let deep = worth.iter().filter(|(path, _)| path.len() == depth);
                let best = deep.map(|(_, worth)| *worth).fold(0.0, f32::max);
                prop_assert_eq!(shared.followed_to(depth as u32), best);
            }
            let tree = merged(&mut shared, nodes);
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
        let mut shared = shared(2);
        let pinned = add(shared.proposal(1), &[7], 0.0).unwrap();
        shared.proposal(1).pin(pinned);
        add(shared.proposal(0), &[5], 0.9);
        add(shared.proposal(0), &[6], 0.8);
        let tree = merged(&mut shared, 3);
        let paths: BTreeSet<_> = tree.nodes().skip(1).map(|node| path(&tree, node)).collect();
        assert_eq!(paths, BTreeSet::from([vec![5], vec![7]]));
        assert_eq!(tree.pinned(), 1);
    }

    #[test]
    fn a_drafter_that_is_wrong_loses_its_rows_and_wins_them_back() {
        let mut shared = shared(2);
        let mut step = |right: u32| {
            shared.begin_step(0);
            add(shared.proposal(0), &[5], 0.9);
            add(shared.proposal(1), &[6], 0.5);
            let tree = merged(&mut shared, 2);
            let drafted = path(&tree, NodeId::from_index(1));
            shared.learn(&[right, 9]);
            drafted[0]
        };
        assert_eq!(step(6), 5, "taken at its word");
        let drafted: Vec<u32> = (0..20).map(|_| step(6)).collect();
        assert_eq!(drafted[19], 6, "{drafted:?}");
        let drafted: Vec<u32> = (0..60).map(|_| step(5)).collect();
        assert_eq!(drafted[59], 5, "{drafted:?}");
    }

    #[test]
    fn who_proposes_nothing_is_judged_by_nothing() {
        let mut shared = shared(2);
        for _ in 0..30 {
            shared.begin_step(0);
            add(shared.proposal(0), &[5], 0.9);
            merged(&mut shared, 8);
            shared.learn(&[6, 9]);
        }
        assert_eq!(shared.parts[1].trust, Trust::new());
        assert!(shared.parts[0].trust.worth(0.9) < 0.3);
        // Tokens that no proposal was made for tell nothing either.
        let before = shared.parts[0].trust;
        shared.learn(&[5]);
        shared.begin_step(0);
        shared.learn(&[5]);
        assert_eq!(shared.parts[0].trust, before);
    }
}
