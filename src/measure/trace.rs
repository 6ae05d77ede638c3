//! Recording requests: the calibration prompts and the answers of plain decoding. Drafters are recorded along these answers.

use std::time::{Duration, Instant};

use ygg_profiler::TokenTrace;

use crate::{
    engine::{Error, Loaded, Sampling, tune},
    plan::{ChosenTuning, DrafterKind},
    runtime::{Pinning, Session, SessionOptions},
    speculate::{Begin, Decoder, Limits, StepShape, make_drafter},
};

use super::calibration::CalibrationPrompt;

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceOptions<'a> {
    /// Growths and nodes per growth of the recorded trees.
    pub(super) shape: StepShape,
    /// Most tokens per prompt.
    pub(super) tokens: usize,
    /// Prompts that count for more than long answers: where the time would be over before so many, as the first one tells, answers have half as
    /// many tokens. With 0 they never have.
    pub(super) fewest_prompts: u32,
    /// Temperature of the requests.
    pub(super) temperature: f32,
    /// No prompt but the first is begun after this time, and no token but the first of an answer. The first is read in twice the time, or
    /// not at all.
    pub(super) budget: Duration,
    /// No answer is drafted along that begins behind so many recorded steps of a drafter.
    pub(super) most_steps: usize,
    /// What drafts while prompts are answered, if something does: the tokens are those of plain decoding, and come sooner where weights are
    /// streamed.
    pub(super) answered_with: Option<&'a DrafterKind>,
    pub(super) tunings: &'a [ChosenTuning],
    pub(super) prompts: &'a [&'a CalibrationPrompt],
    pub(super) pinning: Pinning,
}

impl TraceOptions<'_> {
    /// A session for trees of `shape` by `drafter` in texts of at most `context` tokens, its linears tuned.
    pub(super) fn session(
        &self,
        loaded: &Loaded,
        context: usize,
        shape: &StepShape,
        drafter: Option<&DrafterKind>,
    ) -> Result<Session, Error> {
        let session_options = SessionOptions {
            context,
            tree_nodes: shape.tree_nodes(),
            threads: loaded.threads(),
            pinning: self.pinning,
        };
        let mut session = loaded.session(&session_options, drafter)?;
        tune(&mut session, self.tunings)?;
        Ok(session)
    }
}

/// The steps of a drafter that answers prompts: chains, as nothing is known yet of what it accepts.
const ANSWERING: StepShape =
    StepShape { depth: 7, draft_width: 1, verify_width: 8, top_k: 1, draft_temperature: 1.0 };

/// Most tokens of an answer: all that are wanted, or half where `fewest` prompts that take as long as the first would not be recorded in time.
fn answer_tokens(wanted: usize, first: Duration, fewest: u32, budget: Duration) -> usize {
    if first.saturating_mul(fewest) > budget { wanted.div_ceil(2) } else { wanted }
}

/// Answers the prompts as plain decoding does, in order, until the time is over. Gives the most tokens of an answer, too.
///
/// # Errors
/// [`Error`] of kind `Input` if no prompt fits the context or none was read in time.
#[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the recording")]
pub(super) fn record_requests(
    loaded: &Loaded,
    options: &TraceOptions<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<(Vec<TokenTrace>, usize), Error> {
    let prompts = options.prompts;
    let ids = prompts.iter().map(|p| p.token_ids(loaded)).collect::<Result<Vec<_>, _>>()?;
    let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
    let context = (longest + options.tokens + 1).clamp(2, loaded.set().model_context());
    let shape = if options.answered_with.is_some() { ANSWERING } else { StepShape::PLAIN };
    let session = options.session(loaded, context, &shape, options.answered_with)?;
    let drafter = match options.answered_with {
        Some(kind) => make_drafter(kind, &shape, &session)?,
        None => None,
    };
    let mut decoder = Decoder::new(session, drafter, shape)?;
    let mut requests: Vec<TokenTrace> = Vec::new();
    let mut longest_answer = options.tokens;
    let start = Instant::now();
    for (i, (prompt, ids)) in prompts.iter().zip(ids).enumerate() {
        if i > 0 && start.elapsed() > options.budget {
            break;
        }
        if ids.len() >= context {
            continue;
        }
        let sampling = Sampling { temperature: options.temperature, seed: i as u64, ..Sampling::GREEDY };
        let tokens = longest_answer.min(context - ids.len());
        // The first request may take longer: without one there is nothing to plan by.
        let most = if i == 0 { 2 * options.budget } else { options.budget };
        let is_over = || start.elapsed() > most;
        let begin = Begin { is_cancelled: &is_over, ..Begin::new(&ids, sampling) };
        let Some(mut last) = decoder.begin(&begin)? else { break };
        let mut emitted = 1;
        while emitted < tokens && !loaded.end_ids().contains(&last) && !(is_over() && emitted > 1) {
            decoder.step(Limits { tokens: tokens - emitted, ends: loaded.end_ids() }, None)?;
            last = *decoder.emitted().last().expect("a step emits");
            emitted += decoder.emitted().len();
        }
        if i == 0 {
            let fewest = options.fewest_prompts.min(u32::try_from(prompts.len()).unwrap_or(u32::MAX));
            longest_answer = answer_tokens(options.tokens, start.elapsed(), fewest, options.budget);
        }
        let mut output = decoder.history()[ids.len()..].to_vec();
        output.truncate(longest_answer);
        let kind = prompt.kind.clone();
        requests.push(TokenTrace { kind, temperature: options.temperature, prompt: ids, output });
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
    Ok((requests, longest_answer))
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
