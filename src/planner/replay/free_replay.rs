//! Replaying drafters that need no model: the drafter itself runs over recorded requests.
use ygg_profiler::TokenTrace;

use crate::planner::{JudgedNode, Tally, replay::tree_replay::judge};
use crate::sample::{Coupling, Sampling};
use crate::tree::{NodeId, TokenTree, select};
use crate::{
    plan::{ProposalLimits, ReplayDrafter, RowChoice, Shape},
    policy::RowScratch,
};

/// Replays `traces` step by step: propose, accept the longest path the recorded output follows, emit one more token.
/// Steps count by the width they ran at.
///
/// The first output token comes from prefill and is the first root. `choice` says how much of a proposal is verified;
/// the step runs at the smallest of its widths that holds that. The end of a recorded output shortens no proposal:
/// most outputs end where the recording was stopped.
///
/// # Panics
/// If the widest choice is not the shape's verify width, or the drafter exceeds the limits.
pub fn replay_free(
    traces: &[TokenTrace],
    drafter: &mut dyn ReplayDrafter,
    shape: &Shape,
    choice: &RowChoice,
) -> Tally<u32> {
    let mut tally = Tally::default();
    walk(traces, drafter, shape, choice, |step| {
        let FreeStep { prompt, rest, accepted, rows, .. } = step;
        tally.record(prompt, accepted, rest.len(), choice.planned(rows).width);
    });
    tally
}

/// The nodes of all proposals of this shape, wholly verified, whose outcome the recorded outputs tell.
///
/// # Panics
/// If the drafter exceeds the limits.
pub fn judge_proposals(
    traces: &[TokenTrace],
    drafter: &mut dyn ReplayDrafter,
    shape: &Shape,
) -> Vec<JudgedNode> {
    let mut judged = Vec::new();
    // A cost is asked for but decides nothing where the width is fixed.
    walk(traces, drafter, shape, &RowChoice::fixed(shape.verify_width, 1.0), |step| {
        judge(step.tree, step.prompt, step.rest, &mut judged);
    });
    judged
}

/// One replayed step.
struct FreeStep<'a> {
    /// Place of the request.
    prompt: usize,
    tree: &'a TokenTree,
    /// The recorded output after the root.
    rest: &'a [u32],
    accepted: usize,
    /// Rows verified.
    rows: u32,
}

fn walk(
    traces: &[TokenTrace],
    drafter: &mut dyn ReplayDrafter,
    shape: &Shape,
    choice: &RowChoice,
    mut seen: impl FnMut(FreeStep<'_>),
) {
    assert_eq!(choice.widest(), shape.verify_width, "the choice is of the shape's widths");
    let limits = ProposalLimits { depth: shape.depth, width: shape.draft_width, nodes: shape.verify_width };
    let mut tree = TokenTree::with_capacity(shape.verify_width as usize);
    let mut scratch = RowScratch::with_capacity(shape.verify_width as usize);
    let (mut keep, mut history) = (Vec::new(), Vec::new());
    drafter.forget();
    for (prompt, trace) in traces.iter().enumerate() {
        let TokenTrace { kind: _, temperature, seed, prompt: tokens, output } = trace;
        let drawn = Sampling { temperature: *temperature, seed: *seed, ..Sampling::GREEDY };
        let coupling = Coupling::of(drawn);
        history.clear();
        history.extend_from_slice(tokens);
        history.extend(output.first());
        drafter.begin(&history);
        let mut emitted = 1;
        while emitted < output.len() {
            let rest = &output[emitted..];
            tree.reset(output[emitted - 1]);
            drafter.propose(&history, &limits, coupling.as_ref(), &mut tree);
            let deepest = tree.nodes().map(|n| tree.depth(n)).max().unwrap_or(0);
            assert!(deepest <= limits.depth, "a proposal of depth {deepest} exceeds {limits:?}");

            let rows = choice.rows(&mut tree, &mut scratch, None);
            select(&tree, rows as usize, &mut scratch.prune, &mut keep);
            let accepted = accepted_length(&tree, &keep, rest);
            let rows = u32::try_from(keep.len()).expect("trees are small");
            seen(FreeStep { prompt, tree: &tree, rest, accepted, rows });
            let tokens = (accepted + 1).min(rest.len());
            history.extend_from_slice(&rest[..tokens]);
            emitted += tokens;
        }
    }
}

/// Drafted tokens that the recorded output follows among the nodes kept.
pub(in crate::planner) fn accepted_length(tree: &TokenTree, keep: &[NodeId], rest: &[u32]) -> usize {
    let is_kept = |node: &NodeId| keep.binary_search(node).is_ok();
    tree.follow(rest.iter().copied()).take_while(is_kept).count()
}
