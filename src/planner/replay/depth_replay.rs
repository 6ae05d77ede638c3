//! Replaying recorded steps that choose their depth: what each would have drafted, verified and accepted.
use crate::planner::{
    Tally,
    replay::{
        grown_trees::{ValuedStep, ValuedTrees},
        tree_replay::StepPlace,
    },
};
use crate::{
    plan::{DepthCosts, RowChoice, Shape},
    policy::RowScratch,
};

/// How the steps of a shape choose their depth, and then their rows.
#[derive(Debug, Clone)]
pub(in crate::planner) struct DepthPolicy {
    pub(in crate::planner) shape: Shape,
    pub(in crate::planner) rows: RowChoice,
    pub(in crate::planner) depths: DepthCosts,
}

/// Replays the steps of `trees`, all with predicted depths, under every policy. Steps count by the depth they drafted
/// to and the width they ran at.
pub(in crate::planner) fn replay_depths(
    trees: &ValuedTrees<'_>,
    policies: &[DepthPolicy],
) -> Vec<Tally<(u32, u32)>> {
    let mut replays = vec![(Tally::default(), StepPlace::default()); policies.len()];
    let mut scratch = RowScratch::with_capacity(0);
    for ValuedStep { prompt, recorded, most, by_depth } in &trees.steps {
        for (DepthPolicy { shape, rows, depths }, (tally, place)) in policies.iter().zip(&mut replays) {
            if !place.is_at(*prompt, recorded.context) {
                continue;
            }
            let depth = depths.choose(&recorded.predicted, shape.depth).depth;
            let tree = &by_depth[depth as usize];
            let (verified, accepted) = if depth == 0 {
                (1, 0)
            } else {
                let chosen = rows.rows_expecting(&tree.expected, &mut scratch);
                (chosen.min(tree.nodes()), tree.accepted(chosen))
            };
            tally.record(*prompt, accepted, *most, (depth, rows.planned(verified).width));
            place.step(recorded.context, accepted);
        }
    }
    replays.into_iter().map(|(tally, _)| tally).collect()
}
