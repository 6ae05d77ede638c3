//! Replaying recorded steps of drafters that learn from the verifier: the trees as they were drafted, with fewer rows
//! verified.
//!
//! What such a drafter proposes depends on the rows that earlier steps verified, so a step cannot be drafted again
//! without the model. A recording answers for its own shape, and for those of fewer rows down to the next narrower
//! recording: their steps verify the recorded trees' best nodes, as drafted by a drafter that saw some more rows than
//! it would have.
use ygg_profiler::{LiveStep, LiveTrace};

use crate::planner::{
    JudgedNode, Tally,
    replay::{free_replay::accepted_length, tree_replay::judge},
};
use crate::tree::{NodeId, Source, TokenTree, select};
use crate::{
    plan::{RowChoice, Shape},
    policy::RowScratch,
};

/// The recorded shape.
pub(in crate::planner) fn recorded_shape(trace: &LiveTrace) -> Shape {
    Shape { depth: trace.depth, draft_width: trace.width, verify_width: trace.nodes }
}

/// Replays every step of a recording with as many rows verified as `choice` says. Steps count by the width they ran at.
pub fn replay_live(trace: &LiveTrace, choice: &RowChoice) -> Tally<u32> {
    let mut tally = Tally::default();
    let nodes = trace.nodes as usize;
    let (mut tree, mut scratch) = (TokenTree::with_capacity(nodes), RowScratch::with_capacity(nodes));
    let mut keep = Vec::new();
    for (prompt, steps) in trace.prompts.iter().enumerate() {
        for step in &steps.steps {
            draft_again(step, &mut tree);
            let rows = choice.rows(&mut tree, &mut scratch, None);
            select(&tree, rows as usize, &mut scratch.prune, &mut keep);
            let accepted = accepted_length(&tree, &keep, &step.verified);
            // A step that ended the request inside its tree gives no evidence of depths below.
            let ends_inside = tree.follow(step.verified.iter().copied()).count() == step.verified.len();
            let most = if ends_inside { step.verified.len() } else { usize::MAX };
            let rows = u32::try_from(keep.len()).expect("trees are small");
            tally.record(prompt, accepted, most, choice.planned(rows).width);
        }
    }
    tally
}

/// The nodes of all recorded trees whose outcome the recording tells.
pub fn judge_live(trace: &LiveTrace) -> Vec<JudgedNode> {
    let mut judged = Vec::new();
    let mut tree = TokenTree::with_capacity(trace.nodes as usize);
    for (prompt, steps) in trace.prompts.iter().enumerate() {
        for step in &steps.steps {
            draft_again(step, &mut tree);
            judge(&tree, prompt, &step.verified, &mut judged);
        }
    }
    judged
}

fn draft_again(step: &LiveStep, tree: &mut TokenTree) {
    tree.reset(step.tokens[0]);
    for node in 1..step.parents.len() {
        let parent = NodeId::from_index(step.parents[node] as usize);
        let _added = tree.insert(parent, step.tokens[node], step.values[node], 0, Source::NONE);
    }
    for node in &step.pinned {
        tree.pin(NodeId::from_index(*node as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{RowRule, WidthCost};
    use ygg_profiler::{DrafterName, LivePrompt};

    /// Root 5 with children 6 (0.5) and 8 (0.1); 7 (0.25) below 6; 8 pinned.
    fn trace(pinned: &[u32], verified: &[u32]) -> LiveTrace {
        let step = LiveStep {
            context: 3,
            parents: vec![0, 0, 1, 0],
            tokens: vec![5, 6, 7, 8],
            values: vec![1.0, 0.5, 0.25, 0.1],
            pinned: pinned.to_vec(),
            verified: verified.to_vec(),
        };
        let prompts = vec![LivePrompt { kind: "any".to_owned(), steps: vec![step; 2] }];
        let drafter = DrafterName::new("learner").unwrap();
        let trace = LiveTrace { drafter, temperature: 0.0, depth: 3, width: 1, nodes: 4, prompts };
        trace.validate().unwrap();
        trace
    }

    fn widest(width: u32) -> RowChoice {
        let widths = vec![WidthCost { width, step_us: 1.0 }];
        RowChoice { rule: RowRule::Widest, widths, rate: 1.0, calibration: None }
    }

    #[test]
    fn fewer_rows_accept_what_pruning_leaves_and_pinned_rows_stay() {
        let aal = |pinned: &[u32], verified: &[u32], width| {
            replay_live(&trace(pinned, verified), &widest(width)).accepted().aal()
        };
        assert_eq!([1, 2, 3, 4].map(|width| aal(&[], &[6, 7, 9], width)), [1.0, 2.0, 3.0, 3.0]);
        assert_eq!([1, 2, 3, 4].map(|width| aal(&[3], &[6, 7, 9], width)), [1.0, 1.0, 2.0, 3.0]);
        assert_eq!([2, 3, 4].map(|width| aal(&[3], &[8, 9], width)), [2.0; 3]);
        let tally = replay_live(&trace(&[], &[6, 7, 9]), &widest(3));
        assert_eq!((tally.accepted().steps(), tally.steps().get(&3)), (2, Some(&2)));
    }

    #[test]
    fn a_step_that_ends_the_request_inside_its_tree_tells_of_no_depth_below() {
        let judged = judge_live(&trace(&[], &[6]));
        assert_eq!(judged.len(), 4, "6 and 8 in either step, nothing below 6");
        assert_eq!(judged.iter().filter(|node| node.accepted).count(), 2);
        assert_eq!(judge_live(&trace(&[], &[6, 7, 9])).len(), 6);
        assert_eq!(replay_live(&trace(&[], &[6]), &widest(4)).accepted().aal(), 1.0);
    }

    /// A choice by rate never leaves out what is pinned, though other widths pay more.
    #[test]
    fn a_choice_by_rate_holds_the_pinned_rows() {
        let widths = [1, 2, 3, 4].map(|width| WidthCost { width, step_us: f64::from(width) }).to_vec();
        let choice = RowChoice { rule: RowRule::BestRate, widths, rate: 10.0, calibration: None };
        for (pinned, width) in [(&[][..], 1), (&[3], 2), (&[1, 3], 3), (&[1, 2, 3], 4)] {
            let tally = replay_live(&trace(pinned, &[6, 7, 9]), &choice);
            assert_eq!(tally.steps().keys().collect::<Vec<_>>(), [&width]);
        }
    }
}
