//! What the tunings of a plan gain: forwards that choose greedily, with the default and with the plan's choices, in
//! turn, whole and op by op.

use std::time::Instant;

use serde::Serialize;
use ygg_profiler::statistics::{median, paired_ratios};

use crate::{
    engine::{Error, Loaded, tune},
    plan::ChosenTuning,
    runtime::{Choice, Moment, Session, StepFacts, Tuning},
};

use super::{
    forwards::{forward, now, open, step_times, us, usable},
    kernel_report::Timing,
    kernels::KernelOptions,
    progress::Progress,
};

/// Rounds before the measured ones.
const WARM_UP: usize = 2;

/// One op of a forward: all steps that do the same work with different weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedOp {
    /// What it does, such as `linear ffn_down`.
    pub name: String,
    /// The kernel that does it.
    pub kernel: String,
    /// The plan's choice; `None` if that is the default.
    pub tuning: Option<String>,
    /// Microseconds of a call with the default, measured: of each forward the median of its calls.
    pub default: Timing,
    /// Microseconds of a call with the plan's choices, measured in the same way.
    pub tuned: Timing,
    /// Median over the rounds of default by tuned time, derived.
    pub gain: f64,
}

/// One forward with and without the plan's choices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedForward {
    /// Token rows.
    pub width: usize,
    /// Committed tokens before them.
    pub context: usize,
    /// T(W) with the default, measured without an observer.
    pub default: Timing,
    /// T(W) with the plan's choices, measured without an observer.
    pub tuned: Timing,
    /// Median over the rounds of default by tuned time, derived.
    pub gain: f64,
    /// Its linears in the order of the program.
    pub ops: Vec<TunedOp>,
}

/// Measures every width that `loaded` has executables for, once per context.
///
/// # Errors
/// [`Error`] of kind `Input` if a context is impossible or a choice is none, `Device` if memory or threads are refused.
///
/// # Panics
/// If no context is asked for, or no repetition.
pub fn tuned_report(
    loaded: &Loaded,
    tunings: &[ChosenTuning],
    options: &KernelOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<TunedForward>, Error> {
    assert!(options.repetitions > 0, "at least one repetition");
    let contexts: Vec<usize> = options.contexts.iter().map(|context| usable(loaded, *context)).collect();
    let longest = *contexts.iter().max().expect("at least one context");
    let widths = loaded.set().widths().to_vec();
    let mut session = open(loaded, longest, options.pinning)?;
    let mut forwards = Vec::new();
    let total = contexts.len() * widths.len();
    for &context in &contexts {
        for &width in &widths {
            progress(Progress { what: "the tunings", done: forwards.len(), total });
            forwards.push(measure(&mut session, tunings, width, context, options.repetitions)?);
        }
    }
    Ok(forwards)
}

/// Which way linears go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Default,
    Planned,
}

/// What one way took: T(W), and a call of each op of the forward, round by round.
#[derive(Default)]
struct Taken {
    plain: Vec<f64>,
    ops: Vec<Vec<f64>>,
}

fn measure(
    session: &mut Session,
    tunings: &[ChosenTuning],
    width: usize,
    context: usize,
    repetitions: usize,
) -> Result<TunedForward, Error> {
    let facts = forward(session, width, context)?.choosing_steps();
    let mut kinds: Vec<&StepFacts> = Vec::new();
    for step in facts.iter().filter(|step| step.linear.is_some()) {
        if !kinds.contains(&step) {
            kinds.push(step);
        }
    }
    let empty = || Taken { plain: Vec::new(), ops: vec![Vec::new(); kinds.len()] };
    let (mut default, mut planned) = (empty(), empty());
    let mut moments: Vec<(Moment, Instant)> = Vec::with_capacity(3 * facts.len() + 1);
    for round in 0..WARM_UP + repetitions {
        let order = if round % 2 == 0 { [Way::Default, Way::Planned] } else { [Way::Planned, Way::Default] };
        for way in order {
            go(session, way, tunings)?;
            let prepared = forward(session, width, context)?;
            let start = now();
            prepared.choose(Choice::ARGMAX, None);
            let plain_us = us(start.elapsed());
            moments.clear();
            forward(session, width, context)?
                .choose_observed(Choice::ARGMAX, &mut |moment| moments.push((moment, now())));
            if round < WARM_UP {
                continue;
            }
            let taken = match way {
                Way::Default => &mut default,
                Way::Planned => &mut planned,
            };
            taken.plain.push(plain_us);
            for (samples, us) in taken.ops.iter_mut().zip(calls_us(&facts, &kinds, &moments)) {
                samples.push(us);
            }
        }
    }
    go(session, Way::Default, tunings)?;
    let gain = |default: &[f64], tuned: &[f64]| median(&paired_ratios(default, tuned)).unwrap_or(1.0);
    let op = |(i, kind): (usize, &&StepFacts)| {
        let shape = kind.linear.map(|shape| shape.to_string());
        let choice = tunings.iter().find(|choice| Some(choice.shape.to_string()) == shape);
        TunedOp {
            name: kind.name.clone(),
            kernel: kind.kernel.clone(),
            tuning: choice.map(|choice| choice.tuning.clone()),
            default: Timing::of(&default.ops[i]),
            tuned: Timing::of(&planned.ops[i]),
            gain: gain(&default.ops[i], &planned.ops[i]),
        }
    };
    Ok(TunedForward {
        width,
        context,
        default: Timing::of(&default.plain),
        tuned: Timing::of(&planned.plain),
        gain: gain(&default.plain, &planned.plain),
        ops: kinds.iter().enumerate().map(op).collect(),
    })
}

fn go(session: &mut Session, way: Way, tunings: &[ChosenTuning]) -> Result<(), Error> {
    match way {
        Way::Planned => tune(session, tunings),
        Way::Default => {
            for shape in session.set().linear_shapes() {
                session.tune(&shape, Tuning::DEFAULT)?;
            }
            Ok(())
        }
    }
}

/// Microseconds of a call of each kind of step: the median over the calls of one forward.
fn calls_us(facts: &[StepFacts], kinds: &[&StepFacts], moments: &[(Moment, Instant)]) -> Vec<f64> {
    let mut calls = vec![Vec::new(); kinds.len()];
    for time in step_times(moments) {
        if let Some(kind) = kinds.iter().position(|kind| **kind == facts[time.step]) {
            calls[kind].push(time.whole_us);
        }
    }
    calls.iter().map(|calls| median(calls).unwrap_or(0.0)).collect()
}
