//! Calibration: how probable it is that the verifier accepts a drafted node, given the drafter's score and the depth.
use serde::{Deserialize, Serialize};

use super::{PlanError, check::ensure};

/// Intervals of predicted probability, of equal length, over which predictions are compared with what happened.
pub const INTERVALS: usize = 10;

/// The probability from a score on, up to the next knot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Knot {
    /// The lowest score.
    pub score: f32,
    /// The probability.
    pub probability: f32,
}

/// Acceptance probability as a step function of the score, one for each depth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// For depths 1, 2, ..., the last for all deeper ones: scores and probabilities ascend, the first score is 0.
    pub by_depth: Vec<Vec<Knot>>,
    /// Nodes it was fitted to.
    pub fitted_nodes: u64,
    /// How it does on prompts that it was not fitted to, if there were enough.
    pub held_out: Option<HeldOut>,
}

/// Expected calibration error on held-out nodes: the mean over ten intervals of predicted probability, weighted by
/// nodes, of the difference between the mean prediction and the share accepted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Nodes judged.
    pub nodes: u64,
    /// The error of the calibrated probabilities.
    pub error: f64,
    /// The error of the scores, had they been taken for probabilities.
    pub raw_error: f64,
    /// The nodes by the interval of their calibrated probability, from 0 up.
    pub intervals: [Interval; INTERVALS],
}

/// Held-out nodes of like predicted probability.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Nodes in it.
    pub nodes: u64,
    /// How many of them were expected to be accepted: the sum of the predictions.
    pub expected: f64,
    /// How many were.
    pub accepted: u64,
}

impl Calibration {
    pub(crate) fn validate(&self) -> Result<(), PlanError> {
        let Calibration { by_depth, fitted_nodes: _, held_out } = self;
        let good = |curve: &Vec<Knot>| {
            curve.first().is_some_and(|knot| knot.score == 0.0)
                && curve.is_sorted_by(|a, b| a.score < b.score && a.probability <= b.probability)
                && curve.iter().all(|k| k.score.is_finite() && (0.0..=1.0).contains(&k.probability))
        };
        ensure(
            !by_depth.is_empty() && by_depth.iter().all(good),
            "calibration",
            "probabilities that rise with scores from 0 on",
            || format!("{by_depth:?}"),
        )?;
        let errors = held_out.map_or([0.0; 2], |h| [h.error, h.raw_error]);
        let shares = errors.iter().all(|e| (0.0..=1.0).contains(e));
        ensure(shares, "calibration error", "0 to 1", || format!("{errors:?}"))?;
        let Some(HeldOut { nodes, error: _, raw_error: _, intervals }) = held_out else { return Ok(()) };
        let possible = |i: &Interval| i.accepted <= i.nodes && i.expected.is_finite() && i.expected >= 0.0;
        let sum = intervals.iter().try_fold(0u64, |sum, interval| sum.checked_add(interval.nodes));
        let agree = sum == Some(*nodes) && intervals.iter().all(possible);
        ensure(agree, "held-out intervals", "counts that sum to the nodes judged", || {
            format!("{intervals:?}")
        })
    }
}
