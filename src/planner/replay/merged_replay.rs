//! Replaying drafters that copy beside one that runs a model: the recorded trees of that one, merged with what the
//! copies propose at the same places.
//!
//! Copies follow from the text, and the model's trees were recorded at places of it, so every step that a mixture would
//! take there is known without running it: both proposals, which nodes of them are verified ([`SharedTree`]), whether
//! the model would have been left out, and how far the text goes along. What the drafters are trusted with follows from
//! the replayed steps, as it does from a request's. Few places of an answer in a row are recorded, so a few steps by
//! copies alone lead up to them.
use std::{collections::BTreeMap, ops::Range};

use ygg_profiler::{TokenTrace, Trace};

use crate::planner::{
    JudgedNode, Tally,
    replay::{free_replay::accepted_length, grown_trees::GrownTrees, tree_replay::judge},
};
use crate::sample::{Coupling, Sampling};
use crate::tree::{TokenTree, select};
use crate::{
    plan::{MixedModel, Mixture, ReplayDrafter, RowChoice, Shape},
    policy::{RowScratch, SharedTree},
};

/// Tokens before the recorded places of an answer from which steps by copies lead up to them: what such a step accepted
/// lately has been seen then.
const LEAD: usize = 16;

/// What decides the time of a step: the width that it ran at, and whether the model was run.
pub type MergedStep = (u32, bool);

/// Replays the steps of a mixture of `copies`, in its order, and `model`, whose trees along `requests` are recorded in
/// `traces`, in `shape` and with as many rows verified as `choice` says.
///
/// # Panics
/// If there is no trace, or a trace keeps fewer candidates than the draft width.
pub fn replay_merged(
    requests: &[TokenTrace],
    (traces, model): (&[&Trace], &MixedModel),
    copies: &mut [Box<dyn ReplayDrafter>],
    shape: Shape,
    choice: &RowChoice,
) -> Tally<MergedStep> {
    let grown = &GrownTrees::new(traces, shape.draft_width);
    let MixedModel { growths, certain_percent, .. } = *model;
    MergedReplay { requests, grown, shape, growths, certain_percent }.tally(copies, choice)
}

/// Steps of a mixture of one shape.
#[derive(Debug, Clone, Copy)]
pub(in crate::planner) struct MergedReplay<'a> {
    /// What was recorded at the temperature of the trees.
    pub(in crate::planner) requests: &'a [TokenTrace],
    /// The model's trees, of the draft width of the shape.
    pub(in crate::planner) grown: &'a GrownTrees<'a>,
    pub(in crate::planner) shape: Shape,
    /// Growths of the model's tree.
    pub(in crate::planner) growths: u32,
    /// As in the settings of the mixture.
    pub(in crate::planner) certain_percent: u32,
}

/// One replayed step at a recorded place.
struct Replayed<'s> {
    prompt: usize,
    tree: &'s TokenTree,
    /// The recorded output after the root.
    rest: &'s [u32],
    accepted: usize,
    rows: u32,
    is_model_run: bool,
}

impl MergedReplay<'_> {
    /// What the steps accepted with as many rows verified as `choice` says. `copies` are the drafters without a model,
    /// in the order of the mixture.
    pub(in crate::planner) fn tally(
        &self,
        copies: &mut [Box<dyn ReplayDrafter>],
        choice: &RowChoice,
    ) -> Tally<MergedStep> {
        let mut tally = Tally::default();
        self.walk(copies, choice, |step| {
            let kind = (choice.planned(step.rows).width, step.is_model_run);
            tally.record(step.prompt, step.accepted, step.rest.len(), kind);
        });
        tally
    }

    /// The nodes of all merged trees, wholly verified, whose outcome the text tells.
    pub(in crate::planner) fn judged(&self, copies: &mut [Box<dyn ReplayDrafter>]) -> Vec<JudgedNode> {
        let mut judged = Vec::new();
        // A cost is asked for but decides nothing where the width is fixed.
        let choice = RowChoice::fixed(self.shape.verify_width, 1.0);
        self.walk(copies, &choice, |step| judge(step.tree, step.prompt, step.rest, &mut judged));
        judged
    }

    fn walk(
        &self,
        copies: &mut [Box<dyn ReplayDrafter>],
        choice: &RowChoice,
        mut seen: impl FnMut(Replayed<'_>),
    ) {
        let Self { requests, grown, shape, growths, certain_percent } = *self;
        let limits = Mixture::limits_of_copies(shape);
        let (most, certain) = (shape.verify_width as usize, certain_percent as f32 / 100.0);
        let of_model = (growths * shape.draft_width + 1) as usize;
        let mut shared =
            SharedTree::with_capacities(copies.iter().map(|_| limits.nodes as usize).chain([of_model]));
        let mut tree = TokenTree::with_capacity(most);
        let mut scratch = RowScratch::with_capacity(most);
        let (mut keep, mut text) = (Vec::new(), Vec::new());
        copies.iter_mut().for_each(|copy| copy.forget());
        let (by_prompt, contexts) = by_prompt(grown);
        for (prompt, steps) in by_prompt {
            let Some(request) = requests.get(prompt) else { continue };
            text.clear();
            text.extend(request.prompt.iter().chain(&request.output));
            let (first, last) = (contexts[steps.start] as usize, contexts[steps.end - 1] as usize);
            // Recordings of other requests tell nothing about this one.
            if text.get(first) != Some(&grown.root(steps.start)) {
                continue;
            }
            let drawn = Sampling { temperature: request.temperature, seed: request.seed, ..Sampling::GREEDY };
            let coupling = Coupling::of(drawn);
            // Tokens that the next step knows, its root the last of them.
            let mut known = (first + 1).saturating_sub(LEAD).max(request.prompt.len() + 1);
            copies.iter_mut().for_each(|copy| copy.begin(&text[..known.min(text.len())]));
            while known <= last + 1 && known < text.len() {
                let (history, rest) = text.split_at(known);
                let root = history[known - 1];
                shared.begin_step(root);
                for (part, copy) in copies.iter_mut().enumerate() {
                    copy.propose(history, &limits, coupling.as_ref(), shared.proposal(part));
                }
                let recorded = contexts[steps.clone()].binary_search(&((known - 1) as u32)).ok();
                let recorded = recorded.map(|place| steps.start + place);
                let is_model_run = shared.followed_to(growths) < certain;
                if let (true, Some(step)) = (is_model_run, recorded) {
                    grown.plant(step, growths, shared.proposal(copies.len()));
                }
                tree.reset(root);
                shared.merge(most, &mut tree);
                let rows = choice.rows(&mut tree, &mut scratch, None);
                select(&tree, rows as usize, &mut scratch.prune, &mut keep);
                let accepted = accepted_length(&tree, &keep, rest);
                if recorded.is_some() {
                    let rows = u32::try_from(keep.len()).expect("trees are small");
                    seen(Replayed { prompt, tree: &tree, rest, accepted, rows, is_model_run });
                }
                let tokens = (accepted + 1).min(rest.len());
                shared.learn(&rest[..tokens]);
                known += tokens;
            }
            shared.forget_proposals();
        }
    }
}

/// The steps of every prompt, and the committed tokens before each.
fn by_prompt(grown: &GrownTrees<'_>) -> (BTreeMap<usize, Range<usize>>, Vec<u32>) {
    let mut all: BTreeMap<usize, Range<usize>> = BTreeMap::new();
    let mut contexts = Vec::new();
    for (step, (prompt, context)) in grown.places().enumerate() {
        all.entry(prompt).or_insert(step..step).end = step + 1;
        contexts.push(context);
    }
    (all, contexts)
}
