//! How deep a step drafts: to the planned depth, or to the depth that a predictor finds best for the step.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), depth prediction with eq. 3: the depth that gives most
//! expected tokens per predicted time of the step. The planner's replays and the decoder ask the same function.

use serde::{Deserialize, Serialize};

use super::{PlanError, check::ensure};

/// The rule by which a step chooses its depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepthRule {
    /// Always Dd.
    Fixed,
    /// At most Dd, by the depth predictor.
    Predicted,
}

/// What a step costs that drafts to one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DepthCost {
    /// Growths; 0 for a plain step.
    pub depth: u32,
    /// Predicted time of the whole step over the rows that such steps verify.
    pub step_us: f64,
    /// Time saved, compared with a step of Dd growths and equally many rows.
    pub saved_us: f64,
}

/// How a sub-plan's steps choose their depth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepthChoice {
    /// Always Dd.
    Fixed,
    /// The depth of most expected tokens per time, by the depth predictor.
    Predicted(DepthCosts),
}

/// The depths that a step may choose among.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepthCosts {
    /// For d = 1, 2, ..., Dd: the acceptance of this shape to depth d, as a share of the acceptance of the widest
    /// recorded tree, which is what predictors are trained on.
    pub reach: Vec<f64>,
    /// Ascending from depth 0 to Dd.
    pub costs: Vec<DepthCost>,
}

impl DepthChoice {
    /// Its rule.
    pub fn rule(&self) -> DepthRule {
        match self {
            DepthChoice::Fixed => DepthRule::Fixed,
            DepthChoice::Predicted(_) => DepthRule::Predicted,
        }
    }

    pub(super) fn validate(&self, depth: u32) -> Result<(), PlanError> {
        match self {
            DepthChoice::Fixed => Ok(()),
            DepthChoice::Predicted(costs) => costs.validate(depth),
        }
    }
}

impl DepthCosts {
    /// Checks that the depths ascend from 0 to `depth`, and the numbers.
    fn validate(&self, depth: u32) -> Result<(), PlanError> {
        let DepthCosts { reach, costs } = self;
        let show = || format!("{costs:?}");
        let ascending = costs.is_sorted_by(|a, b| a.depth < b.depth);
        let ends =
            costs.first().is_some_and(|c| c.depth == 0) && costs.last().is_some_and(|c| c.depth == depth);
        ensure(ascending && ends && depth >= 1, "choice of depth", "depths ascending from 0 to Dd", show)?;
        let good =
            |cost: &DepthCost| cost.step_us.is_finite() && cost.step_us > 0.0 && cost.saved_us.is_finite();
        ensure(costs.iter().all(good), "choice of depth", "finite positive times", show)?;
        let shares = reach.len() == depth as usize && reach.iter().all(|r| r.is_finite() && *r >= 0.0);
        ensure(shares, "choice of depth", "a share for every depth", || format!("{reach:?}"))
    }
}

#[cfg(test)]
impl DepthCosts {
    /// Of depths and times of steps that save nothing.
    pub(crate) fn of(reach: &[f64], costs: &[(u32, f64)]) -> Self {
        let cost = |&(depth, step_us): &(u32, f64)| DepthCost { depth, step_us, saved_us: 0.0 };
        Self { reach: reach.to_vec(), costs: costs.iter().map(cost).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_choices_are_refused() {
        let good = [(0, 1.0), (1, 2.0), (3, 3.0)];
        assert!(DepthChoice::Predicted(DepthCosts::of(&[1.0; 3], &good)).validate(3).is_ok());
        assert!(DepthChoice::Fixed.validate(0).is_ok());
        for (reach, costs, depth) in [
            (3, &good[..], 4),
            (2, &good, 3),
            (0, &[], 0),
            (1, &[(1, 2.0)], 1),
            (1, &[(0, 1.0), (0, 1.0), (1, 2.0)], 1),
            (1, &[(0, 1.0), (1, 0.0)], 1),
            (1, &[(0, f64::NAN), (1, 1.0)], 1),
        ] {
            let choice = DepthCosts::of(&vec![1.0; reach], costs);
            assert!(DepthChoice::Predicted(choice).validate(depth).is_err(), "{costs:?}");
        }
    }
}
