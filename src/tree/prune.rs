//! Pruning: which nodes of a drafted tree are worth a row of the verify forward, and how many rows are.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), verification-width pruning. The paper solves a tree
//! knapsack bottom-up. Here a node's value is first lowered to the least value on its path, because a token cannot be
//! accepted more often than its parent. Then no node is worth more than its parent, so the `width` best
//! nodes are connected and optimal, and the dynamic program is left to the tests as judge.

use super::{NodeId, TokenTree};

#[cfg(test)]
mod tests;

/// Storage that pruning reuses between steps.
#[derive(Clone, Debug)]
pub struct PruneScratch {
    /// Value of each node, not above its parent's.
    values: Vec<f32>,
    pinned: Vec<bool>,
    order: Vec<NodeId>,
}

impl PruneScratch {
    /// Room for trees of at most `nodes` nodes.
    pub fn with_capacity(nodes: usize) -> Self {
        Self {
            values: Vec::with_capacity(nodes),
            pinned: Vec::with_capacity(nodes),
            order: Vec::with_capacity(nodes),
        }
    }

    fn fill(&mut self, tree: &TokenTree) {
        self.values.clear();
        self.pinned.clear();
        self.order.clear();
        for node in tree.nodes() {
            let value = match tree.parent(node) {
                // `+ 0.0` makes -0.0 and 0.0 tie.
                Some(parent) => tree.value(node).min(self.values[parent.index()]) + 0.0,
                None => 1.0,
            };
            self.values.push(value);
            self.pinned.push(node == NodeId::ROOT || tree.is_pinned(node));
            self.order.push(node);
        }
    }
}

/// Pinned first, then worth more first; equal values by id, so that a parent always precedes its children.
fn best_first(values: &[f32], pinned: &[bool]) -> impl Fn(&NodeId, &NodeId) -> std::cmp::Ordering {
    |a, b| {
        let by_pin = pinned[b.index()].cmp(&pinned[a.index()]);
        by_pin.then(values[b.index()].total_cmp(&values[a.index()])).then(a.cmp(b))
    }
}

/// Replaces `keep` by the connected subtree of at most `width` nodes with the greatest sum of values, the root
/// included, in the order of ids: parents precede children, and row 0 is the root.
///
/// Pinned nodes come before all others, as far as `width` goes. Values count as not above those of their ancestors;
/// equal values go to the lower id. The whole tree is kept if it is not larger than `width`.
///
/// # Panics
/// If the tree is empty or `width` is 0: the root is always verified.
pub fn select(tree: &TokenTree, width: usize, scratch: &mut PruneScratch, keep: &mut Vec<NodeId>) {
    assert!(!tree.is_empty() && width > 0, "a verify forward has at least the root's row");
    scratch.fill(tree);
    let PruneScratch { values, pinned, order } = scratch;
    if width < order.len() {
        order.select_nth_unstable_by(width - 1, best_first(values, pinned));
        order.truncate(width);
        order.sort_unstable();
    }
    keep.clear();
    keep.extend_from_slice(order);
}

/// Replaces `out` by the expected number of tokens that a step emits, `[nodes + 1]`: `out[w]` if the best `w` nodes are
/// verified, pinned ones before all others, `out[0]` = 0.
///
/// The root's share is exactly 1: it stands for the bonus token that every step emits.
pub fn expected_tokens(tree: &TokenTree, scratch: &mut PruneScratch, out: &mut Vec<f64>) {
    scratch.fill(tree);
    let PruneScratch { values, pinned, order } = scratch;
    order.sort_unstable_by(best_first(values, pinned));
    out.clear();
    out.push(0.0);
    let mut sum = 0.0;
    for node in order.iter() {
        sum += f64::from(values[node.index()]);
        out.push(sum);
    }
}

/// The planned width that maximises `expected - rate * cost`, expected tokens less the price of their time: the choice
/// of the verify width in eq. 3 of Yggdrasil (section on verification-width pruning). `None` if no width is planned.
///
/// Eq. 3 is a ratio over many steps, total tokens by total time, which no step maximises by a ratio of its own: with
/// `rate` the tokens per unit of cost that the steps reach together, choosing the largest difference every time makes
/// that rate the largest there is (Dinkelbach, *On Nonlinear Fractional Programming*, 1967).
///
/// `expected` comes from [`expected_tokens`]; a width beyond the tree earns no more than the whole tree. `cost(width)`
/// is the time of a step that verifies `width` rows, draft and fixed stages included, in any unit. Cost curves are
/// staircases, so all widths are compared and the search never stops at a first descent. Ties go to the smaller
/// width.
///
/// # Panics
/// If `expected` is empty, a width is 0, or a cost is not finite and positive.
pub fn best_width(expected: &[f64], widths: &[u32], rate: f64, cost: impl Fn(u32) -> f64) -> Option<u32> {
    let nodes = expected.len().checked_sub(1).expect("expected tokens start with those of width 0");
    let mut best: Option<(f64, u32)> = None;
    for &width in widths {
        assert!(width > 0, "a planned width is at least 1");
        let cost = cost(width);
        assert!(
            cost.is_finite() && cost > 0.0,
            "the cost of width {width} is {cost}, not finite and positive"
        );
        let gain = expected[nodes.min(width as usize)] - rate * cost;
        if best.is_none_or(|(top, at)| gain > top || (gain == top && width < at)) {
            best = Some((gain, width));
        }
    }
    best.map(|(_, width)| width)
}
