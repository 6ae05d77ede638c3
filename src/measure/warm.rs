//! Recording requests of temperatures above 0, which take tokens that greedy ones do not, and all drafters along their
//! answers.
//!
//! At every temperature, acceptance is decided by the sampler (Leviathan et al., ICML 2023, with the sampler-match
//! rule), so the answer that plain decoding draws with a seed is what would accept or refuse a drafted tree.

use std::time::Duration;

use ygg_profiler::{DrafterName, TokenTrace, Trace};

use crate::{
    engine::{Error, Loaded},
    plan::DrafterKind,
};

use super::{
    drafters::recorded_models,
    redraft::redraft_each,
    trace::{Answers, record_requests},
    trace_options::TraceOptions,
};

/// The share of greedy requests, with one part for every other temperature: they train depth predictors and decide
/// which tokens trimmed heads keep. Much more, and the few steps of the others would decide by luck.
const GREEDY_PARTS: u32 = 2;
/// The part of a temperature's time that its requests are recorded in; drafters have the rest.
const REQUESTS_PART: u32 = 3;
/// Steps of drafters that run a model at one temperature, of all of them together.
const MOST_STEPS: usize = 160;
/// The part of a greedy answer's tokens that other answers have, so that as many prompts are recorded in less time.
const TOKENS_PART: usize = 2;

/// Time for acceptance by temperatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WarmTime {
    /// Of temperature 0.
    pub(super) greedy: Duration,
    /// Of every other.
    pub(super) each: Duration,
}

impl WarmTime {
    /// Shares `budget` among temperature 0 and `temperatures`.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` if they do not ascend from above 0.
    pub(super) fn share(budget: Duration, temperatures: &[f32]) -> Result<Self, Error> {
        let all = || std::iter::once(&0.0).chain(temperatures);
        if !(all().is_sorted_by(|a, b| a < b) && all().all(|t| t.is_finite())) {
            return Err(Error::input(format!(
                "temperatures to record in addition to 0: expected finite numbers that ascend from above 0, found {temperatures:?}"
            )));
        }
        let others = u32::try_from(temperatures.len()).expect("few temperatures");
        let each = budget / (GREEDY_PARTS + others);
        Ok(Self { greedy: budget - others * each, each })
    }
}

/// Records requests of the options' temperature, each with a seed of its own and the answer of plain decoding, then
/// along the answers every drafter that runs a model and did not draft meanwhile. The options' budget is for all of it,
/// their tokens are those of a greedy answer.
pub(super) fn record_warm(
    loaded: &Loaded,
    drafters: &[(DrafterName, DrafterKind)],
    options: &TraceOptions<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<(Vec<Trace>, Vec<TokenTrace>), Error> {
    let mut models = recorded_models(drafters);
    models.retain(|(name, _)| options.answered_with.is_none_or(|answering| answering.name != name));
    let for_requests = if models.is_empty() { options.budget } else { options.budget / REQUESTS_PART };
    let for_each =
        (options.budget - for_requests) / u32::try_from(models.len().max(1)).expect("few drafters");
    let of_requests =
        TraceOptions { budget: for_requests, tokens: warm_tokens(options), fewest_prompts: 0, ..*options };
    let Answers { requests, tokens: _, per_token, drafted } =
        record_requests(loaded, &of_requests, &mut progress)?;
    let most_steps = MOST_STEPS.div_ceil(models.len().max(1));
    let of_drafters = TraceOptions { budget: for_each, most_steps, ..*options };
    let recorded = redraft_each(loaded, &models, (&requests, per_token), &of_drafters, &mut progress)?;
    let mut traces: Vec<Trace> = recorded.into_iter().map(|redrafted| redrafted.trace).collect();
    traces.extend(drafted.map(|drafted| drafted.trace));
    Ok((traces, requests))
}

/// Most tokens of an answer above temperature 0, given the options of greedy ones. A step that may go on past the
/// answer is not recorded, so an answer is longer than a step.
pub(super) fn warm_tokens(options: &TraceOptions<'_>) -> usize {
    (options.tokens / TOKENS_PART).max(2 * (options.shape.depth + 1)).min(options.tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_requests_get_the_most_and_nothing_is_left() {
        let budget = Duration::from_secs(90);
        for (temperatures, greedy, each) in [(&[][..], 90_000, 45_000), (&[0.6, 1.0], 45_000, 22_500)] {
            let time = WarmTime::share(budget, temperatures).unwrap();
            let [greedy, each] = [greedy, each].map(Duration::from_millis);
            assert_eq!(time, WarmTime { greedy, each });
            assert_eq!(time.greedy + temperatures.len() as u32 * time.each, budget);
        }
        for bad in
            [&[0.0][..], &[1.0, 0.6], &[0.6, 0.6], &[-1.0], &[f32::NAN], &[f32::INFINITY], &[0.6, f32::NAN]]
        {
            let error = WarmTime::share(budget, bad).unwrap_err().to_string();
            assert!(error.contains("ascend from above 0, found"), "{error}");
        }
    }
}
