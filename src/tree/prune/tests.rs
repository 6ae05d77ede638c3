//! Judges pruning by the paper's tree knapsack and, on tiny trees, by trying all subsets.

use super::*;
use crate::tree::Source;
use proptest::prelude::*;

/// Values are multiples of 1/1024, so all sums are exact and judges compare with `==`.
fn tree_of(nodes: &[(usize, u16)]) -> TokenTree {
    let mut tree = TokenTree::with_capacity(nodes.len() + 1);
    tree.reset(0);
    for (i, &(parent, value)) in nodes.iter().enumerate() {
        let value = f32::from(value) / 1024.0;
        let _ = tree.insert(NodeId::from_index(parent % (i + 1)), i as u32, value, 0, Source::new(0));
    }
    tree
}

/// Least value on the path from the root, computed from the definition.
fn capped(tree: &TokenTree, node: NodeId) -> f64 {
    let own = f64::from(tree.value(node));
    tree.ancestors(node).map(|a| f64::from(tree.value(a))).fold(own, f64::min)
}

/// Bottom-up dynamic program: `best[w]` = greatest sum of a connected subtree of `w` nodes rooted at `node`.
fn knapsack(tree: &TokenTree, node: NodeId) -> Vec<f64> {
    let mut best = vec![f64::NEG_INFINITY, capped(tree, node)];
    for child in tree.children(node) {
        let below = knapsack(tree, child);
        let mut merged = vec![f64::NEG_INFINITY; best.len() + below.len() - 1];
        for (i, &a) in best.iter().enumerate().skip(1) {
            merged[i] = merged[i].max(a);
            for (j, &b) in below.iter().enumerate().skip(1) {
                merged[i + j] = merged[i + j].max(a + b);
            }
        }
        best = merged;
    }
    best
}

fn connected(tree: &TokenTree, keep: &[NodeId]) -> bool {
    keep.first() == Some(&NodeId::ROOT)
        && keep.iter().enumerate().skip(1).all(|(i, &n)| keep[..i].contains(&tree.parent(n).unwrap()))
}

fn trees(max: usize) -> impl Strategy<Value = Vec<(usize, u16)>> {
    prop::collection::vec((0..max, prop_oneof![0..1200_u16, (0..4_u16).prop_map(|v| v * 256)]), 0..max)
}

proptest! {
    #[test]
    fn selection_is_the_knapsack_optimum(nodes in trees(40)) {
        let tree = tree_of(&nodes);
        let mut scratch = PruneScratch::with_capacity(tree.len());
        let (mut keep, mut expected) = (Vec::new(), Vec::new());
        expected_tokens(&tree, &mut scratch, &mut expected);
        let optimum = knapsack(&tree, NodeId::ROOT);
        prop_assert_eq!(expected.len(), tree.len() + 1);
        for width in 1..=tree.len() + 2 {
            select(&tree, width, &mut scratch, &mut keep);
            prop_assert!(connected(&tree, &keep));
            prop_assert!(keep.is_sorted());
            let size = width.min(tree.len());
            prop_assert_eq!(keep.len(), size);
            let sum: f64 = keep.iter().map(|&n| capped(&tree, n)).sum();
            prop_assert_eq!(sum, optimum[size]);
            prop_assert_eq!(expected[size], optimum[size]);
        }
    }

    #[test]
    fn selection_beats_all_subsets_of_a_tiny_tree(nodes in trees(9), width in 1..9_usize) {
        let tree = tree_of(&nodes);
        let size = width.min(tree.len());
        let mut best = f64::NEG_INFINITY;
        for subset in 0..1_u32 << tree.len() {
            let chosen: Vec<NodeId> = tree.nodes().filter(|n| subset >> n.get() & 1 == 1).collect();
            if chosen.len() == size && connected(&tree, &chosen) {
                best = best.max(chosen.iter().map(|&n| capped(&tree, n)).sum());
            }
        }
        let mut keep = Vec::new();
        select(&tree, width, &mut PruneScratch::with_capacity(tree.len()), &mut keep);
        prop_assert_eq!(keep.iter().map(|&n| capped(&tree, n)).sum::<f64>(), best);
    }

    /// The best of all connected subsets that hold the pinned nodes; of the pinned nodes alone where not all fit.
    #[test]
    fn pinned_nodes_are_kept_before_all_others(
        nodes in trees(9), pins in prop::collection::vec(1..9_usize, 1..4), width in 1..9_usize,
    ) {
        let mut tree = tree_of(&nodes);
        for pin in pins.into_iter().filter(|pin| *pin < tree.len()).collect::<Vec<_>>() {
            tree.pin(NodeId::from_index(pin));
        }
        tree.check().unwrap();
        let pinned: Vec<NodeId> = tree.nodes().filter(|n| tree.is_pinned(*n)).collect();
        prop_assert_eq!(tree.pinned(), pinned.len());
        let size = width.min(tree.len());
        let mut best = f64::NEG_INFINITY;
        for subset in 0..1_u32 << tree.len() {
            let chosen: Vec<NodeId> = tree.nodes().filter(|n| subset >> n.get() & 1 == 1).collect();
            let holds = if size > pinned.len() {
                pinned.iter().all(|n| chosen.contains(n))
            } else {
                chosen.iter().skip(1).all(|n| pinned.contains(n))
            };
            if chosen.len() == size && holds && connected(&tree, &chosen) {
                best = best.max(chosen.iter().map(|&n| capped(&tree, n)).sum());
            }
        }
        let (mut keep, mut scratch) = (Vec::new(), PruneScratch::with_capacity(tree.len()));
        select(&tree, width, &mut scratch, &mut keep);
        prop_assert!(connected(&tree, &keep) && keep.len() == size);
        prop_assert_eq!(keep.iter().map(|&n| capped(&tree, n)).sum::<f64>(), best);
        let mut expected = Vec::new();
        expected_tokens(&tree, &mut scratch, &mut expected);
        prop_assert_eq!(expected[size], best);
    }

    #[test]
    fn best_width_is_the_best_of_all(
        nodes in trees(40), costs in prop::collection::vec(1..50_u8, 8), rate in 0.0..2.0_f64,
    ) {
        let tree = tree_of(&nodes);
        let mut expected = Vec::new();
        expected_tokens(&tree, &mut PruneScratch::with_capacity(tree.len()), &mut expected);
        let widths = [32, 1, 2, 4, 8, 16, 64, 128];
        let cost = |w: u32| f64::from(costs[w.trailing_zeros() as usize]);
        let gain = |w: u32| expected[(w as usize).min(tree.len())] - rate * cost(w);
        let found = best_width(&expected, &widths, rate, cost).unwrap();
        for w in widths {
            prop_assert!(gain(found) > gain(w) || (gain(found) == gain(w) && found <= w));
        }
    }

    /// Over several trees, each with its own width: no assignment of widths gives more tokens per cost than choosing by
    /// the rate that choosing so reaches.
    #[test]
    fn choosing_by_the_rate_reached_reaches_the_best_rate(
        all in prop::collection::vec(trees(12), 1..4), costs in prop::collection::vec(1..50_u8, 4),
    ) {
        let widths = [1_u32, 2, 4, 8];
        let cost = |w: u32| f64::from(costs[w.trailing_zeros() as usize]);
        let expected: Vec<Vec<f64>> = all
            .iter()
            .map(|nodes| {
                let (tree, mut out) = (tree_of(nodes), Vec::new());
                expected_tokens(&tree, &mut PruneScratch::with_capacity(tree.len()), &mut out);
                out
            })
            .collect();
        let reached = |chosen: &dyn Fn(usize) -> u32| {
            let tokens: f64 =
                expected.iter().enumerate().map(|(i, e)| e[(chosen(i) as usize).min(e.len() - 1)]).sum();
            tokens / (0..expected.len()).map(|i| cost(chosen(i))).sum::<f64>()
        };
        let mut rate = 0.0;
        for _ in 0..20 {
            rate = reached(&|i| best_width(&expected[i], &widths, rate, cost).unwrap());
        }
        for assignment in 0..widths.len().pow(expected.len() as u32) {
            let other = reached(&|i| widths[assignment / widths.len().pow(i as u32) % widths.len()]);
            prop_assert!(rate >= other * (1.0 - 1e-12), "{rate} by choice, {other} by assignment {assignment}");
        }
    }
}

#[test]
fn a_child_worth_more_than_its_parent_counts_as_its_parent() {
    // 1 and 2 under the root; 3 under 2 claims more than 2.
    let tree = tree_of(&[(0, 512), (0, 256), (2, 1024)]);
    let mut scratch = PruneScratch::with_capacity(4);
    let (mut keep, mut expected) = (Vec::new(), Vec::new());
    select(&tree, 2, &mut scratch, &mut keep);
    assert_eq!(keep, [0, 1].map(NodeId::from_index));
    expected_tokens(&tree, &mut scratch, &mut expected);
    assert_eq!(expected, [0.0, 1.0, 1.5, 1.75, 2.0]);
}

#[test]
fn best_width_passes_over_a_local_descent() {
    let expected = [0.0, 1.0, 1.5, 1.9, 2.2, 2.4, 2.6, 2.8, 3.0];
    let staircase = |w: u32| {
        if w == 1 {
            1.0
        } else if w <= 4 {
            2.4
        } else {
            2.5
        }
    };
    // At this rate 8 rows just pay, which 2 and 4 do not.
    let rate = 1.2;
    assert_eq!(best_width(&expected, &[1, 2, 4, 8], rate, staircase), Some(8));
    assert_eq!(best_width(&expected, &[], rate, staircase), None);
    assert_eq!(best_width(&expected, &[64, 16], rate, |_| 1.0), Some(16));
}

#[test]
#[should_panic(expected = "the cost of width 4 is NaN")]
fn an_unmeasured_cost_is_a_broken_invariant() {
    best_width(&[0.0, 1.0], &[1, 4], 1.0, |w| if w == 1 { 1.0 } else { f64::NAN });
}

#[test]
#[should_panic(expected = "at least the root's row")]
fn width_zero_is_a_broken_invariant() {
    select(&tree_of(&[]), 0, &mut PruneScratch::with_capacity(1), &mut Vec::new());
}
