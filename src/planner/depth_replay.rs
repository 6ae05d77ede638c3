//! Replaying recorded steps that choose their depth: what each would have drafted, verified and accepted.
use std::collections::BTreeMap;

use ygg_profiler::Trace;

use super::{AcceptedLengths, tree_replay::Growth};
use crate::plan::{Calibration, DepthCosts, RowChoice, Shape};

/// How the steps of a shape choose their depth, and then their rows.
#[derive(Debug, Clone)]
pub(super) struct DepthPolicy {
    pub(super) shape: Shape,
    pub(super) rows: RowChoice,
    pub(super) depths: DepthCosts,
}

/// What steps under a policy gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DepthOutcome {
    pub(super) accepted: AcceptedLengths,
    /// Steps by the depth they drafted to and the width they ran at.
    pub(super) steps: BTreeMap<(u32, u32), u64>,
}

/// Replays every step of `traces`, all with predicted depths, with `draft_width` nodes per growth under every policy.
///
/// # Panics
/// As [`TreeReplay::new`](super::TreeReplay::new).
pub(super) fn replay_depths(
    traces: &[&Trace],
    draft_width: u32,
    policies: &[DepthPolicy],
    calibration: Option<&Calibration>,
) -> Vec<DepthOutcome> {
    let mut outcomes = vec![DepthOutcome::default(); policies.len()];
    let top_k = traces.iter().map(|t| t.top_k).min().unwrap_or(0) as usize;
    let deepest = policies.iter().map(|p| p.shape.depth).max().unwrap_or(0) as usize;
    let mut growth = Growth::new(deepest, draft_width as usize, top_k);
    for step in traces.iter().flat_map(|trace| trace.steps()) {
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
            let here = policies.iter().zip(&chosen).zip(&mut outcomes);
            for ((policy, cost), outcome) in here.filter(|((_, cost), _)| cost.depth as usize == depth) {
                let (rows, accepted) = if depth == 0 {
                    (1, 0)
                } else {
                    let rows = policy.rows.rows_of(values, &mut growth.scratch);
                    let verified = growth.places.iter().take_while(|place| **place < rows as usize);
                    (rows.min(u32::try_from(values.len()).unwrap_or(u32::MAX)), verified.count())
                };
                outcome.accepted.record(accepted, most);
                let width = policy.rows.planned(rows).width;
                *outcome.steps.entry((cost.depth, width)).or_default() += 1;
            }
        }
    }
    outcomes
}
