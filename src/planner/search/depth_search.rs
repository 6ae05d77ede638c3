//! Which depths the steps of a shape may choose among and what each costs; then what choosing gives over the recorded
//! steps.
use ygg_profiler::{TableError, Trace};

use crate::plan::{Calibration, DepthCost, DepthCosts, RowChoice, Schedule, Shape, step_us};
use crate::planner::{
    Tally, TreeReplay,
    price::{
        objective::mean_step,
        pricing::{Choosing, TreePrices},
        rates::Rates,
    },
    replay::{
        depth_replay::{DepthPolicy, replay_depths},
        grown_trees::ValuedTrees,
    },
};

/// The shapes of one drafter, draft width and rule of rows, replayed at fixed depths under the plain schedule.
#[derive(Debug, Clone, Copy)]
pub(in crate::planner) struct DepthSearch<'a> {
    pub(in crate::planner) traces: &'a [&'a Trace],
    pub(in crate::planner) trees: &'a ValuedTrees<'a>,
    pub(in crate::planner) prices: &'a TreePrices<'a>,
    pub(in crate::planner) calibration: Option<&'a Calibration>,
    pub(in crate::planner) replay: &'a TreeReplay,
    /// What the time of the shapes' steps is worth, as found for fixed depths.
    pub(in crate::planner) rates: &'a Rates,
}

/// A shape whose steps choose their depth, and what they gave.
#[derive(Debug)]
pub(in crate::planner) struct ReplayedDepths {
    pub(in crate::planner) shape: Shape,
    pub(in crate::planner) rows: RowChoice,
    pub(in crate::planner) depths: DepthCosts,
    pub(in crate::planner) tally: Tally<(u32, u32)>,
}

impl DepthSearch<'_> {
    /// Replays every shape, all of one draft width and replayed at fixed depths; none unless every step has
    /// predictions.
    pub(in crate::planner) fn replayed(&self, shapes: &[Shape]) -> Result<Vec<ReplayedDepths>, TableError> {
        let is_predicted = |trace: &&Trace| trace.steps().all(|step| !step.predicted.is_empty());
        if !self.traces.iter().all(is_predicted) {
            return Ok(Vec::new());
        }
        let policies = shapes.iter().map(|shape| self.policy(shape)).collect::<Result<Vec<_>, _>>()?;
        let tallies = replay_depths(self.trees, &policies);
        let replayed = policies.into_iter().zip(tallies).map(|(policy, tally)| {
            let DepthPolicy { shape, rows, depths } = policy;
            ReplayedDepths { shape, rows, depths, tally }
        });
        Ok(replayed.collect())
    }

    fn policy(&self, shape: &Shape) -> Result<DepthPolicy, TableError> {
        let prices = self.prices;
        let at = |depth, width| Ok(step_us(&prices.predicted_depth_step(depth, width)?));
        let by = Choosing { rule: prices.rule, calibration: self.calibration, rate: self.rates.of(shape) };
        let rows = prices.predicted_depth_choice(shape, by)?;
        let narrowest = rows.widths[0];
        let plain_us = at(0, 1)?;
        let saved_us = narrowest.step_us - plain_us;
        let mut costs = vec![DepthCost { depth: 0, step_us: plain_us, saved_us }];
        for depth in 1..=shape.depth {
            let Some(width) = self.width_at(shape, depth) else { continue };
            // A depth that the traces cannot answer for is none to choose.
            let Ok(tally) = self.replay.tally(depth, width) else { continue };
            let stages = mean_step(tally.steps(), |width| prices.predicted_depth_step(depth, width))?;
            let saved_us = narrowest.step_us - at(depth, narrowest.width)?;
            costs.push(DepthCost { depth, step_us: step_us(&stages), saved_us });
        }
        Ok(DepthPolicy { shape: *shape, rows, depths: DepthCosts { reach: self.reach(shape), costs } })
    }

    /// The largest width that the shape's steps may verify of a tree of `depth` growths.
    fn width_at(&self, shape: &Shape, depth: u32) -> Option<u32> {
        let nodes = Shape { depth, ..*shape }.nodes();
        let mut widths = self.prices.pricing.verify_widths(Schedule::Plain, shape.verify_width);
        widths.retain(|width| *width >= 2 && u64::from(*width) <= nodes);
        widths.last().copied()
    }

    /// How many steps of the shape accept to each depth, as a share of those that were predicted to.
    fn reach(&self, shape: &Shape) -> Vec<f64> {
        let replayed = self.replay.tally(shape.depth, shape.verify_width);
        let accepted = replayed.expect("a shape that was replayed").accepted().by_depth();
        let steps = || self.traces.iter().flat_map(|trace| trace.steps());
        let reach = |depth: usize| {
            let predicted: f64 =
                steps().map(|step| step.predicted.get(depth).map_or(0.0, |p| f64::from(*p))).sum();
            let predicted = predicted / steps().count().max(1) as f64;
            let accepted = accepted.get(depth).copied().unwrap_or(0.0);
            if predicted > 0.0 { accepted / predicted } else { 0.0 }
        };
        (0..shape.depth as usize).map(reach).collect()
    }
}
