//! Measures kernels where they work: step by step in replays of the model's own programs, and what bounds them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ygg_profiler::statistics::median;

use crate::{
    engine::{Error, Loaded},
    runtime::{Arithmetic, Choice, Exercise, Moment, Pinning, Session, StepFacts},
};

use super::{
    forwards::{StepTime, forward, now, open, step_times, us, usable},
    kernel_report::{ForwardReport, KernelReport, OpReport, Roofline, Timing},
    progress::Progress,
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

/// An exercise as long as this is long compared with the clock and the pool's waking, and mostly ends undisturbed.
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
/// How a drafter's forward ends.
const DRAFTED: Choice = Choice { k: TOP_K, temperature: Some(1.0) };

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
    let mut contexts: Vec<usize> = options.contexts.iter().map(|context| usable(loaded, *context)).collect();
    contexts.sort_unstable();
    contexts.dedup();
    let longest = *contexts.last().expect("at least one context");
    let widths = loaded.set().widths().to_vec();
    let mut session = open(loaded, longest, options.pinning)?;
    let steps = forward(&mut session, widths[0], contexts[0])?.choosing_steps();
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
    session.check_device()?;
    Ok(KernelReport { roofline: bounds.roofline(), forwards })
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
        let rate = |(amount, us): &(u64, f64)| *amount as f64 / us * 1e6;
        let fastest = |taken: &[(u64, f64)]| taken.iter().map(rate).fold(0.0, f64::max);
        let mut roofline = Roofline {
            weight_bytes: self.weight_bytes,
            bytes_per_s: 0.0,
            median_bytes_per_s: 0.0,
            flops_per_s: Vec::new(),
            empty_step: Timing { median_us: 0.0, min_us: 0.0, spread: 0.0 },
        };
        for (exercise, taken) in &self.runs {
            match exercise {
                Exercise::ReadWeights { .. } => {
                    let all: Vec<f64> = taken.iter().map(rate).collect();
                    roofline.bytes_per_s = fastest(taken);
                    roofline.median_bytes_per_s = median(&all).expect("exercises were run");
                }
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

impl StepTimes {
    fn add(&mut self, time: StepTime) {
        self.whole.push(time.whole_us);
        self.wait.push(time.wait_us);
    }
}

/// The end of a forward other than the measured one's: its last step.
struct Head {
    facts: StepFacts,
    times: StepTimes,
}

impl Head {
    fn new(steps: Vec<StepFacts>, name: Option<String>) -> Self {
        let mut facts = steps.into_iter().next_back().expect("a forward has steps");
        facts.name = name.unwrap_or(facts.name);
        Self { facts, times: StepTimes::default() }
    }

    fn add(&mut self, moments: &[(Moment, Instant)]) {
        self.times.add(step_times(moments).last().expect("a forward has steps"));
    }

    fn report(&self) -> Vec<OpReport> {
        ops(std::slice::from_ref(&self.facts), std::slice::from_ref(&self.times))
    }
}

fn measure(
    session: &mut Session,
    width: usize,
    context: usize,
    repetitions: usize,
) -> Result<ForwardReport, Error> {
    let facts = forward(session, width, context)?.choosing_steps();
    let mut times = vec![StepTimes::default(); facts.len()];
    let mut drafted = Head::new(facts.clone(), Some(format!("candidates, {TOP_K} of a row")));
    let mut logits = Head::new(forward(session, width, context)?.steps(), None);
    let mut moments: Vec<(Moment, Instant)> = Vec::with_capacity(3 * facts.len() + 1);
    let (mut plain, mut observed, mut fetched) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..WARM_UP + repetitions {
        let prepared = forward(session, width, context)?;
        let start = now();
        prepared.choose(Choice::ARGMAX, None);
        let plain_us = us(start.elapsed());
        let is_measured = round >= WARM_UP;
        moments.clear();
        forward(session, width, context)?.run_observed(&mut |moment| moments.push((moment, now())));
        if is_measured {
            logits.add(&moments);
        }
        moments.clear();
        let prepared = forward(session, width, context)?;
        prepared.choose_observed(DRAFTED, &mut |moment| moments.push((moment, now())));
        if is_measured {
            drafted.add(&moments);
        }
        moments.clear();
        let prepared = forward(session, width, context)?;
        prepared.choose_observed(Choice::ARGMAX, &mut |moment| moments.push((moment, now())));
        if !is_measured {
            continue;
        }
        plain.push(plain_us);
        observed.push(step_times(&moments).map(|time| time.fetch_us + time.whole_us).sum());
        if moments.iter().any(|(moment, _)| matches!(moment, Moment::Fetched(_))) {
            fetched.push(step_times(&moments).map(|time| time.fetch_us).sum());
        }
        for time in step_times(&moments) {
            times[time.step].add(time);
        }
    }
    Ok(ForwardReport {
        width,
        context,
        forward: Timing::of(&plain),
        observed: Timing::of(&observed),
        fetched: (!fetched.is_empty()).then(|| Timing::of(&fetched)),
        ops: ops(&facts, &times),
        heads: [drafted.report(), logits.report()].concat(),
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
