//! Times every linear of every planned width under each of its tunings, in real forwards that choose greedily.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ygg_profiler::{TunedShape, TuningMeasurement, TuningSamples, statistics::median};

use crate::{
    engine::{Error, Loaded},
    planner::FEWEST_ROUNDS,
    runtime::{Choice, LinearShape, Moment, Pinning, Session, StepFacts, Tuning},
};

use super::forwards::{forward, now, open, step_times, usable};

/// Committed tokens before the forwards: linears do not depend on them.
const CONTEXT: usize = 200;
/// Rounds of a width that are always wanted.
const ROUNDS: usize = 9;
/// Rounds of a width whose forwards are so short that more cost little.
const MOST_ROUNDS: usize = 31;
/// Share of the budget that a width may spend on more than [`ROUNDS`].
const SHARE: u32 = 24;

/// Samples of one shape: of each candidate, round by round.
type Samples = BTreeMap<LinearShape, Vec<(Tuning, Vec<f64>)>>;

/// Measures until the budget is spent, narrow widths first. A width without enough rounds, or without a choice, is left
/// out.
///
/// # Errors
/// [`Error`] of kind `Device` if memory or threads are refused.
pub(super) fn measure_tunings(
    loaded: &Loaded,
    budget: Duration,
    pinning: Pinning,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<TuningMeasurement>, Error> {
    let start = now();
    let widths = loaded.set().widths().to_vec();
    let context = usable(loaded, CONTEXT);
    let choices = loaded.set().linear_shapes().iter().any(|shape| shape.candidates().len() > 1);
    if !choices {
        return Ok(Vec::new());
    }
    let mut session = open(loaded, context, pinning)?;
    let mut measured = Vec::new();
    for (i, width) in widths.iter().enumerate() {
        progress(i, widths.len());
        let left = budget.saturating_sub(start.elapsed());
        let Some(samples) = measure(&mut session, *width, context, left, budget / SHARE)? else { break };
        measured.extend(samples.into_iter().map(|(shape, tunings)| measurement(&shape, tunings)));
    }
    Ok(measured)
}

/// `None` if `left` is over before there are enough rounds, or would be by the time of one forward.
fn measure(
    session: &mut Session,
    width: usize,
    context: usize,
    left: Duration,
    enough: Duration,
) -> Result<Option<Samples>, Error> {
    let facts = forward(session, width, context)?.choosing_steps();
    let mut samples: Samples = BTreeMap::new();
    for shape in facts.iter().filter_map(|step| step.linear) {
        let candidates = shape.candidates();
        if candidates.len() > 1 {
            samples.insert(shape, candidates.into_iter().map(|tuning| (tuning, Vec::new())).collect());
        }
    }
    let most = samples.values().map(Vec::len).max().unwrap_or(0);
    let mut moments = Vec::with_capacity(3 * facts.len() + 1);
    let start = now();
    forward(session, width, context)?.choose(Choice::ARGMAX, None);
    let warm = start.elapsed();
    forward(session, width, context)?.choose(Choice::ARGMAX, None);
    let round = (start.elapsed() - warm) * u32::try_from(most).expect("few candidates");
    if round * u32::try_from(FEWEST_ROUNDS).expect("few rounds") > left {
        return Ok(None);
    }
    for round in 0..MOST_ROUNDS {
        if start.elapsed() >= left {
            if round < FEWEST_ROUNDS {
                return Ok(None);
            }
            break;
        }
        if round >= ROUNDS && start.elapsed() >= enough {
            break;
        }
        for place in 0..most {
            let number = (place + round) % most;
            for (shape, tunings) in &samples {
                if let Some((tuning, _)) = tunings.get(number) {
                    session.tune(shape, *tuning)?;
                }
            }
            moments.clear();
            forward(session, width, context)?
                .choose_observed(Choice::ARGMAX, &mut |moment| moments.push((moment, now())));
            for (shape, taken) in calls(&facts, &moments) {
                if let Some((_, of_tuning)) = samples.get_mut(&shape).and_then(|all| all.get_mut(number)) {
                    // A call too short for the clock counts as its smallest step, since a profile holds positive times.
                    of_tuning.push(median(&taken).unwrap_or(0.0).max(1e-3));
                }
            }
        }
    }
    Ok(Some(samples))
}

/// Microseconds of every call of each linear in one observed forward.
fn calls(facts: &[StepFacts], moments: &[(Moment, Instant)]) -> BTreeMap<LinearShape, Vec<f64>> {
    let mut calls: BTreeMap<LinearShape, Vec<f64>> = BTreeMap::new();
    for time in step_times(moments) {
        if let Some(shape) = facts[time.step].linear {
            calls.entry(shape).or_default().push(time.whole_us);
        }
    }
    calls
}

fn measurement(shape: &LinearShape, tunings: Vec<(Tuning, Vec<f64>)>) -> TuningMeasurement {
    let number = |n: usize| u32::try_from(n).expect("shapes are far below 2^32");
    TuningMeasurement {
        shape: TunedShape {
            kernel: shape.kernel.to_string(),
            outputs: number(shape.outputs),
            columns: number(shape.columns),
            rows: number(shape.rows),
        },
        tunings: tunings
            .into_iter()
            .map(|(tuning, samples_us)| TuningSamples { tuning: tuning.to_string(), samples_us })
            .collect(),
    }
}
