//! Recording a drafter along answers that are known: it drafts at every place of them, and nothing needs to be verified.
//!
//! What the verifier says to a drafted tree is how the recorded answer goes on, since every recorded output is plain
//! decoding's. So no wide forward verifies, all drafters are recorded on the same texts, and a shape that accepts less than the
//! recorded one finds its next tree where it would stand itself. The judge, in `tests/it/trimming.rs`, takes every recorded step
//! with a decoder that verifies.
//!
//! Prompts differ more than the places of an answer, so of each answer a few places in a row are recorded, of the next answer the places
//! behind as many.
//!
//! Beside every step stays in memory what a depth network would have seen before it: too much for a profile to keep.

use std::{ops::RangeInclusive, time::Instant};

use ygg_profiler::{Candidate, DrafterName, Expansion, PromptTrace, StepTrace, TokenTrace, Trace};

use crate::{
    engine::{Error, Loaded},
    plan::DrafterKind,
    runtime::Session,
    speculate::{self, Budget, Drafter, Stats, StepShape, TraceObserver, depth_features, make_drafter},
    tree::{NodeId, TokenTree},
};

use super::trace::TraceOptions;

/// Places of an answer that are recorded: the most where answers are few, the fewest where there are steps enough without. Reading an answer
/// to there takes about as long as the fewest do.
const PLACES: RangeInclusive<usize> = 8..=16;

/// Temperature of the values by which recorded trees of a substitute grow along greedy answers. Sharper ones follow from it as far as the trees
/// reach, softer ones do not.
const SUBSTITUTE_TEMPERATURE: f32 = 0.7;

/// What a recording gives.
#[derive(Debug)]
pub(super) struct Redrafted {
    pub(super) trace: Trace,
    /// By prompt and step of the trace: what a depth network sees before the step, `[2 D]`.
    pub(super) features: Vec<Vec<Vec<f32>>>,
}

/// Keeps what a model drafter offered in one step.
#[derive(Debug, Default)]
struct Recorder {
    expanded: Vec<Expansion>,
}

impl TraceObserver for Recorder {
    fn expanded(&mut self, node: NodeId, candidates: &[speculate::Candidate]) {
        let candidates =
            candidates.iter().map(|c| Candidate { token: c.token, log_prob: c.log_prob }).collect();
        self.expanded.push(Expansion { node: node.get(), candidates });
    }
}

/// A drafter over a session, and the tree that it fills.
#[derive(Debug)]
struct Drafting {
    session: Session,
    drafter: Box<dyn Drafter>,
    tree: TokenTree,
}

/// Records the widest trees of a model drafter along `answers`, in order, until the time is over or there are enough steps; a part of the first in any case.
///
/// # Panics
/// If the drafter runs no model.
#[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the recording")]
pub(super) fn redraft(
    loaded: &Loaded,
    (name, kind): (&DrafterName, &DrafterKind),
    answers: &[TokenTrace],
    options: &TraceOptions<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Redrafted, Error> {
    // A substitute's first candidate is accepted more often than it says, if the verifier chooses its own.
    let is_sharp = kind.facts().substitute_bits.is_some() && options.temperature == 0.0;
    let draft_temperature = if is_sharp { SUBSTITUTE_TEMPERATURE } else { options.shape.draft_temperature };
    let shape = StepShape { draft_temperature, ..options.shape };
    let longest = answers.iter().map(|answer| answer.prompt.len() + answer.output.len()).max().unwrap_or(0);
    // Room for a tree at the last token.
    let context = (longest + shape.depth + 1).clamp(2, loaded.set().model_context());
    let session = options.session(loaded, context, &shape, Some(kind))?;
    let drafter = make_drafter(kind, &shape, &session)?.expect("a drafter that runs a model");
    let mut drafting = Drafting { session, drafter, tree: TokenTree::with_capacity(shape.tree_nodes()) };
    let (mut prompts, mut features, mut recorded) = (Vec::new(), Vec::new(), 0);
    let places = (options.most_steps / answers.len().max(1)).clamp(*PLACES.start(), *PLACES.end());
    let start = Instant::now();
    for (i, answer) in answers.iter().enumerate() {
        if i > 0 && (start.elapsed() > options.budget || recorded >= options.most_steps) {
            break;
        }
        let is_over = || start.elapsed() > options.budget;
        let parts = answer.output.len().div_ceil(places).max(1);
        let first = i % parts * places;
        let (steps, seen) =
            drafting.answer(answer, (first, places), loaded.end_ids(), shape.depth, is_over)?;
        recorded += steps.len();
        prompts.push(PromptTrace { kind: answer.kind.clone(), steps });
        features.push(seen);
        progress(i + 1, answers.len());
    }
    let StepShape { depth, draft_width, verify_width: _, top_k, draft_temperature } = shape;
    let number = |n: usize| u32::try_from(n).expect("shapes are small");
    let trace = Trace {
        drafter: name.clone(),
        temperature: options.temperature,
        draft_temperature,
        depth: number(depth),
        width: number(draft_width),
        top_k: number(top_k),
        prompts,
    };
    Ok(Redrafted { trace, features })
}

/// Steps along an answer, and what the depth predictor sees before each.
type RecordedAnswer = (Vec<StepTrace>, Vec<Vec<f32>>);

impl Drafting {
    /// Steps of one answer at so many `places`, behind its token number `first` and those that follow, as far as it tells how they end.
    fn answer(
        &mut self,
        TokenTrace { kind: _, temperature: _, prompt, output }: &TokenTrace,
        (first, places): (usize, usize),
        ends: &[u32],
        depth: usize,
        is_over: impl Fn() -> bool,
    ) -> Result<RecordedAnswer, Error> {
        let text = [&prompt[..], output].concat();
        let (mut steps, mut features) = (Vec::new(), Vec::new());
        // Tokens known to the step: all but the last of them are committed.
        let mut len = prompt.len() + first + 1;
        self.session.restart(&text[..len - 1])?;
        while steps.len() < places && len < text.len() && len + depth <= self.session.context() {
            if is_over() && !steps.is_empty() {
                break;
            }
            let root = text[len - 1];
            let mut seen = vec![0.0; 2 * self.session.set().model_width()];
            depth_features(&self.session, 0, root, &mut seen);
            let mut recorder = Recorder::default();
            self.tree.reset(root);
            let budget = Budget {
                session: &mut self.session,
                history: &text[..len],
                depth,
                rows: usize::MAX,
                stats: &mut Stats::default(),
                observer: Some(&mut recorder),
            };
            self.drafter.propose(&mut self.tree, budget)?;
            let Some(emitted) = emitted(&self.tree, &text[len..], ends) else { break };
            steps.push(StepTrace {
                context: u32::try_from(len - 1).expect("contexts are below 2^32"),
                parents: self.tree.nodes().map(|n| self.tree.parent(n).map_or(0, NodeId::get)).collect(),
                tokens: self.tree.nodes().map(|n| self.tree.token(n)).collect(),
                expanded: recorder.expanded,
                verified: text[len..len + emitted].to_vec(),
                predicted: Vec::new(),
            });
            features.push(seen);
            self.session.score(&[root], |_, _| {})?;
            len += 1;
        }
        Ok((steps, features))
    }
}

/// How many tokens a step with this tree emits of how the text goes on; `None` if the text ends before the step would.
fn emitted(tree: &TokenTree, rest: &[u32], ends: &[u32]) -> Option<usize> {
    let mut node = NodeId::ROOT;
    for (i, token) in rest.iter().enumerate() {
        match tree.child(node, *token) {
            Some(child) if !ends.contains(token) => node = child,
            Some(_) | None => return Some(i + 1),
        }
    }
    None
}
