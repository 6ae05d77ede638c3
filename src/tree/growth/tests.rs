//! Judges growth by an obvious version that sorts all candidates each time.

use super::*;
use proptest::prelude::*;

const DRAFTER: Source = Source::new(0);
const OTHER: Source = Source::new(1);

/// Every candidate ever offered: score, parent, rank, token.
#[derive(Default)]
struct Obvious {
    offered: Vec<(f32, NodeId, usize, u32)>,
    /// Parent, token and score of the nodes added, in order.
    added: Vec<(NodeId, u32, f32)>,
}

impl Obvious {
    fn expand(&mut self, node: NodeId, score: f32, candidates: &[(u32, f32)]) {
        for (rank, &(token, log_prob)) in candidates.iter().enumerate() {
            self.offered.push((score + log_prob, node, rank, token));
        }
    }

    fn grow(&mut self, present: impl Fn(NodeId, u32) -> bool, width: usize) -> usize {
        self.offered.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let before = self.added.len();
        for &(score, parent, _, token) in &self.offered {
            if self.added.len() - before == width {
                break;
            }
            if !present(parent, token) && !self.added.iter().any(|a| (a.0, a.1) == (parent, token)) {
                self.added.push((parent, token, score));
            }
        }
        self.added.len() - before
    }
}

/// A drafter without a model: candidates that depend on the node alone, with many ties and sometimes too few.
fn candidates(node: NodeId, k: usize, seed: u64) -> Vec<(u32, f32)> {
    let mut state = seed ^ (node.index() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut list: Vec<(u32, f32)> = (0..k)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (state >> 33) as u32;
            (bits % 11, -(((bits >> 8) % 6) as f32) / 4.0)
        })
        .collect();
    list.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
    list
}

proptest! {
    #[test]
    fn growth_takes_the_best_of_all_candidates(width in 1..7_usize, depth in 1..7_usize, k in 1..9_usize, seed: u64,
                                               foreign in prop::collection::vec(0..11_u32, 0..4)) {
        let nodes = depth * width + 1 + foreign.len();
        let mut tree = TokenTree::with_capacity(nodes);
        tree.reset(0);
        for &token in &foreign {
            let _ = tree.insert(NodeId::ROOT, token, 0.5, 9, OTHER);
        }
        let seeded: Vec<u32> = tree.children(NodeId::ROOT).map(|c| tree.token(c)).collect();
        let present = |parent: NodeId, token: u32| parent == NodeId::ROOT && seeded.contains(&token);

        let mut frontier = Frontier::with_capacity(nodes, k);
        let mut obvious = Obvious::default();
        let mut fresh = vec![NodeId::ROOT];
        let mut all = Vec::new();
        for _ in 0..depth {
            for &node in &fresh {
                let list = candidates(node, k, seed);
                obvious.expand(node, frontier.score(&tree, node), &list);
                frontier.expand(&tree, node, list);
            }
            let expected = obvious.grow(present, width);
            frontier.grow(&mut tree, width, DRAFTER, &mut fresh);
            prop_assert_eq!(fresh.len(), expected);
            all.extend_from_slice(&fresh);
        }
        prop_assert_eq!(tree.check(), Ok(()));
        prop_assert_eq!(all.len(), obvious.added.len());
        for (&node, &(parent, token, score)) in all.iter().zip(&obvious.added) {
            prop_assert_eq!((tree.parent(node), tree.token(node)), (Some(parent), token));
            prop_assert_eq!(frontier.score(&tree, node), score);
            prop_assert_eq!(tree.value(node), score.exp());
            prop_assert!(tree.value(node) <= tree.value(parent));
        }
    }
}

fn grown(width: usize, capacity: usize, offers: &[(u32, f32)]) -> (TokenTree, Frontier, Vec<NodeId>) {
    let mut tree = TokenTree::with_capacity(capacity);
    tree.reset(0);
    let mut frontier = Frontier::with_capacity(8, 8);
    frontier.expand(&tree, NodeId::ROOT, offers.iter().copied());
    let mut out = Vec::new();
    frontier.grow(&mut tree, width, DRAFTER, &mut out);
    (tree, frontier, out)
}

#[test]
fn ties_go_to_the_lower_rank_then_the_earlier_parent() {
    let (mut tree, mut frontier, out) = grown(2, 8, &[(5, -1.0), (3, -1.0), (4, -1.0)]);
    assert_eq!(out.iter().map(|&n| tree.token(n)).collect::<Vec<_>>(), [5, 3]);
    frontier.expand(&tree, out[1], [(8, -0.0)]);
    frontier.expand(&tree, out[0], [(9, 0.0)]);
    let mut next = Vec::new();
    frontier.grow(&mut tree, 3, DRAFTER, &mut next);
    // All score -1: the root's third candidate, then those of node 1, then those of node 2.
    assert_eq!(next.iter().map(|&n| tree.token(n)).collect::<Vec<_>>(), [4, 9, 8]);
}

#[test]
fn fewer_candidates_than_the_width_add_fewer_nodes() {
    let (tree, frontier, out) = grown(4, 8, &[(5, -1.0), (3, f32::NAN), (4, f32::NEG_INFINITY)]);
    assert_eq!(out.len(), 2);
    assert!(frontier.heap.is_empty());
    assert_eq!(tree.value(out[1]), 0.0);
    assert_eq!(tree.rank(out[1]), 2);
}

#[test]
fn a_full_tree_stops_growth_and_keeps_the_candidates() {
    let (tree, frontier, out) = grown(3, 2, &[(5, -1.0), (3, -2.0)]);
    assert_eq!((tree.len(), out.len(), frontier.heap.len()), (2, 1, 1));
}

#[test]
fn a_node_of_another_proposer_is_merged_and_scores_its_value() {
    let mut tree = TokenTree::with_capacity(8);
    tree.reset(0);
    let other = tree.insert(NodeId::ROOT, 5, 0.25, 3, OTHER).node().unwrap();
    let mut frontier = Frontier::with_capacity(8, 8);
    assert_eq!(frontier.score(&tree, other), 0.25_f32.ln());
    frontier.expand(&tree, NodeId::ROOT, [(5, -0.5), (6, -1.0)]);
    let mut out = Vec::new();
    frontier.grow(&mut tree, 1, DRAFTER, &mut out);
    assert_eq!(tree.token(out[0]), 6);
    assert_eq!((tree.value(other), tree.rank(other)), ((-0.5_f32).exp(), 0));
    assert_eq!(tree.sources(other), DRAFTER.union(OTHER));
    assert_eq!(frontier.score(&tree, other), -0.5);
    frontier.clear();
    assert_eq!((frontier.heap.len(), frontier.score(&tree, NodeId::ROOT)), (0, 0.0));
}
