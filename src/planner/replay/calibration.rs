//! Calibration: how probable it is that the verifier accepts a drafted node, given the drafter's score and the depth.
//!
//! A drafter's score of a path (a product of its own probabilities, or whatever a drafter without a model ranks by)
//! says which node is better, not how good. Recorded steps say both: every node of a verified tree was accepted or not.
//! Per depth the nodes are put into bins of about equal count by score, the share accepted in a bin is shrunk towards
//! the share that nodes of like score have at all depths, and pooling adjacent violators makes it rise with the score
//! (isotonic regression: Barlow et al., *Statistical Inference under Order Restrictions*, 1972).
use crate::{
    plan::{Calibration, HeldOut, INTERVALS, Interval, Knot},
    policy::probability,
};

/// Most bins of one depth.
const BINS: usize = 16;
/// Fewest nodes in a bin.
const FEWEST_NODES: usize = 32;
/// Nodes of like score at any depth that count as much as the bin's own.
const PRIOR_NODES: f64 = 16.0;
/// Every how many prompts one is held out.
const HOLD_OUT: usize = 3;

/// A drafted node whose outcome is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JudgedNode {
    /// Place of the prompt it was drafted for.
    pub prompt: usize,
    /// The drafter's value of it.
    pub score: f32,
    /// Distance from the root, 1 or more.
    pub depth: u32,
    /// Whether the verifier accepted it.
    pub accepted: bool,
}

impl Calibration {
    /// Fits the nodes of two prompts in three and judges itself by the third; with fewer prompts it fits all. `None`
    /// without a node to fit.
    pub fn fit(nodes: &[JudgedNode]) -> Option<Self> {
        let is_held_out = |node: &&JudgedNode| node.prompt % HOLD_OUT == HOLD_OUT - 1;
        let held_out: Vec<JudgedNode> = nodes.iter().filter(is_held_out).copied().collect();
        let fitted: Vec<JudgedNode> = nodes.iter().filter(|node| !is_held_out(node)).copied().collect();
        if fitted.is_empty() {
            return None;
        }
        let pooled = isotonic(&bins(&fitted), |_| None);
        let deepest = fitted.iter().map(|node| node.depth).max().unwrap_or(1);
        let by_depth = (1..=deepest).map(|depth| {
            let here: Vec<JudgedNode> = fitted.iter().filter(|node| node.depth == depth).copied().collect();
            if here.is_empty() {
                return pooled.clone();
            }
            isotonic(&bins(&here), |score| Some(probability(&pooled, score)))
        });
        let mut calibration =
            Calibration { by_depth: by_depth.collect(), fitted_nodes: fitted.len() as u64, held_out: None };
        calibration.held_out = (!held_out.is_empty()).then(|| {
            let intervals = by_interval(&held_out, |node| calibration.probability(node.score, node.depth));
            HeldOut {
                nodes: held_out.len() as u64,
                error: error(&intervals),
                raw_error: error(&by_interval(&held_out, |node| node.score.min(1.0))),
                intervals,
            }
        });
        Some(calibration)
    }
}

/// Nodes of neighbouring scores.
#[derive(Debug, Clone, Copy)]
struct Bin {
    lowest: f32,
    sum: f64,
    nodes: f64,
    accepted: f64,
}

/// Bins of about equal count, ascending; nodes of equal score share one.
fn bins(nodes: &[JudgedNode]) -> Vec<Bin> {
    let mut ascending = nodes.to_vec();
    ascending.sort_by(|a, b| a.score.total_cmp(&b.score));
    let full = (nodes.len() / BINS).max(FEWEST_NODES) as f64;
    let mut bins: Vec<Bin> = Vec::new();
    let mut last = f32::NAN;
    for JudgedNode { score, accepted, .. } in ascending {
        if bins.last().is_none_or(|bin| bin.nodes >= full && score != last) {
            bins.push(Bin { lowest: score, sum: 0.0, nodes: 0.0, accepted: 0.0 });
        }
        let bin = bins.last_mut().expect("one was pushed");
        bin.sum += f64::from(score);
        bin.nodes += 1.0;
        bin.accepted += f64::from(u8::from(accepted));
        last = score;
    }
    bins
}

/// The rising step function nearest to the shares of the bins, each shrunk towards the prior of its mean score.
fn isotonic(bins: &[Bin], prior: impl Fn(f32) -> Option<f32>) -> Vec<Knot> {
    // Pooled blocks: lowest score, weight, weighted hits.
    let mut blocks: Vec<(f32, f64, f64)> = Vec::new();
    for Bin { lowest, sum, nodes, accepted } in bins {
        let (mut block, mut weight, mut hits) = (*lowest, *nodes, *accepted);
        if let Some(prior) = prior((sum / nodes) as f32) {
            weight += PRIOR_NODES;
            hits += PRIOR_NODES * f64::from(prior);
        }
        while let Some((low, w, h)) = blocks.last().copied() {
            if h / w < hits / weight {
                break;
            }
            (block, weight, hits) = (low, weight + w, hits + h);
            blocks.pop();
        }
        blocks.push((block, weight, hits));
    }
    let knots = blocks.iter().enumerate().map(|(i, (lowest, weight, hits))| Knot {
        score: if i == 0 { 0.0 } else { *lowest },
        probability: (hits / weight).clamp(0.0, 1.0) as f32,
    });
    knots.collect()
}

/// The nodes by the interval that their predicted probability lies in.
fn by_interval(nodes: &[JudgedNode], predict: impl Fn(&JudgedNode) -> f32) -> [Interval; INTERVALS] {
    let mut intervals = [Interval::default(); INTERVALS];
    for node in nodes {
        let predicted = f64::from(predict(node));
        let interval = &mut intervals[((predicted * INTERVALS as f64) as usize).min(INTERVALS - 1)];
        interval.nodes += 1;
        interval.expected += predicted;
        interval.accepted += u64::from(node.accepted);
    }
    intervals
}

/// Expected calibration error; NaN without nodes.
fn error(intervals: &[Interval]) -> f64 {
    let differences = intervals.iter().map(|i| (i.expected - i.accepted as f64).abs());
    differences.sum::<f64>() / intervals.iter().map(|i| i.nodes).sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Nodes whose chance is the square of their score at depth 1, and half of that deeper.
    fn nodes(count: usize) -> Vec<JudgedNode> {
        let mut state = 9u64;
        let mut dice = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let node = |i| {
            let (score, depth) = (dice(), 1 + (i % 3) as u32);
            let chance = score * score * if depth == 1 { 1.0 } else { 0.5 };
            JudgedNode { prompt: i / 50, score, depth, accepted: dice() < chance }
        };
        (0..count).map(node).collect()
    }

    #[test]
    fn what_generated_the_nodes_is_found_again() {
        let all = nodes(30_000);
        let calibration = Calibration::fit(&all).unwrap();
        calibration.validate().unwrap();
        for (score, depth, expected) in [(0.5, 1, 0.25), (0.5, 2, 0.125), (0.9, 1, 0.81), (0.9, 3, 0.405)] {
            let found = calibration.probability(score, depth);
            assert!((found - expected).abs() < 0.06, "{score} at depth {depth}: {found}");
        }
        // Deeper than recorded: as the deepest.
        assert_eq!(calibration.probability(0.7, 9), calibration.probability(0.7, 3));
        let HeldOut { nodes, error, raw_error, intervals } = calibration.held_out.unwrap();
        assert!(nodes > 9_000 && error < 0.02 && raw_error > 0.2, "{error} instead of {raw_error}");
        assert_eq!(intervals.iter().map(|interval| interval.nodes).sum::<u64>(), nodes);
        for (place, interval) in intervals.into_iter().enumerate() {
            let inside: Vec<(f64, bool)> = all
                .iter()
                .filter(|node| node.prompt % HOLD_OUT == HOLD_OUT - 1)
                .map(|node| (f64::from(calibration.probability(node.score, node.depth)), node.accepted))
                .filter(|(chance, _)| (chance * INTERVALS as f64).floor().min(9.0) == place as f64)
                .collect();
            assert_eq!(interval.nodes, inside.len() as u64);
            assert_eq!(interval.accepted, inside.iter().filter(|(_, accepted)| *accepted).count() as u64);
            assert_eq!(interval.expected, inside.iter().map(|(chance, _)| chance).sum::<f64>());
        }
    }

    #[test]
    fn a_depth_that_was_seldom_seen_is_judged_by_all_depths() {
        let mut nodes = nodes(9_000);
        nodes.retain(|node| node.depth == 1);
        let lucky = JudgedNode { prompt: 0, score: 0.1, depth: 2, accepted: true };
        nodes.push(lucky);
        let calibration = Calibration::fit(&nodes).unwrap();
        assert!(calibration.probability(0.1, 2) < 0.2, "one node decides nothing");
        assert!(Calibration::fit(&[]).is_none());
        let alone = Calibration::fit(&[lucky]).unwrap();
        assert_eq!((alone.probability(0.9, 1), alone.held_out), (1.0, None));
    }

    proptest! {
        #[test]
        fn probabilities_rise_with_the_score(
            raw in prop::collection::vec((0..9_usize, 0..40_u8, 1..5_u32, any::<bool>()), 1..400),
            scores in prop::collection::vec(0.0f32..1.5, 2),
        ) {
            let nodes: Vec<JudgedNode> = raw
                .into_iter()
                .map(|(prompt, score, depth, accepted)| {
                    JudgedNode { prompt, score: f32::from(score) / 39.0, depth, accepted }
                })
                .collect();
            let Some(calibration) = Calibration::fit(&nodes) else {
                prop_assert!(nodes.iter().all(|n| n.prompt % HOLD_OUT == HOLD_OUT - 1));
                return Ok(());
            };
            calibration.validate().unwrap();
            let (low, high) = (scores[0].min(scores[1]), scores[0].max(scores[1]));
            for depth in 1..6 {
                let (low, high) = (calibration.probability(low, depth), calibration.probability(high, depth));
                prop_assert!(low <= high);
            }
        }

        /// Against the max-min formula of isotonic regression, which looks at every interval.
        #[test]
        fn pooling_is_the_isotonic_regression(raw in prop::collection::vec((1..20_u8, 0..20_u8), 1..12)) {
            let bins: Vec<Bin> = raw
                .iter()
                .enumerate()
                .map(|(i, (nodes, accepted))| Bin {
                    lowest: i as f32 / 16.0,
                    sum: 0.0,
                    nodes: f64::from(*nodes),
                    accepted: f64::from(*accepted.min(nodes)),
                })
                .collect();
            let curve = isotonic(&bins, |_| None);
            for i in 0..bins.len() {
                let share = |from: usize, to: usize| {
                    let hits: f64 = bins[from..=to].iter().map(|b| b.accepted).sum();
                    hits / bins[from..=to].iter().map(|b| b.nodes).sum::<f64>()
                };
                let least = |from| (i..bins.len()).map(|to| share(from, to)).fold(f64::INFINITY, f64::min);
                let expected = (0..=i).map(least).fold(0.0, f64::max);
                let found = f64::from(probability(&curve, bins[i].lowest));
                prop_assert!((found - expected).abs() < 1e-6, "{} instead of {}", found, expected);
            }
        }
    }
}
