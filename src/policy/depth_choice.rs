//! How deep a step drafts: as deep as planned, or as deep as pays by the prediction for this step.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), depth prediction with eq. 3: the depth that gives most
//! expected tokens per predicted time of the step. The planner's replays and the decoder ask the same function.

use crate::plan::{DepthCost, DepthCosts};

impl DepthCosts {
    /// The depth to draft to, `most` at most, when P(accepted >= d) is `predicted[d - 1]`: the one with most expected
    /// tokens per time, of equals the least.
    ///
    /// # Panics
    /// If there is no depth.
    pub fn choose<P: Copy + Into<f64>>(&self, predicted: &[P], most: u32) -> DepthCost {
        let mut best = *self.costs.first().expect("a choice has a depth");
        let (mut best_rate, mut tokens, mut counted) = (1.0 / best.step_us, 1.0, 0);
        for cost in self.costs[1..].iter().take_while(|cost| cost.depth <= most) {
            while counted < cost.depth as usize {
                let predicted = predicted.get(counted).map_or(0.0, |predicted| (*predicted).into());
                tokens += predicted * self.reach.get(counted).copied().unwrap_or(0.0);
                counted += 1;
            }
            let rate = tokens / cost.step_us;
            if rate > best_rate {
                (best, best_rate) = (*cost, rate);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Eq. 3 written out, multiples of 1/64 so that sums are exact.
    fn best_rate(choice: &DepthCosts, predicted: &[f64], most: u32) -> f64 {
        let rate = |cost: &DepthCost| {
            let tokens: f64 = (0..cost.depth as usize).map(|d| predicted[d] * choice.reach[d]).sum();
            (1.0 + tokens) / cost.step_us
        };
        choice.costs.iter().filter(|cost| cost.depth <= most).map(rate).fold(0.0, f64::max)
    }

    proptest! {
        #[test]
        fn the_depth_chosen_has_the_best_rate(
            predicted in prop::collection::vec(0..=64_u8, 6),
            reach in prop::collection::vec(0..=4_u8, 6),
            costs in prop::collection::vec((any::<bool>(), 1..60_u8), 6),
            most in 0..8_u32,
        ) {
            let predicted: Vec<f64> = predicted.iter().map(|t| f64::from(*t) / 64.0).collect();
            let reach: Vec<f64> = reach.iter().map(|r| f64::from(*r) / 4.0).collect();
            let depths = costs.iter().enumerate().filter(|(depth, (allowed, _))| *depth == 0 || *allowed);
            let costs: Vec<(u32, f64)> =
                depths.map(|(depth, (_, us))| (depth as u32, f64::from(*us))).collect();
            let choice = DepthCosts::of(&reach, &costs);
            let chosen = choice.choose(&predicted, most);
            prop_assert!(chosen.depth <= most);
            let tokens: f64 = (0..chosen.depth as usize).map(|d| predicted[d] * reach[d]).sum();
            prop_assert_eq!((1.0 + tokens) / chosen.step_us, best_rate(&choice, &predicted, most));
        }
    }

    #[test]
    fn of_equal_depths_the_least_is_chosen_and_what_nobody_told_is_not_expected() {
        let choice = DepthCosts::of(&[1.0, 1.0], &[(0, 10.0), (1, 15.0), (2, 20.0)]);
        assert_eq!(choice.choose(&[0.5, 0.5], 9).depth, 0);
        assert_eq!(choice.choose(&[1.0, 0.9], 9).depth, 2);
        assert_eq!(choice.choose(&[1.0, 0.9], 1).depth, 1);
        assert_eq!(choice.choose(&[1.0], 9).depth, 1);
        assert_eq!(choice.choose::<f64>(&[], 9).depth, 0);
    }
}
