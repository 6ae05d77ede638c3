//! Profiling: latencies of every planned width and stage, then traces of acceptance.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ygg_profiler::{
    DepthPredictor, DrafterName, GridSettings, LiveTrace, Profile, TokenTrace, Trace, TuningMeasurement,
};

use crate::{
    engine::{Error, Hint, Loaded},
    plan::{DrafterKind, RecordedAs},
    planner::choose_tunings,
    speculate::StepShape,
};

use super::{
    calibration::interleaved,
    depth::train_predictor,
    drafters::{drafters_of, recorded_models},
    latencies::latencies,
    live::{Learners, Recording, recordings},
    options::ProfileOptions,
    progress::Progress,
    redraft::{Redrafted, redraft_each},
    streamed::{Pace, pace},
    trace::{Answers, record_requests},
    trace_options::{Answering, TraceOptions},
    trimming::Heads,
    tuner::measure_tunings,
    visits::{Visits, Watch},
    warm::{WarmTime, record_warm, warm_tokens},
    weight_memory::weight_memory,
};

/// Growths of the recorded trees.
const TRACE_DEPTH: usize = 6;
/// Prompts that answers are shortened for: as few as these tell drafters apart.
const FEWEST_PROMPTS: u32 = 24;
/// The share of requests in the time for greedy acceptance, where trees are recorded along them: what replays drafters
/// without a model should be of many prompts, with answers long enough to repeat themselves, and what other drafters
/// gain on all of them follows from few.
const REQUESTS_SHARE: f64 = 0.7;
/// Steps of drafters that run a model that are recorded along greedy answers, of all these drafters together: more make
/// a profile larger and predictions hardly surer, for prompts differ more than places.
const MOST_STEPS: usize = 640;
/// Steps of the drafter that drafts at every place of the greedy answers: whole answers of as many prompts as there are.
/// A mixture's step stands at about every second place, so that half of these tell what one gains.
const MOST_PLACES: usize = 2048;
/// The share of acceptance in the time for latencies and acceptance: sampling prompts is what predictions are least
/// sure of.
const ACCEPTANCE_SHARE: f64 = 0.625;
/// The share of latencies, at most, in the time for latencies and acceptance where weights are streamed. They are
/// measured first, since they say how deep trees are worth recording.
pub(super) const STREAMED_LATENCIES_SHARE: f64 = 0.3;
/// The part of the time for latencies and acceptance in which drafters that learn from the verifier are recorded at
/// least.
const LIVE_PART: u32 = 5;

/// Measures latencies and records traces. `loaded` must have been opened with [`ProfileOptions::WIDTHS`]; the widths it
/// has are those that are measured. Where the budget is too short for them all, the last drafters that run a model have
/// no latencies, and a plan says that it lacks them; where it is shorter still, wide forwards and longer contexts have
/// none.
///
/// # Errors
/// [`Error`] when a drafter cannot be made, the prompts do not fit or the budget is too small for a single round.
pub fn profile(
    loaded: &Loaded,
    options: &ProfileOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Profile, Error> {
    refuse_emulated(loaded, options)?;
    let (begun, measured_at) = (now(), (options.clock)());
    let mut drafters = drafters_of(loaded, options)?;
    drafters.retain(|(_, kind)| options.learners.admit(kind));
    let loaded = &loaded.with_drafters(drafters.iter().map(|(_, kind)| kind))?;
    let widest = *loaded.set().widths().last().expect("width 1 is always planned");
    let contexts = contexts(loaded, &options.contexts, widest)?;
    let prompts = interleaved(&options.prompts);
    let first = prompts
        .first()
        .ok_or_else(|| Error::input("no calibration prompts: expected one or more, found none"))?;
    let text = first.token_ids(loaded)?;
    let streams = loaded.set().graph().streams();
    // Compared with a reading a whole head takes little, and what one draft cannot name costs a share of the next
    // reading.
    let head_sizes = if streams { &[][..] } else { &options.head_sizes };
    let heads = Heads::open(loaded, &drafters, head_sizes)?;
    // What is computed while weights are read takes no time.
    let for_tunings = if streams { Duration::ZERO } else { options.budget / 5 };
    let measured_tunings = measured_tunings(loaded, for_tunings, options, progress)?;
    let tunings = choose_tunings(&measured_tunings);
    let visits = if streams { None } else { Visits::open(loaded, (&text, contexts[0]), &tunings, options)? };
    let mut watch = Watch::new(visits, progress);
    let progress: &mut dyn FnMut(Progress) = &mut |done| watch.advance(done);
    let for_predictors = if options.predictors { options.budget / 20 } else { Duration::ZERO };
    let rest = options.budget - for_tunings - for_predictors;
    let of_first = drafters.clone();
    let subject = (&of_first[..], &text[..], &contexts[..]);
    let budget = rest.mul_f64(STREAMED_LATENCIES_SHARE);
    let of_streamed = streams.then(|| latencies(loaded, subject, &tunings, (options, budget), progress));
    let measured = of_streamed.transpose()?;
    let has_learners = drafters.iter().any(|(_, kind)| kind.facts().recorded_as == RecordedAs::LiveSteps);
    let for_live = if has_learners { rest / LIVE_PART } else { Duration::ZERO };
    let for_acceptance = match &measured {
        Some(_) => (rest.saturating_sub(begun.elapsed())).max(rest / 2),
        None => rest.mul_f64(ACCEPTANCE_SHARE),
    };
    let warm = WarmTime::share(for_acceptance.saturating_sub(for_live), &options.temperatures)?;
    let pace = measured.as_deref().and_then(|measured| pace(measured, &of_first, widest));
    let answering = pace.as_ref().map_or_else(|| at_every_place(&of_first), |pace| Some(pace.answering()));
    let time = RecordingTime::share(warm.greedy, (&drafters, answering));
    let trace_options = TraceOptions {
        shape: pace.as_ref().map_or(recorded_shape(widest), Pace::shape),
        tokens: pace.as_ref().map_or(options.tokens, |pace| pace.tokens(time.requests, options.tokens)),
        // The pace says by itself how long answers may be.
        fewest_prompts: if pace.is_some() { 0 } else { FEWEST_PROMPTS },
        temperature: 0.0,
        budget: time.along_answers,
        most_steps: time.most_steps,
        answered_with: answering,
        keeps_features: options.predictors,
        tunings: &tunings,
        prompts: &prompts,
        pinning: options.pinning,
    };
    let Acceptance { mut traces, mut token_traces, tokens, predictors } =
        acceptance(loaded, &drafters, time, &trace_options, for_predictors, progress)?;
    let trace_options = TraceOptions { tokens, ..trace_options };
    let loaded = &record_further(
        loaded,
        &mut drafters,
        (heads, &options.temperatures, warm.each),
        &trace_options,
        (&mut traces, &mut token_traces),
        progress,
    )?;
    let measurements = match measured {
        Some(measured) => measured,
        None => {
            // A slow machine's recordings may have taken longer than their share.
            let left = options.budget.saturating_sub(begun.elapsed()).max(rest / 8);
            let subject = (&drafters[..], &text[..], &contexts[..]);
            latencies(loaded, subject, &tunings, (options, left.min(rest / 2)), progress)?
        }
    };
    // What the other recordings left of their time is spent here, where every prompt is decoded anew for every shape.
    let for_live = for_live.max(options.budget.saturating_sub(begun.elapsed()));
    let what = (&drafters[..], options.learners);
    let live_traces =
        record_learners(loaded, what, (&trace_options, &options.temperatures), for_live, progress)?;
    let profile = Profile {
        created_by: format!("yggc {}", env!("CARGO_PKG_VERSION")),
        measured_at,
        fingerprints: loaded.fingerprints()?,
        calibration: options.calibration.clone(),
        noise_threshold: GridSettings::default().noise_threshold,
        memory: weight_memory(loaded)?,
        drafters: drafters.iter().map(|(name, kind)| kind.describe(name.clone())).collect(),
        tunings: measured_tunings,
        measurements,
        visits: watch.end()?,
        traces,
        token_traces,
        live_traces,
        predictors,
    };
    profile.validate().map_err(|e| Error::internal(e.to_string()))?;
    Ok(profile)
}

fn refuse_emulated(loaded: &Loaded, options: &ProfileOptions) -> Result<(), Error> {
    if !loaded.is_emulated() || options.is_rehearsal {
        return Ok(());
    }
    Err(Error::device(
        "the device `cuda` is emulated by this processor: its timings mean nothing and are not profiled; expected a GPU, or the processor",
    )
    .with_hint(Hint::Processor))
}

/// The times of linears under each of their tunings, within `budget`; none without time.
fn measured_tunings(
    loaded: &Loaded,
    budget: Duration,
    options: &ProfileOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<TuningMeasurement>, Error> {
    if budget.is_zero() {
        return Ok(Vec::new());
    }
    let advance = &mut |done, total| progress(Progress { what: "tunings", done, total });
    measure_tunings(loaded, budget, options.pinning, advance)
}

/// Adds drafters with trimmed heads to `drafters`, then records requests of other temperatures, each temperature in so
/// much time, and the drafters along these. Gives the model with all drafters.
fn record_further(
    loaded: &Loaded,
    drafters: &mut Vec<(DrafterName, DrafterKind)>,
    (heads, temperatures, for_each): (Heads, &[f32], Duration),
    options: &TraceOptions<'_>,
    (traces, token_traces): (&mut Vec<Trace>, &mut Vec<TokenTrace>),
    progress: &mut dyn FnMut(Progress),
) -> Result<Loaded, Error> {
    let trimmed = heads.drafters(loaded, drafters, options.prompts, token_traces)?;
    let loaded = loaded.with_drafters(trimmed.iter().map(|(_, kind)| kind))?;
    drafters.extend(trimmed);
    for temperature in temperatures {
        let advance = |done, total| progress(Progress { what: "other temperatures", done, total });
        let options = TraceOptions { temperature: *temperature, budget: for_each, ..*options };
        let (of_drafters, requests) = record_warm(&loaded, drafters, &options, advance)?;
        traces.extend(of_drafters);
        token_traces.extend(requests);
    }
    Ok(loaded)
}

/// The shape of recorded trees: as large as executables of up to `widest` rows verify.
fn recorded_shape(widest: usize) -> StepShape {
    StepShape {
        depth: TRACE_DEPTH.min((widest - 1) / ProfileOptions::TRACE_WIDTH).max(1),
        draft_width: ProfileOptions::TRACE_WIDTH.min(widest.saturating_sub(1)).max(1),
        verify_width: widest,
        top_k: ProfileOptions::TRACE_WIDTH,
        draft_temperature: 1.0,
    }
}

/// Records every drafter that learns from the verifier in each of its shapes, and at temperatures above 0 those that
/// share a tree, within `budget`. Their answers are half as long, and have half the time.
fn record_learners(
    loaded: &Loaded,
    (drafters, learners): (&[(DrafterName, DrafterKind)], Learners),
    (options, temperatures): (&TraceOptions<'_>, &[f32]),
    budget: Duration,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<LiveTrace>, Error> {
    let recordings = |learners| recordings(drafters, learners, loaded.set().widths());
    let greedy = recordings(learners).into_iter().map(|recording| (recording, *options, 2));
    let at = |temperature: &f32| TraceOptions {
        temperature: *temperature,
        tokens: warm_tokens(options),
        ..*options
    };
    let of_warm = recordings(learners.min(Learners::Mixtures));
    let warm =
        temperatures.iter().flat_map(|t| of_warm.iter().map(|recording| (recording.clone(), at(t), 1)));
    let all: Vec<(Recording, TraceOptions<'_>, u32)> = greedy.chain(warm).collect();
    let parts = all.iter().map(|(_, _, parts)| parts).sum::<u32>().max(1);
    let mut traces = Vec::with_capacity(all.len());
    for (recording, options, own) in &all {
        traces.push(recording.record(loaded, options, budget * *own / parts)?);
        progress(Progress { what: "drafters that learn", done: traces.len(), total: all.len() });
    }
    Ok(traces)
}

/// The committed lengths that latencies are measured at, ascending: those asked for, as far as the model's context
/// reaches with `widest` rows after them.
fn contexts(loaded: &Loaded, asked: &[usize], widest: usize) -> Result<Vec<usize>, Error> {
    let most = loaded.set().model_context().saturating_sub(widest + 3).max(1);
    let contexts: BTreeSet<usize> = asked.iter().map(|context| (*context).clamp(1, most)).collect();
    if contexts.is_empty() {
        return Err(Error::input(
            "no context lengths to measure latencies at: expected at least one, found none",
        ));
    }
    Ok(contexts.into_iter().collect())
}

/// The first drafter with a cache of its own, for recording it at every place of the answers while they are given:
/// along known answers it would read every prompt anew and have the verifier forward every place a second time. Not of
/// blocks: their trees are as deep as they have rows, and of an answer's last places as many would be left out.
fn at_every_place(drafters: &[(DrafterName, DrafterKind)]) -> Option<Answering<'_>> {
    let is_it = |(_, kind): &&(DrafterName, DrafterKind)| kind.keeps_a_cache() && !kind.drafts_blocks();
    let (name, kind) = recorded_models(drafters).into_iter().find(is_it)?;
    Some(Answering { name, kind, rows: 1 })
}

#[allow(clippy::disallowed_methods, reason = "what is left of the budget is shared among what comes last")]
fn now() -> Instant {
    Instant::now()
}

/// Time of each recording, and steps.
#[derive(Clone, Copy, Debug)]
struct RecordingTime {
    /// Of the requests.
    requests: Duration,
    /// Of a drafter along known answers.
    along_answers: Duration,
    /// Steps of each.
    most_steps: usize,
    /// Steps of the drafter that drafts while prompts are answered.
    most_answered: usize,
}

impl RecordingTime {
    /// Shares `budget` between the requests and the drafters but one that drafts meanwhile.
    fn share(
        budget: Duration,
        (drafters, answering): (&[(DrafterName, DrafterKind)], Option<Answering<'_>>),
    ) -> Self {
        let models = recorded_models(drafters).len() - usize::from(answering.is_some());
        let requests = if models == 0 { budget } else { budget.mul_f64(REQUESTS_SHARE) };
        let recorded = models.max(1);
        Self {
            requests,
            along_answers: (budget - requests) / u32::try_from(recorded).expect("few drafters"),
            most_steps: MOST_STEPS.div_ceil(recorded),
            most_answered: match answering {
                Some(answering) if !answering.verifies_trees() => MOST_PLACES,
                _ => MOST_STEPS.div_ceil(recorded),
            },
        }
    }
}

/// What was recorded, and trained on that.
struct Acceptance {
    traces: Vec<Trace>,
    token_traces: Vec<TokenTrace>,
    /// Most tokens of an answer.
    tokens: usize,
    predictors: Vec<DepthPredictor>,
}

/// Records the requests and every drafter that runs a model, and trains a depth predictor for each; the drafters share
/// the time for training evenly.
fn acceptance(
    loaded: &Loaded,
    drafters: &[(DrafterName, DrafterKind)],
    time: RecordingTime,
    options: &TraceOptions<'_>,
    for_predictors: Duration,
    progress: &mut dyn FnMut(Progress),
) -> Result<Acceptance, Error> {
    let mut advance = |done, total| progress(Progress { what: "acceptance", done, total });
    let of_requests = TraceOptions { budget: time.requests, most_steps: time.most_answered, ..*options };
    let Answers { requests: token_traces, tokens, per_token, mut drafted } =
        record_requests(loaded, &of_requests, &mut advance)?;
    let models = recorded_models(drafters);
    let mut others = models.clone();
    others.retain(|(name, _)| drafted.as_ref().is_none_or(|drafted| drafted.trace.drafter != *name));
    let redrafted = redraft_each(loaded, &others, (&token_traces, per_token), options, &mut advance)?;
    let mut redrafted = redrafted.into_iter();
    let for_each = for_predictors / u32::try_from(models.len().max(1)).expect("few drafters");
    let (mut traces, mut predictors) = (Vec::new(), Vec::new());
    for (name, kind) in models {
        let redrafted = match drafted.take_if(|drafted| drafted.trace.drafter == *name) {
            Some(drafted) => drafted,
            None => redrafted.next().expect("one of every other"),
        };
        let Redrafted { mut trace, features } = redrafted;
        // A network is trained for one fixed skip set; a set that changes gets none. The depth of a block is free.
        if options.keeps_features && kind.starts_as().is_none() && !kind.drafts_blocks() {
            predictors.extend(train_predictor(&mut trace, features, for_each));
        }
        traces.push(trace);
    }
    Ok(Acceptance { traces, token_traces, tokens, predictors })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::drafters::that_skips as drafter;

    #[test]
    fn time_and_steps_are_shared_among_what_is_recorded() {
        let minute = Duration::from_secs(60);
        let of = |drafters: &[_]| {
            let time = RecordingTime::share(minute, (drafters, None));
            (time.requests.as_secs(), time.along_answers.as_secs(), time.most_steps)
        };
        assert_eq!(of(&[drafter("a", 1), drafter("b", 2)]), (42, 9, MOST_STEPS.div_ceil(2)));
        assert_eq!(of(&[]), (60, 0, MOST_STEPS));
        // What drafts while prompts are answered needs no time of its own.
        let drafters = [drafter("a", 1), drafter("b", 2)];
        let answering = Some(Answering { name: &drafters[0].0, kind: &drafters[0].1, rows: 8 });
        let alone = RecordingTime::share(minute, (&drafters[..1], answering));
        assert_eq!((alone.requests, alone.most_answered), (minute, MOST_STEPS));
        let at_every_place = answering.map(|answering| Answering { rows: 1, ..answering });
        let alone = RecordingTime::share(minute, (&drafters[..1], at_every_place));
        assert_eq!((alone.requests, alone.most_answered), (minute, MOST_PLACES));
        let both = RecordingTime::share(minute, (&drafters, answering));
        assert_eq!((both.requests.as_secs(), both.along_answers.as_secs()), (42, 18));
    }
}
