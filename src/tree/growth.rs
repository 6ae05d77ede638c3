//! Equal growth: adds the best candidates of all expanded nodes, the same number each time.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), Equal-Growth Tree. A drafter forward *expands* the
//! nodes it ran over; then one growth takes the `width` most probable candidates wherever they attach. All growths
//! have the same shape, so one executable serves them all. Candidates are children of expanded nodes only, which
//! makes every tree connected by construction.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::{Insert, NodeId, Source, TokenTree};

#[cfg(test)]
mod tests;

/// A child that an expanded node could get. The order is "worth more": higher score, then earlier parent, then
/// lower rank.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    score: f32,
    parent: NodeId,
    rank: u16,
    token: u32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        // A score is 0.0 plus log-probabilities, so it is never -0.0 and `total_cmp` sees equal scores as equal.
        self.score
            .total_cmp(&other.score)
            .then(other.parent.cmp(&self.parent))
            .then(other.rank.cmp(&self.rank))
            .then(other.token.cmp(&self.token))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// The candidates of one tree that are not yet in it, and the drafter's score of each node it knows.
///
/// A score is the sum of the drafter's log-probabilities along the path from the root (score 0). It lives here
/// and not in the tree because a node's *value* may be calibrated or raised by other proposers, which must not change
/// how the drafter's tree grows. A node that this frontier did not add, such as one proposed by a free drafter,
/// scores the logarithm of its value.
#[derive(Clone, Debug)]
pub struct Frontier {
    heap: BinaryHeap<Candidate>,
    capacity: usize,
    scores: Vec<f32>,
    nodes: usize,
}

impl Frontier {
    /// An empty frontier for trees of at most `nodes` nodes, each expanded once with at most `per_node` candidates.
    pub fn with_capacity(nodes: usize, per_node: usize) -> Self {
        let capacity = nodes * per_node;
        Self { heap: BinaryHeap::with_capacity(capacity), capacity, scores: Vec::with_capacity(nodes), nodes }
    }

    /// Forgets everything; due whenever the tree is reset.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.scores.clear();
    }

    /// The drafter's log-probability of the path down to `node`.
    pub fn score(&self, tree: &TokenTree, node: NodeId) -> f32 {
        match self.scores.get(node.index()) {
            Some(score) if !score.is_nan() => *score,
            _ => tree.value(node).ln(),
        }
    }

    /// Offers the children `(token, log_prob)` of `node`, most probable first: a place in the sequence is a rank.
    ///
    /// Take at least as many per node as a growth is wide, else the best nodes may be missed. A NaN log-probability
    /// is left out. Offering a token of the same node twice is harmless: the better offer wins, the other merges.
    ///
    /// # Panics
    /// If the reserved candidates are exceeded, or a node is offered more than 65,536 candidates.
    pub fn expand(
        &mut self,
        tree: &TokenTree,
        node: NodeId,
        candidates: impl IntoIterator<Item = (u32, f32)>,
    ) {
        let parent_score = self.score(tree, node);
        for (rank, (token, log_prob)) in candidates.into_iter().enumerate() {
            let rank = u16::try_from(rank).expect("a node is offered at most 65,536 candidates");
            let score = parent_score + log_prob;
            if score.is_nan() {
                continue;
            }
            assert!(
                self.heap.len() < self.capacity,
                "the frontier was reserved for {} candidates",
                self.capacity
            );
            self.heap.push(Candidate { score, parent: node, rank, token });
        }
    }

    /// One growth: moves the `width` best candidates into the tree and replaces `out` by the new nodes, best first,
    /// which is also the order of their ids. Equal scores: earlier parent first, then lower rank.
    ///
    /// A new node's value is the probability of its path, `exp(score)`. A candidate that some other proposer has put
    /// in the tree already is merged there and does not count.
    ///
    /// Fewer than `width` nodes are added when fewer candidates exist (`k < width` at the root, a tiny vocabulary)
    /// or the tree is full; the caller then pads the rows of its fixed-width forward.
    ///
    /// # Panics
    /// If the tree has more nodes than the frontier was reserved for.
    pub fn grow(&mut self, tree: &mut TokenTree, width: usize, source: Source, out: &mut Vec<NodeId>) {
        out.clear();
        while out.len() < width {
            let Some(best) = self.heap.peek().copied() else { break };
            let value = best.score.exp().min(1.0);
            match tree.insert(best.parent, best.token, value, best.rank, source) {
                Insert::Added(node) => {
                    self.record(node, best.score);
                    out.push(node);
                }
                Insert::Merged(node) => self.record(node, best.score),
                Insert::Full => break,
            }
            self.heap.pop();
        }
    }

    fn record(&mut self, node: NodeId, score: f32) {
        let i = node.index();
        assert!(i < self.nodes, "the frontier was reserved for trees of {} nodes", self.nodes);
        if self.scores.len() <= i {
            self.scores.resize(i + 1, f32::NAN);
        }
        // Candidates leave best first, so a score already there is the better one.
        if self.scores[i].is_nan() {
            self.scores[i] = score;
        }
    }
}
