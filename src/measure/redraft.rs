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
    time::{Duration, Instant},
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

/// Places of an answer that are recorded: the fewest where time or steps would not suffice for more in every answer,
/// since prompts differ more than places. Reading an answer to there takes about as long as the fewest do.
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

impl Redrafted {
    /// Adds what was recorded of the answers after these.
    fn extend(&mut self, further: Self) {
        self.trace.prompts.extend(further.trace.prompts);
        self.features.extend(further.features);
    }
}

/// Records drafters along `answers`, the tokens of which took `plain` each. Half of the time and of the steps is for all
/// alike, the other half for the one that did best in the first: it is what a plan will rest on, and a few steps are
/// lucky or not. The options say how much each has in the mean.
pub(super) fn redraft_each(
    loaded: &Loaded,
    models: &[&(DrafterName, DrafterKind)],
    (answers, plain): (&[TokenTrace], Duration),
    options: &TraceOptions<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Redrafted>, Error> {
    let is_one = models.len() == 1;
    let of_first = match is_one {
        true => *options,
        false => TraceOptions {
            budget: options.budget / 2,
            most_steps: options.most_steps.div_ceil(2),
            ..*options
        },
    };
    let (mut recorded, mut rates) = (Vec::new(), Vec::new());
    for model in models {
        let (redrafted, time) = redraft(loaded, model, answers, &of_first, progress)?;
        rates.push(rate(&redrafted.trace, time, plain));
        recorded.push(redrafted);
    }
    let Some(best) = best_of_several(&rates) else { return Ok(recorded) };
    let rest = &answers[recorded[best].trace.prompts.len()..];
    if !rest.is_empty() {
        let of_all = TraceOptions {
            budget: of_first.budget * u32::try_from(models.len()).expect("few drafters"),
            most_steps: of_first.most_steps * models.len(),
            ..*options
        };
        recorded[best].extend(redraft(loaded, models[best], rest, &of_all, progress)?.0);
    }
    Ok(recorded)
}

/// The place of the highest rate; `None` if there is nothing to choose from.
fn best_of_several(rates: &[f64]) -> Option<usize> {
    let all = 0..rates.len();
    all.max_by(|a, b| rates[*a].total_cmp(&rates[*b])).filter(|_| rates.len() > 1)
}

/// Tokens that recorded steps emit in the time of drafting and of a verification that takes as long as `plain`. Trees
/// are grown as far as any shape's, so it is less than the best shape's.
fn rate(trace: &Trace, drafting: Duration, plain: Duration) -> f64 {
    let tokens: usize = trace.steps().map(|step| step.verified.len()).sum();
    tokens as f64 / (drafting.as_secs_f64() + plain.as_secs_f64() * trace.steps().count() as f64)
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
/// steps; a part of the first in any case. With the time that it took.
///
/// # Panics
/// If the drafter runs no model.
#[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the recording")]
fn redraft(
    loaded: &Loaded,
    (name, kind): &(DrafterName, DrafterKind),
    answers: &[TokenTrace],
    options: &TraceOptions<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Redrafted, Duration), Error> {
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
    let mut places = places_of_each(answers.len(), options.most_steps, || f64::INFINITY);
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
        places = places_of_each(answers.len() - i - 1, options.most_steps.saturating_sub(recorded), || {
            let of_step = start.elapsed().as_secs_f64() / recorded as f64;
            options.budget.saturating_sub(start.elapsed()).as_secs_f64() / of_step
        });
        prompts.push(PromptTrace { kind: answer.kind.clone(), steps });
        features.push(seen);
        progress(i + 1, answers.len());
    }
    let trace = trace_of(name, options.temperature, &shape, prompts);
    Ok((Redrafted { trace, features }, start.elapsed()))
}

/// Places that are recorded of each of the next answers, given how many there are, how many steps are wanted and for
/// how many there is time.
fn places_of_each(answers: usize, wanted: usize, in_time: impl Fn() -> f64) -> usize {
    let steps = wanted.min(in_time() as usize);
    (steps / answers.max(1)).clamp(*PLACES.start(), *PLACES.end())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_get_as_many_places_each_as_all_of_them_can_have() {
        let places = |answers, wanted, in_time: f64| places_of_each(answers, wanted, || in_time);
        assert_eq!([places(10, 120, 1e9), places(10, 120, 90.0), places(10, 1000, 1e9)], [12, 9, 16]);
        assert_eq!([places(10, 120, 0.0), places(10, 0, 1e9), places(0, 120, 1e9)], [8, 8, 16]);
        assert_eq!(places(3, 120, f64::NAN), 8, "nothing was recorded yet");
    }

    #[test]
    fn tokens_count_by_the_time_of_drafting_and_verifying() {
        let step = |tokens: usize| StepTrace {
            context: 4,
            parents: vec![0],
            tokens: vec![1],
            expanded: Vec::new(),
            verified: vec![1; tokens],
            predicted: Vec::new(),
        };
        let prompts = vec![PromptTrace { kind: "chat".to_owned(), steps: vec![step(3), step(5)] }];
        let name = DrafterName::new("layer_skip").unwrap();
        let trace = trace_of(&name, 0.0, &StepShape::PLAIN, prompts);
        let rate = |drafting, plain| rate(&trace, Duration::from_secs(drafting), Duration::from_secs(plain));
        assert_eq!([rate(2, 3), rate(4, 0), rate(0, 1)], [1.0, 2.0, 4.0]);
        assert_eq!(best_of_several(&[rate(2, 3), rate(0, 1), rate(4, 0)]), Some(1));
        assert_eq!(
            [best_of_several(&[2.0]), best_of_several(&[])],
            [None; 2],
            "all of it is that one's anyway"
        );
    }
}
