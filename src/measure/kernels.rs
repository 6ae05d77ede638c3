//! Measures kernels where they work: step by step in replays of the model's own programs, and what bounds them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{
    engine::{Candidate, Error, Loaded, argmax, draft_candidates},
    runtime::{Arithmetic, Exercise, Forward, Moment, Pinning, Session, SessionOptions, StepFacts, Work},
};

use super::{
    autoplan::Progress,
    kernel_report::{ForwardReport, KernelReport, OpReport, Roofline, Timing},
};

/// What is measured of the kernels.
#[derive(Clone, Debug)]
pub struct KernelOptions {
    /// Committed tokens before a forward; cut to what the model allows.
    pub contexts: Vec<usize>,
    /// How often every forward is measured.
    pub repetitions: usize,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self { contexts: vec![200, 1000], repetitions: 30, pinning: Pinning::default() }
    }
}

/// An exercise as long as this is long beside the clock and the pool's waking, and mostly ends undisturbed.
const LONG: Duration = Duration::from_micros(500);
/// Runs of an exercise, before the forwards and again after them.
const EXERCISES: usize = 40;
/// No exercise is smaller, however late the system lets the threads run.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_ROUNDS: u64 = 1 << 14;
const LEAST_STEPS: u64 = 16;
/// Runs of which the shortest says how long an exercise is.
const TRIALS: usize = 3;
/// Forwards before the measured ones.
const WARM_UP: usize = 2;
/// Candidates of a row, as a wide tree draws them.
const TOP_K: usize = 8;

/// Measures every width that `loaded` has executables for.
///
/// # Errors
/// [`Error`] of kind `Input` if a context is impossible, `Device` if memory or threads are refused.
///
/// # Panics
/// If no context is asked for, or no repetition.
pub fn kernel_report(
    loaded: &Loaded,
    options: &KernelOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<KernelReport, Error> {
    assert!(options.repetitions > 0, "at least one repetition");
    let model_context = loaded.set().model_context();
    // The rows of a forward stand at the next two positions.
    let mut contexts: Vec<usize> =
        options.contexts.iter().map(|context| (*context).min(model_context.saturating_sub(2))).collect();
    contexts.sort_unstable();
    contexts.dedup();
    let longest = *contexts.last().expect("at least one context");
    let widths = loaded.set().widths().to_vec();
    let session_options = SessionOptions {
        context: (longest + 2).min(model_context),
        tree_nodes: *widths.last().expect("width 1 is always planned"),
        threads: loaded.threads(),
        pinning: options.pinning,
    };
    let mut session = Session::open(loaded.set().clone(), &session_options)?;
    session.poison_scratch(1);
    let steps = forward(&mut session, widths[0], contexts[0])?.steps();
    let used: BTreeSet<Arithmetic> =
        steps.iter().filter(|step| step.work.flops > 0).map(|step| step.arithmetic).collect();

    let total = contexts.len() * widths.len() + 2;
    let mut done = 0;
    let mut advance = |what| {
        progress(Progress { what, done, total });
        done += 1;
    };
    advance("the roofline");
    let mut bounds = Bounds::new(&mut session, used);
    bounds.run(&mut session);
    let mut forwards = Vec::new();
    for &context in &contexts {
        for &width in &widths {
            advance("the kernels");
            forwards.push(measure(&mut session, width, context, options.repetitions)?);
        }
    }
    advance("the roofline");
    bounds.run(&mut session);
    Ok(KernelReport { roofline: bounds.roofline(), forwards })
}

/// A forward of one row and its `width - 1` children, each another token.
pub(super) fn forward(session: &mut Session, width: usize, context: usize) -> Result<Forward<'_>, Error> {
    let vocabulary = u32::try_from(session.set().vocabulary()).expect("token ids are 32 bits");
    session.assume_committed(context);
    let mut forward = session.forward(width)?;
    for row in 0..u32::try_from(width).expect("widths are small") {
        let token = row.wrapping_mul(7919) % vocabulary;
        forward.push(token, u32::from(row > 0), row, |tail| {
            let len = 1 + usize::from(row > 0);
            tail[0] = 0;
            tail[len - 1] = row;
            len
        });
    }
    Ok(forward)
}

#[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
pub(super) fn now() -> Instant {
    Instant::now()
}

pub(super) fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Exercises sized so that one lasts, and what they took.
struct Bounds {
    /// Amount and microseconds of each run.
    runs: Vec<(Exercise, Vec<(u64, f64)>)>,
    weight_bytes: u64,
}

impl Bounds {
    fn new(session: &mut Session, arithmetics: BTreeSet<Arithmetic>) -> Self {
        let weight_bytes = session.exercise(Exercise::ReadWeights { passes: 1 });
        let enough = LEAST_BYTES / weight_bytes.max(1) + 1;
        let mut exercises = vec![
            sized(session, enough, &|passes| Exercise::ReadWeights { passes }),
            sized(session, LEAST_STEPS, &|steps| Exercise::EmptySteps { steps }),
        ];
        for arithmetic in arithmetics {
            let products = |rounds| Exercise::MultiplyAdds { arithmetic, rounds };
            exercises.push(sized(session, LEAST_ROUNDS, &products));
        }
        let runs = exercises.into_iter().map(|exercise| (exercise, Vec::new())).collect();
        Self { runs, weight_bytes }
    }

    fn run(&mut self, session: &mut Session) {
        for _ in 0..EXERCISES {
            for (exercise, taken) in &mut self.runs {
                let start = now();
                let amount = session.exercise(*exercise);
                taken.push((amount, us(start.elapsed())));
            }
        }
    }

    fn roofline(&self) -> Roofline {
        let fastest = |taken: &[(u64, f64)]| {
            taken.iter().map(|(amount, us)| *amount as f64 / us * 1e6).fold(0.0, f64::max)
        };
        let mut roofline = Roofline {
            weight_bytes: self.weight_bytes,
            bytes_per_s: 0.0,
            flops_per_s: Vec::new(),
            empty_step: Timing { median_us: 0.0, min_us: 0.0, spread: 0.0 },
        };
        for (exercise, taken) in &self.runs {
            match exercise {
                Exercise::ReadWeights { .. } => roofline.bytes_per_s = fastest(taken),
                Exercise::MultiplyAdds { arithmetic, .. } => {
                    roofline.flops_per_s.push((*arithmetic, fastest(taken)));
                }
                Exercise::EmptySteps { .. } => {
                    let each: Vec<f64> = taken.iter().map(|(steps, us)| us / *steps as f64).collect();
                    roofline.empty_step = Timing::of(&each);
                }
            }
        }
        roofline
    }
}

/// As much of something as takes as long as [`LONG`], from `least` on by doubling.
fn sized(session: &mut Session, least: u64, exercise: &dyn Fn(u64) -> Exercise) -> Exercise {
    let mut count = least;
    loop {
        let mut trial = |_| {
            let start = now();
            session.exercise(exercise(count));
            start.elapsed()
        };
        let shortest = (0..TRIALS).map(&mut trial).min().unwrap_or_default();
        // One thread has no barrier, so its empty steps take no time however many they are.
        if shortest >= LONG || count >= 1 << 30 {
            return exercise(count);
        }
        count *= 2;
    }
}

/// Times of one step, microseconds: until all threads were done, and of that the first thread's wait.
#[derive(Clone, Debug, Default)]
struct StepTimes {
    whole: Vec<f64>,
    wait: Vec<f64>,
}

fn measure(
    session: &mut Session,
    width: usize,
    context: usize,
    repetitions: usize,
) -> Result<ForwardReport, Error> {
    let facts = forward(session, width, context)?.steps();
    let mut times = vec![StepTimes::default(); facts.len()];
    let mut moments: Vec<(Moment, Instant)> = Vec::with_capacity(2 * facts.len() + 1);
    let (mut plain, mut observed) = (Vec::new(), Vec::new());
    let mut candidates = Vec::with_capacity(TOP_K);
    let mut on_host: [Vec<f64>; 2] = Default::default();
    for round in 0..WARM_UP + repetitions {
        let prepared = forward(session, width, context)?;
        let start = now();
        let logits = prepared.run(None);
        let plain_us = us(start.elapsed());
        let host = on_the_host(logits.row(width - 1), &mut candidates);
        let prepared = forward(session, width, context)?;
        moments.clear();
        prepared.run_observed(&mut |moment| moments.push((moment, now())));
        if round < WARM_UP {
            continue;
        }
        plain.push(plain_us);
        for (samples, us) in on_host.iter_mut().zip(host) {
            samples.push(us);
        }
        let (first, last) = (moments[0].1, moments[moments.len() - 1].1);
        observed.push(us(last - first));
        let (mut begun, mut share_done) = (first, first);
        for (moment, at) in &moments {
            match moment {
                Moment::Begun => {}
                Moment::ShareDone(_) => share_done = *at,
                Moment::StepDone(step) => {
                    times[*step].whole.push(us(*at - begun));
                    times[*step].wait.push(us(*at - share_done));
                    begun = *at;
                }
            }
        }
    }
    let vocabulary = session.set().vocabulary();
    let host = ["argmax", "top_k"].into_iter().zip(&on_host);
    Ok(ForwardReport {
        width,
        context,
        forward: Timing::of(&plain),
        observed: Timing::of(&observed),
        ops: ops(&facts, &times),
        host: host.map(|(name, samples)| host_op(name, width, vocabulary, samples)).collect(),
    })
}

/// Steps that are alike, as one op each, in the order of the first.
fn ops(facts: &[StepFacts], times: &[StepTimes]) -> Vec<OpReport> {
    let mut kinds: Vec<&StepFacts> = Vec::new();
    for step in facts {
        if !kinds.contains(&step) {
            kinds.push(step);
        }
    }
    let op = |kind: &StepFacts| {
        let of_kind = || facts.iter().zip(times).filter(|(step, _)| *step == kind).map(|(_, times)| times);
        let medians = |samples: fn(&StepTimes) -> &Vec<f64>| -> f64 {
            of_kind().map(|times| Timing::of(samples(times)).median_us).sum()
        };
        let all: Vec<f64> = of_kind().flat_map(|times| &times.whole).copied().collect();
        OpReport {
            name: kind.name.clone(),
            kernel: kind.kernel.clone(),
            arithmetic: kind.arithmetic,
            calls: of_kind().count(),
            work: kind.work,
            call: Timing::of(&all),
            forward_us: medians(|times| &times.whole),
            wait_us: medians(|times| &times.wait),
        }
    };
    kinds.into_iter().map(op).collect()
}

/// Microseconds of choosing the most probable token of a row, and of drawing the best [`TOP_K`].
fn on_the_host(logits: &[f32], candidates: &mut Vec<Candidate>) -> [f64; 2] {
    let start = now();
    std::hint::black_box(argmax(logits));
    let argmax_us = us(start.elapsed());
    let start = now();
    draft_candidates(logits, TOP_K, 1.0, candidates);
    [argmax_us, us(start.elapsed())]
}

fn host_op(name: &str, width: usize, vocabulary: usize, samples: &[f64]) -> OpReport {
    let call = Timing::of(samples);
    OpReport {
        name: format!("{name} on the host"),
        kernel: name.to_owned(),
        arithmetic: Arithmetic::F32,
        calls: width,
        work: Work { bytes: (vocabulary * size_of::<f32>()) as u64, flops: 0 },
        call,
        forward_us: width as f64 * call.median_us,
        wait_us: 0.0,
    }
}
