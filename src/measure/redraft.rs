//! Recording a drafter along answers that are known: it drafts at every place of them, and nothing needs to be
//! verified.
//!
//! What the verifier says to a drafted tree is how the recorded answer goes on, since every recorded output is plain
//! decoding's. So no wide forward verifies, all drafters are recorded on the same texts, and a shape that accepts less
//! than the recorded one finds its next tree where it would stand itself. The judge, in `tests/it/trimming.rs`, takes
//! every recorded step with a decoder that verifies.
//!
//! Prompts differ more than the places of an answer, so of each answer a few places in a row are recorded, of the next
//! answer the places after as many.
//!
//! With every step there stays in memory what a depth network would have seen before it: too much for a profile to
//! keep.

use std::{
    ops::{Range, RangeInclusive},
    time::Instant,
};

use ygg_profiler::{Candidate, DrafterName, Expansion, PromptTrace, StepTrace, TokenTrace, Trace};

use crate::{
    engine::{Error, Loaded},
    plan::DrafterKind,
    planner::recorded_tree,
    runtime::Session,
    sample::{Coupling, Sampling},
    speculate::{self, Budget, Drafter, Stats, StepShape, TraceObserver, depth_features, make_drafter},
    tree::{NodeId, TokenTree},
};

use super::trace_options::TraceOptions;

/// Places of an answer that are recorded: the most where answers are few, the fewest where there are steps enough
/// without. Reading an answer to there takes about as long as the fewest do.
const PLACES: RangeInclusive<usize> = 8..=16;

/// Temperature of the values by which recorded trees of a substitute grow along greedy answers. Sharper ones follow
/// from it as far as the trees reach, softer ones do not.
const SUBSTITUTE_TEMPERATURE: f32 = 0.7;

/// Temperature of the values by which recorded trees grow along answers that were drawn. A drafter that knows the noise
/// finds the token more often than its probabilities alone say: with a substitute of 3 bits of the default model, six
/// growths of two nodes and nine rows, 4.2 tokens a step at 0.4 and 3.8 at 1 (temperature 1).
const DRAWN_TEMPERATURE: f32 = 0.5;

/// What a recording gives.
#[derive(Debug)]
pub(super) struct Redrafted {
    pub(super) trace: Trace,
    /// By prompt and step of the trace: what a depth network sees before the step, `[2 D]`.
    pub(super) features: Vec<Vec<Vec<f32>>>,
}

/// Keeps what a model drafter offered in one step.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    expanded: Vec<Expansion>,
}

impl Recorder {
    /// The step that drafted `tree` after so many committed tokens, before it is known how the text goes on.
    pub(super) fn step(self, tree: &TokenTree, committed: usize) -> StepTrace {
        StepTrace {
            context: u32::try_from(committed).expect("contexts are below 2^32"),
            parents: tree.nodes().map(|n| tree.parent(n).map_or(0, NodeId::get)).collect(),
            tokens: tree.nodes().map(|n| tree.token(n)).collect(),
            expanded: self.expanded,
            verified: Vec::new(),
            predicted: Vec::new(),
        }
    }
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
    depth: usize,
    /// The noise that decided the answer, if any did.
    coupling: Option<Coupling>,
    /// Whether places of a text may be come to from its end: drafters with a cache of their own read a text forwards. A
    /// text is read in few forwards then, where weights are streamed each a reading.
    rewinds: bool,
}

/// Records the widest trees of a model drafter along `answers`, in order, until the time is over or there are enough
/// steps; a part of the first in any case.
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
    let shape = shape_of(kind, options);
    let longest = answers.iter().map(|answer| answer.prompt.len() + answer.output.len()).max().unwrap_or(0);
    // Room for a tree at the last token.
    let context = (longest + shape.depth + 1).clamp(2, loaded.set().model_context());
    let session = options.session(loaded, context, &shape, Some(kind))?;
    let drafter = make_drafter(kind, &shape, &session)?.expect("a drafter that runs a model");
    let tree = TokenTree::with_capacity(shape.tree_nodes());
    let rewinds = !kind.keeps_a_cache();
    let mut drafting = Drafting { session, drafter, tree, depth: shape.depth, coupling: None, rewinds };
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
        let (steps, seen) = drafting.answer(answer, (first, places), loaded.end_ids(), is_over)?;
        recorded += steps.len();
        prompts.push(PromptTrace { kind: answer.kind.clone(), steps });
        features.push(seen);
        progress(i + 1, answers.len());
    }
    Ok(Redrafted { trace: trace_of(name, options.temperature, &shape, prompts), features })
}

/// The shape that trees of a drafter are recorded in.
pub(super) fn shape_of(kind: &DrafterKind, options: &TraceOptions<'_>) -> StepShape {
    // A substitute's first candidate is accepted more often than it says, if the verifier chooses its own.
    let draft_temperature = match kind.facts().substitute_bits {
        _ if options.temperature > 0.0 => DRAWN_TEMPERATURE,
        Some(_) => SUBSTITUTE_TEMPERATURE,
        None => options.shape.draft_temperature,
    };
    let shape = StepShape { draft_temperature, ..options.shape };
    match kind.drafts_blocks() {
        // Trees grow by a node at a time: as many nodes as are verified at most.
        true => StepShape { depth: shape.verify_width.saturating_sub(1).max(1), draft_width: 1, ..shape },
        false => shape,
    }
}

/// The trace of a drafter's trees of one shape.
pub(super) fn trace_of(
    name: &DrafterName,
    temperature: f32,
    shape: &StepShape,
    prompts: Vec<PromptTrace>,
) -> Trace {
    let StepShape { depth, draft_width, verify_width: _, top_k, draft_temperature } = *shape;
    let number = |n: usize| u32::try_from(n).expect("shapes are small");
    Trace {
        drafter: name.clone(),
        temperature,
        draft_temperature,
        depth: number(depth),
        width: number(draft_width),
        top_k: number(top_k),
        prompts,
    }
}

/// Steps along an answer, and what the depth predictor sees before each.
type RecordedAnswer = (Vec<StepTrace>, Vec<Vec<f32>>);

impl Drafting {
    /// Steps of one answer at so many `places`, after its token number `first` and those that follow, as far as it
    /// tells how they end.
    fn answer(
        &mut self,
        TokenTrace { kind: _, temperature, seed, prompt, output }: &TokenTrace,
        (first, places): (usize, usize),
        ends: &[u32],
        is_over: impl Fn() -> bool,
    ) -> Result<RecordedAnswer, Error> {
        let text = [&prompt[..], output].concat();
        self.coupling = Coupling::of(Sampling { temperature: *temperature, seed: *seed, ..Sampling::GREEDY });
        // Tokens known to the first step: all but the last of them are committed.
        let first = prompt.len() + first + 1;
        let end = text.len().min((self.session.context() + 1).saturating_sub(self.depth)).min(first + places);
        if first >= end {
            return Ok((Vec::new(), Vec::new()));
        }
        if !self.rewinds {
            return self.forwards(&text, first..end, ends, is_over);
        }
        let mut features = self.read(&text, first..end)?;
        let mut steps = Vec::new();
        for len in (first..end).rev() {
            if is_over() && !steps.is_empty() {
                break;
            }
            self.session.truncate(len - 1);
            match ended(self.drafted(&text[..len])?, &text[len..], ends) {
                Some(step) => steps.push(step),
                // As if it had been come to first.
                None => {
                    steps.clear();
                    features.truncate(len - first);
                }
            }
        }
        steps.reverse();
        features.drain(..features.len() - steps.len());
        Ok((steps, features))
    }

    /// Steps at the places of a text, by the number of tokens that they know, in the order of the text.
    fn forwards(
        &mut self,
        text: &[u32],
        places: Range<usize>,
        ends: &[u32],
        is_over: impl Fn() -> bool,
    ) -> Result<RecordedAnswer, Error> {
        let (mut steps, mut features) = (Vec::new(), Vec::new());
        self.session.restart(&text[..places.start - 1])?;
        for len in places {
            if is_over() && !steps.is_empty() {
                break;
            }
            let root = text[len - 1];
            let seen = self.seen(0, root);
            let Some(step) = ended(self.drafted(&text[..len])?, &text[len..], ends) else { break };
            steps.push(step);
            features.push(seen);
            self.session.score(&[root], |_, _| {})?;
        }
        Ok((steps, features))
    }

    /// Commits a text up to the last of its places, all of them in few forwards, and gives what the depth predictor
    /// sees before each.
    fn read(&mut self, text: &[u32], places: Range<usize>) -> Result<Vec<Vec<f32>>, Error> {
        let mut features = Vec::with_capacity(places.len());
        self.session.restart(&text[..places.start - 1])?;
        features.push(self.seen(0, text[places.start - 1]));
        let widest = *self.session.set().widths().last().expect("width 1 is always planned");
        let mut len = places.start;
        while len < places.end - 1 {
            let rows = widest.min(places.end - 1 - len);
            self.session.score(&text[len - 1..len - 1 + rows], |_, _| {})?;
            features.extend((0..rows).map(|row| self.seen(row, text[len + row])));
            len += rows;
        }
        Ok(features)
    }

    /// What the depth predictor sees before a step from `root`, which an output of the last forward gave.
    fn seen(&self, output: usize, root: u32) -> Vec<f32> {
        let mut seen = vec![0.0; 2 * self.session.set().model_width()];
        depth_features(&self.session, output, root, &mut seen);
        seen
    }

    /// The step that drafts after `history`, all of which but the last token is committed.
    fn drafted(&mut self, history: &[u32]) -> Result<StepTrace, Error> {
        let mut recorder = Recorder::default();
        self.tree.reset(history[history.len() - 1]);
        let budget = Budget {
            session: &mut self.session,
            history,
            depth: self.depth,
            rows: usize::MAX,
            coupling: self.coupling,
            stats: &mut Stats::default(),
            observer: Some(&mut recorder),
        };
        self.drafter.propose(&mut self.tree, budget)?;
        Ok(recorder.step(&self.tree, history.len() - 1))
    }
}

/// The step with the tokens that it emits of how the text goes on; `None` if the text ends before the step would.
pub(super) fn ended(step: StepTrace, rest: &[u32], ends: &[u32]) -> Option<StepTrace> {
    let before_end = rest.iter().copied().take_while(|token| !ends.contains(token));
    let accepted = recorded_tree(&step).follow(before_end).count();
    let verified = rest.get(..=accepted)?.to_vec();
    Some(StepTrace { verified, ..step })
}
