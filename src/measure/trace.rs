//! Recording requests: the calibration prompts and the answers of plain decoding. Drafters are recorded along these
//! answers, but for one that drafts while they are given: where weights are streamed, the tokens are the same and come
//! sooner; a drafter with a cache of its own is recorded at every place without reading anything twice.

use std::time::{Duration, Instant};

use ygg_profiler::{PromptTrace, StepTrace, TokenTrace};

use crate::{
    engine::{Error, Loaded, Sampling},
    speculate::{BandSteps, Begin, Decoder, Limits, StepShape, TraceObserver, make_drafter},
};

use super::{
    redraft::{Recorder, Redrafted, ended, shape_of, trace_of},
    trace_options::{Answering, TraceOptions},
};

/// What answering prompts gives.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) requests: Vec<TokenTrace>,
    /// Most tokens of an answer.
    pub(super) tokens: usize,
    /// Time of a token, its part of reading the prompt included.
    pub(super) per_token: Duration,
    /// What was recorded of the drafter that drafted meanwhile.
    pub(super) drafted: Option<Redrafted>,
}

/// Most tokens of an answer: all that are wanted, or half where `fewest` prompts that take as long as the first would
/// not be recorded in time.
fn answer_tokens(wanted: usize, first: Duration, fewest: u32, budget: Duration) -> usize {
    if first.saturating_mul(fewest) > budget { wanted.div_ceil(2) } else { wanted }
}

/// The seed of the prompt at a place.
fn seed_of(place: usize) -> u64 {
    place as u64
}

/// Answers the prompts as plain decoding does, in order, until the time is over.
///
/// # Errors
/// [`Error`] of kind `Input` if no prompt fits the context or none was read in time.
#[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the recording")]
pub(super) fn record_requests(
    loaded: &Loaded,
    options: &TraceOptions<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Answers, Error> {
    let prompts = options.prompts;
    let ids = prompts.iter().map(|p| p.token_ids(loaded)).collect::<Result<Vec<_>, _>>()?;
    let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
    let mut answerer = Answerer::new(loaded, options, longest)?;
    let mut requests: Vec<TokenTrace> = Vec::new();
    let mut longest_answer = options.tokens;
    let start = Instant::now();
    for (i, (prompt, ids)) in prompts.iter().zip(ids).enumerate() {
        if i > 0 && start.elapsed() > options.budget {
            break;
        }
        if ids.len() >= answerer.context {
            continue;
        }
        // The first request may take longer: without one there is nothing to plan by.
        let most = if i == 0 { 2 * options.budget } else { options.budget };
        let is_over = || start.elapsed() > most;
        let Some(mut output) = answerer.answer((i, &ids), longest_answer, &prompt.kind, &is_over)? else {
            break;
        };
        if i == 0 {
            let fewest = options.fewest_prompts.min(u32::try_from(prompts.len()).unwrap_or(u32::MAX));
            longest_answer = answer_tokens(options.tokens, start.elapsed(), fewest, options.budget);
        }
        output.truncate(longest_answer);
        let kind = prompt.kind.clone();
        requests.push(TokenTrace {
            kind,
            temperature: options.temperature,
            seed: seed_of(i),
            prompt: ids,
            output,
        });
        progress(i + 1, prompts.len());
    }
    if requests.is_empty() && start.elapsed() > options.budget {
        return Err(Error::input(format!(
            "no calibration prompt was read in {:.1?}: expected one or more; allow more time",
            start.elapsed()
        )));
    }
    if requests.is_empty() {
        return Err(Error::input(format!(
            "no calibration prompt fits the model's context of {} tokens: expected at least one shorter one",
            loaded.set().model_context()
        )));
    }
    let answered: usize = requests.iter().map(|request| request.output.len()).sum();
    let per_token = start.elapsed().div_f64(answered.max(1) as f64);
    Ok(Answers { requests, tokens: longest_answer, per_token, drafted: answerer.drafted() })
}

/// A decoder that answers prompts, and the trees that were drafted meanwhile.
struct Answerer<'a> {
    loaded: &'a Loaded,
    options: &'a TraceOptions<'a>,
    decoder: Decoder,
    shape: StepShape,
    context: usize,
    prompts: Vec<PromptTrace>,
    features: Vec<Vec<Vec<f32>>>,
    steps: usize,
}

impl<'a> Answerer<'a> {
    /// For prompts of at most `longest` tokens.
    fn new(loaded: &'a Loaded, options: &'a TraceOptions<'a>, longest: usize) -> Result<Self, Error> {
        let shape = options.answered_with.map_or(StepShape::PLAIN, |Answering { kind, rows, .. }| {
            StepShape { verify_width: rows, ..shape_of(kind, options) }
        });
        let kind = options.answered_with.map(|answering| answering.kind);
        // Room for a tree at the last token.
        let context = longest + options.tokens + shape.depth + 1;
        let context = context.clamp(2, loaded.set().model_context());
        let session = options.session(loaded, context, &shape, kind)?;
        let drafter = kind.map(|kind| make_drafter(kind, &shape, &session)).transpose()?.flatten();
        let decoder = Decoder::new(session, vec![BandSteps::unplanned(drafter, &shape)])?;
        let (prompts, features, steps) = (Vec::new(), Vec::new(), 0);
        Ok(Self { loaded, options, decoder, shape, context, prompts, features, steps })
    }

    /// At least so many tokens of the answer to a prompt, the place of which is its seed, unless it ends or the time is
    /// over, which lets its first token be followed; `None` if the time is over before that.
    fn answer(
        &mut self,
        (place, ids): (usize, &[u32]),
        tokens: usize,
        kind: &str,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u32>>, Error> {
        let Self { loaded, options, decoder, shape, context, .. } = self;
        let ends = loaded.end_ids();
        let sampling =
            Sampling { temperature: options.temperature, seed: seed_of(place), ..Sampling::GREEDY };
        let begin = Begin { is_cancelled: is_over, ..Begin::new(ids, sampling) };
        let Some(mut last) = decoder.begin(&begin)? else { return Ok(None) };
        let (mut steps, mut features): (Vec<StepTrace>, Vec<Vec<f32>>) = (Vec::new(), Vec::new());
        let mut emitted = 1;
        while emitted < tokens && !ends.contains(&last) && !(is_over() && emitted > 1) {
            let known = decoder.history().len();
            if known == *context {
                break;
            }
            // A tree is recorded whole. The step of one that is verified may go on after the last token that is wanted;
            // one at the end of an answer that does not tell how it ends is not drafted.
            let is_wanted = self.steps + steps.len() < options.most_steps.max(1);
            let left = match options.answered_with {
                Some(answering) if answering.verifies_trees() => (tokens - emitted).max(shape.depth + 1),
                _ if is_wanted && tokens - emitted > shape.depth => tokens - emitted,
                _ => 1,
            };
            let left = left.min(*context - known);
            let is_recorded = shape.depth > 0 && left > shape.depth && is_wanted;
            let mut recorder = Recorder::default();
            if is_recorded && options.keeps_features {
                features.push(decoder.depth_features());
            }
            let observer = is_recorded.then_some(&mut recorder as &mut dyn TraceObserver);
            decoder.step(Limits { tokens: left, ends }, observer)?;
            if is_recorded {
                steps.push(recorder.step(decoder.tree(), known - 1));
            }
            last = *decoder.emitted().last().expect("a step emits");
            emitted += decoder.emitted().len();
        }
        let text = decoder.history();
        // Of the last trees the answer may not tell how they end.
        let behind = |step: &StepTrace| &text[step.context as usize + 1..];
        let steps: Vec<StepTrace> = steps
            .into_iter()
            .map_while(|step| {
                let rest = behind(&step).to_vec();
                ended(step, &rest, ends)
            })
            .collect();
        features.truncate(steps.len());
        let output = text[ids.len()..].to_vec();
        self.steps += steps.len();
        self.prompts.push(PromptTrace { kind: kind.to_owned(), steps });
        self.features.push(features);
        Ok(Some(output))
    }

    /// What was recorded of the drafter.
    fn drafted(self) -> Option<Redrafted> {
        let Self { options, shape, prompts, features, .. } = self;
        let Answering { name, .. } = options.answered_with?;
        Some(Redrafted { trace: trace_of(name, options.temperature, &shape, prompts), features })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_halved_where_too_few_prompts_would_be_recorded() {
        let budget = Duration::from_secs(24);
        let tokens = |first_ms, fewest| answer_tokens(97, Duration::from_millis(first_ms), fewest, budget);
        assert_eq!([tokens(1000, 24), tokens(1001, 24), tokens(1001, 23)], [97, 49, 97]);
        assert_eq!(tokens(u64::MAX, 0), 97, "never");
        assert_eq!(tokens(u64::MAX, u32::MAX), 49);
    }
}
