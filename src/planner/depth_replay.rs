//! Replaying recorded steps that choose their depth: what each would have drafted, verified and accepted.
use ygg_profiler::Trace;

use super::{
    Tally,
    tree_replay::{Growth, StepPlace, recorded_prompts},
};
use crate::plan::{Calibration, DepthCosts, RowChoice, Shape};

/// How the steps of a shape choose their depth, and then their rows.
#[derive(Debug, Clone)]
pub(super) struct DepthPolicy {
    pub(super) shape: Shape,
    pub(super) rows: RowChoice,
    pub(super) depths: DepthCosts,
}

/// Replays the answers of `traces`, all with predicted depths, with `draft_width` nodes per growth under every policy. Steps count by
/// the depth they drafted to and the width they ran at.
///
/// # Panics
/// As [`TreeReplay::new`](super::TreeReplay::new).
pub(super) fn replay_depths(
    traces: &[&Trace],
    draft_width: u32,
    policies: &[DepthPolicy],
    calibration: Option<&Calibration>,
) -> Vec<Tally<(u32, u32)>> {
    let mut tallies = vec![Tally::default(); policies.len()];
    let mut places = vec![StepPlace::default(); policies.len()];
    let top_k = traces.iter().map(|t| t.top_k).min().unwrap_or(0) as usize;
    let deepest = policies.iter().map(|p| p.shape.depth).max().unwrap_or(0) as usize;
    let mut growth = Growth::new(deepest, draft_width as usize, top_k);
    for (prompt, steps) in recorded_prompts(traces) {
        for step in steps {
            growth.grow(step, calibration);
            growth.walk(&step.verified);
            let most = if growth.is_cut { step.verified.len() } else { usize::MAX };
            let chosen: Vec<_> =
                policies.iter().map(|p| p.depths.choose(&step.predicted, p.shape.depth)).collect();
            for depth in 0..=deepest {
                if depth > 0 {
                    growth.place_path(depth);
                }
                let values = &growth.values[..growth.sizes[depth]];
                for (number, (policy, cost)) in policies.iter().zip(&chosen).enumerate() {
                    if cost.depth as usize != depth || !places[number].is_at(prompt, step.context) {
                        continue;
                    }
                    let (rows, accepted) = if depth == 0 {
                        (1, 0)
                    } else {
                        let rows = policy.rows.rows_of(values, &mut growth.scratch);
                        let verified = growth.places.iter().take_while(|place| **place < rows as usize);
                        (rows.min(u32::try_from(values.len()).unwrap_or(u32::MAX)), verified.count())
                    };
                    let width = policy.rows.planned(rows).width;
                    tallies[number].record(prompt, accepted, most, (cost.depth, width));
                    places[number].step(step.context, accepted);
                }
            }
        }
    }
    tallies
}
