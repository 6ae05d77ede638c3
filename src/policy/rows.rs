//! How many rows a step verifies: as many as planned, or as many as pay for themselves in the tree at hand.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), verification-width pruning: once a tree is drafted,
//! the best subtree of every planned width is known, and so is what a step of that width costs. The planner's replays
//! and the decoder ask the same function, so a step is priced as it will be run.
use crate::{
    plan::{RowChoice, RowRule},
    tree::{PruneScratch, TokenTree, best_width, expected_tokens},
};

use super::StepCosts;

/// Storage that choosing reuses between steps.
#[derive(Debug, Clone)]
pub struct RowScratch {
    /// What pruning to the chosen rows needs too.
    pub prune: PruneScratch,
    expected: Vec<f64>,
    widths: Vec<u32>,
}

impl RowScratch {
    /// Room for trees of `nodes` nodes and as many planned widths.
    pub fn with_capacity(nodes: usize) -> Self {
        RowScratch {
            prune: PruneScratch::with_capacity(nodes),
            expected: Vec::with_capacity(nodes + 1),
            widths: Vec::with_capacity(nodes + 1),
        }
    }
}

impl RowChoice {
    /// Most rows of `tree` to verify, at costs as planned or corrected. A choice by rate leaves calibrated values in
    /// the tree, for pruning to go by. What a step takes whatever it verifies decides nothing.
    pub fn rows(&self, tree: &mut TokenTree, scratch: &mut RowScratch, costs: Option<&StepCosts>) -> u32 {
        match self.rule {
            RowRule::Widest => self.widest(),
            RowRule::BestRate => {
                if let Some(calibration) = &self.calibration {
                    calibration.apply(tree);
                }
                expected_tokens(tree, &mut scratch.prune, &mut scratch.expected);
                let pinned = u32::try_from(tree.pinned()).unwrap_or(u32::MAX);
                self.best_rate(&scratch.expected, &mut scratch.widths, costs, pinned)
            }
        }
    }

    /// [`rows`](Self::rows), as planned, of a tree without pinned nodes whose best w nodes, by calibrated values not
    /// above their ancestors', are expected to give `expected[w]` tokens, `[nodes + 1]`.
    pub fn rows_expecting(&self, expected: &[f64], scratch: &mut RowScratch) -> u32 {
        match self.rule {
            RowRule::Widest => self.widest(),
            RowRule::BestRate => self.best_rate(expected, &mut scratch.widths, None, 0),
        }
    }

    /// Widths beyond the smallest that holds the whole tree are no candidates: no step would run at them. Neither are
    /// those that do not hold the pinned nodes, where another does: what those are worth, later steps tell.
    fn best_rate(
        &self,
        expected: &[f64],
        widths: &mut Vec<u32>,
        costs: Option<&StepCosts>,
        pinned: u32,
    ) -> u32 {
        let whole = self.planned(u32::try_from(expected.len() - 1).unwrap_or(u32::MAX)).width;
        widths.clear();
        let least = pinned.saturating_add(1).min(whole);
        widths.extend(self.widths.iter().map(|cost| cost.width).filter(|w| (least..=whole).contains(w)));
        let cost = |width| {
            let planned_us = self.planned(width).step_us;
            costs.map_or(planned_us, |costs| costs.corrected_us(width, planned_us))
        };
        best_width(expected, widths, self.rate, cost).expect("a choice has a width")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        plan::{Calibration, WidthCost},
        tree::{NodeId, Source},
    };

    fn choice(rule: RowRule, widths: &[(u32, f64)]) -> RowChoice {
        let widths = widths.iter().map(|(width, step_us)| WidthCost { width: *width, step_us: *step_us });
        RowChoice { rule, widths: widths.collect(), rate: 0.125, calibration: None }
    }

    /// Values are multiples of 1/64, so that sums are exact whatever their order.
    fn tree_of(nodes: &[(usize, u8)]) -> TokenTree {
        let mut tree = TokenTree::with_capacity(nodes.len() + 1);
        tree.reset(0);
        for (i, (parent, value)) in nodes.iter().enumerate() {
            let value = f32::from(*value) / 64.0;
            let parent = NodeId::from_index(parent % (i + 1));
            let _added = tree.insert(parent, i as u32, value, 0, Source::NONE);
        }
        tree
    }

    /// The most tokens beyond what the time is worth, over every connected set of nodes that a planned width holds, by
    /// trying all sets.
    fn best_gain_of_all_subtrees(tree: &TokenTree, choice: &RowChoice) -> f64 {
        let value = |node: NodeId| {
            let path = tree.ancestors(node).map(|a| tree.value(a));
            f64::from(path.fold(tree.value(node), f32::min))
        };
        let mut best = f64::NEG_INFINITY;
        for set in (1u32..1 << tree.len()).step_by(2) {
            let chosen = |node: NodeId| set >> node.get() & 1 == 1;
            if tree.nodes().any(|n| chosen(n) && tree.parent(n).is_some_and(|p| !chosen(p))) {
                continue;
            }
            let tokens: f64 = tree.nodes().filter(|n| chosen(*n)).map(value).sum();
            if let Some(cost) = choice.widths.iter().find(|w| w.width >= set.count_ones()) {
                best = best.max(tokens - choice.rate * cost.step_us);
            }
        }
        best
    }

    proptest! {
        #[test]
        fn the_choice_is_the_best_of_all_subtrees_and_widths(
            nodes in prop::collection::vec((0..8_usize, 0..=64_u8), 0..8),
            costs in prop::collection::vec(1..60_u8, 5),
            rate in 1..64_u8,
        ) {
            let mut tree = tree_of(&nodes);
            let widths: Vec<(u32, f64)> =
                [1, 2, 3, 5, 9].into_iter().zip(costs.iter().map(|c| f64::from(*c))).collect();
            let choice = RowChoice { rate: f64::from(rate) / 64.0, ..choice(RowRule::BestRate, &widths) };
            let mut scratch = RowScratch::with_capacity(tree.len());
            let rows = choice.rows(&mut tree, &mut scratch, None);
            let kept = (rows as usize).min(tree.len());
            let run_at = choice.planned(kept as u32);
            prop_assert_eq!(run_at.width, rows, "a step runs at the width it chose");
            let mut keep = Vec::new();
            crate::tree::select(&tree, rows as usize, &mut scratch.prune, &mut keep);
            let mut expected = Vec::new();
            expected_tokens(&tree, &mut scratch.prune, &mut expected);
            let gain = expected[keep.len()] - choice.rate * run_at.step_us;
            prop_assert_eq!(gain, best_gain_of_all_subtrees(&tree, &choice));
        }

        #[test]
        fn one_width_or_the_widest_rule_is_the_fixed_width(
            nodes in prop::collection::vec((0..8_usize, 0..=64_u8), 0..8), width in 1..10_u32,
        ) {
            let mut tree = tree_of(&nodes);
            let mut scratch = RowScratch::with_capacity(tree.len());
            let alone = choice(RowRule::BestRate, &[(width, 7.0)]);
            prop_assert_eq!(alone.rows(&mut tree, &mut scratch, None), width);
            let widest = choice(RowRule::Widest, &[(1, 1.0), (width + 1, 7.0)]);
            prop_assert_eq!(widest.rows(&mut tree, &mut scratch, None), width + 1);
        }
    }

    #[test]
    fn calibrated_values_decide() {
        let knots = |probability| vec![crate::plan::Knot { score: 0.0, probability }];
        let calibration =
            Calibration { by_depth: vec![knots(0.25), knots(1.0)], fitted_nodes: 1, held_out: None };
        let mut choice = choice(RowRule::BestRate, &[(1, 10.0), (2, 11.0), (3, 12.0)]);
        let rows = |choice: &RowChoice, scale: u8| {
            let mut tree = tree_of(&[(0, scale), (1, scale)]);
            let rows = choice.rows(&mut tree, &mut RowScratch::with_capacity(3), None);
            (rows, tree.value(NodeId::from_index(1)))
        };
        assert_eq!(rows(&choice, 1), (1, 1.0 / 64.0));
        choice.calibration = Some(calibration);
        // Both nodes are worth 1/4, the deeper as much as its parent, and a row costs 1/8.
        assert_eq!(rows(&choice, 1), (3, 0.25));
    }

    #[test]
    fn rows_that_have_become_dear_are_left_out() {
        let choice = choice(RowRule::BestRate, &[(1, 10.0), (2, 11.0), (3, 12.0)]);
        let mut tree = tree_of(&[(0, 16), (0, 12)]);
        let mut scratch = RowScratch::with_capacity(3);
        let mut costs = StepCosts::new(10.0);
        assert_eq!(choice.rows(&mut tree, &mut scratch, Some(&costs)), 3);
        for _ in 0..100 {
            costs.took(3, 12.0, 15.0);
        }
        // A row now costs 2.5 of the plan's microseconds, 0.31 tokens.
        assert_eq!(choice.rows(&mut tree, &mut scratch, Some(&costs)), 1);
    }

    #[test]
    fn a_forward_runs_at_the_smallest_width_that_holds_it() {
        let choice = choice(RowRule::Widest, &[(1, 1.0), (4, 2.0), (8, 3.0)]);
        assert_eq!([1, 2, 4, 5, 8, 9].map(|rows| choice.planned(rows).width), [1, 4, 4, 8, 8, 8]);
    }
}
