//! What forwards of a model will take, measured on a blank of it: a model of the same kernels, shapes and formats that
//! has zeros for weights and perhaps fewer layers ([`Model::blank`](crate::model::Model::blank)).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ygg_profiler::statistics::{median, quantile_of_sorted, sorted};

use crate::{
    engine::{Error, Hint, Loaded},
    runtime::{Choice, Exercise, Moment, Pinning, Session},
};

use super::{
    forwards::{forward, now, open, open_with, step_times, us, usable},
    progress::Progress,
};

/// For how many groups of the whole model each group of the blank stands.
pub type StandsFor = BTreeMap<u32, f64>;

/// What is measured for a forecast.
#[derive(Clone, Debug)]
pub struct ForecastOptions {
    /// Committed tokens before a forward; cut to what the model allows.
    pub context: usize,
    /// How long forwards are measured: a machine that others use as well is not always equally fast.
    pub time: Duration,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
    /// Whether everything is measured once, of an emulated device, too: times mean nothing.
    pub is_rehearsal: bool,
}

impl ForecastOptions {
    fn warm_up(&self) -> usize {
        if self.is_rehearsal { 0 } else { WARM_UP }
    }

    /// Measured rounds at least.
    fn rounds(&self) -> usize {
        if self.is_rehearsal { 1 } else { LEAST_ROUNDS }
    }

    /// Whether so many measured rounds, which took so long, are enough.
    fn is_enough(&self, rounds: usize, taken: Duration) -> bool {
        rounds >= self.rounds() && (self.is_rehearsal || taken >= self.time)
    }
}

impl Default for ForecastOptions {
    fn default() -> Self {
        Self { context: 256, time: Duration::from_secs(4), pinning: Pinning::default(), is_rehearsal: false }
    }
}

/// Forwards before the measured ones.
const WARM_UP: usize = 2;
/// Fewest measured rounds, however long they take: the quantiles of fewer say nothing.
const LEAST_ROUNDS: usize = 7;
/// Fewest bytes whose reading is timed: else the clock and the waking of threads count.
const LEAST_READ: u64 = 16 << 20;
/// The fewest threads are worth using that take at most this much more than the best number of them.
const WORTH: f64 = 1.05;

/// Microseconds of something: the middle, and what nine in ten measured ones took at most and at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half took less.
    pub median_us: f64,
    /// One in ten took less.
    pub low_us: f64,
    /// One in ten took more.
    pub high_us: f64,
}

impl Spread {
    /// # Panics
    /// Without samples.
    fn of(samples_us: &[f64]) -> Self {
        let sorted = sorted(samples_us);
        let at = |quantile| quantile_of_sorted(&sorted, quantile).expect("something was measured");
        Self { median_us: at(0.5), low_us: at(0.1), high_us: at(0.9) }
    }

    fn times(self, factor: f64) -> Self {
        let Self { median_us, low_us, high_us } = self;
        Self { median_us: median_us * factor, low_us: low_us * factor, high_us: high_us * factor }
    }
}

/// A forward of the whole model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardForecast {
    /// Token rows.
    pub rows: usize,
    /// Committed tokens before them.
    pub context: usize,
    /// The least that it reads and writes.
    pub bytes: u64,
    /// The least that it multiplies and adds.
    pub flops: u64,
    /// What it takes: derived where the blank has fewer groups than the model, else measured.
    pub time: Spread,
    /// Of its time the part that was measured; 1 if the blank has all groups.
    pub measured: f64,
}

/// What forwards of a model will take here.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Bytes of packed weights that were read to see how fast memory is.
    pub read_bytes: u64,
    /// Reading them once with all threads, as forwards do.
    pub read: Spread,
    /// Of every width, ascending.
    pub forwards: Vec<ForwardForecast>,
    /// The median of one row with fewer threads and with all, microseconds, ascending by threads. A GPU's forwards have
    /// no threads here: then it is empty.
    pub threads: Vec<(usize, f64)>,
}

impl Forecast {
    /// Bytes per second of reading weights, in the middle of what was measured.
    pub fn read_bytes_per_s(&self) -> f64 {
        self.read_bytes as f64 / self.read.median_us * 1e6
    }

    /// The part of a forward's time that reading its bytes takes.
    pub fn bound_by_memory(&self, forward: &ForwardForecast) -> f64 {
        forward.bytes as f64 / self.read_bytes_per_s() * 1e6 / forward.time.median_us
    }

    /// The fewest threads that are about as fast as the best number of them.
    pub fn threads_worth_using(&self) -> Option<usize> {
        let best = self.threads.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
        self.threads.iter().find(|(_, us)| *us <= best * WORTH).map(|(threads, _)| *threads)
    }
}

/// Measures every width that a blank has executables for.
///
/// # Errors
/// [`Error`] of kind `Input` if the context is impossible, `Device` if memory or threads are refused or the device is
/// emulated.
pub fn forecast(
    blank: &Loaded,
    stands_for: &StandsFor,
    options: &ForecastOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Forecast, Error> {
    if blank.is_emulated() && !options.is_rehearsal {
        return Err(Error::device(
            "the device `cuda` is emulated by this processor: its timings mean nothing; expected a GPU, or the processor",
        )
        .with_hint(Hint::Processor));
    }
    let context = usable(blank, options.context);
    let counts = if blank.has_own_memory() { Vec::new() } else { thread_counts(blank.threads()) };
    let (total, mut done) = (1 + counts.len(), 0);
    let mut advance = || {
        progress(Progress { what: "forwards", done, total });
        done += 1;
    };
    advance();
    let mut session = open(blank, context, options.pinning)?;
    let mut widths: Vec<Samples> = blank
        .set()
        .widths()
        .iter()
        .map(|rows| Samples::new(&mut session, *rows, context, stands_for))
        .collect::<Result<_, _>>()?;
    let bytes = session.exercise(Exercise::ReadWeights { passes: 1 }).max(1);
    let passes = LEAST_READ.div_ceil(bytes);
    let mut reads = Vec::new();
    let begun = now();
    let mut round = 0;
    while !options.is_enough(reads.len(), begun.elapsed()) {
        let is_measured = round >= options.warm_up();
        let start = now();
        session.exercise(Exercise::ReadWeights { passes });
        let read_us = us(start.elapsed()) / passes as f64;
        for width in &mut widths {
            width.round(&mut session, context, is_measured)?;
        }
        if is_measured {
            reads.push(read_us);
        }
        round += 1;
    }
    session.check_device()?;
    drop(session);
    let mut threads = Vec::new();
    for count in counts {
        advance();
        threads.push((count, with_threads(blank, count, context, options)?));
    }
    let forwards = widths.iter().map(|samples| samples.forecast(context)).collect();
    Ok(Forecast { read_bytes: bytes, read: Spread::of(&reads), forwards, threads })
}

/// All threads, and halves of them down to one, ascending.
fn thread_counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(all), |count| Some(count / 2).filter(|half| *half > 0)).collect();
    counts.reverse();
    counts
}

/// The median of a forward of one row with so many threads, microseconds.
fn with_threads(
    blank: &Loaded,
    threads: usize,
    context: usize,
    options: &ForecastOptions,
) -> Result<f64, Error> {
    let mut session = open_with(blank, threads, context, options.pinning)?;
    let mut samples = Vec::new();
    for round in 0..options.warm_up() + options.rounds() {
        let prepared = forward(&mut session, 1, context)?;
        let start = now();
        prepared.choose(Choice::ARGMAX, None);
        if round >= options.warm_up() {
            samples.push(us(start.elapsed()));
        }
    }
    Ok(median(&samples).expect("something was measured"))
}

/// What forwards of one width took.
struct Samples {
    rows: usize,
    /// Of every step, how many steps of the whole model it stands for.
    counts: Vec<f64>,
    bytes: u64,
    flops: u64,
    plain_us: Vec<f64>,
    /// Of every observed forward: the time of its own steps, and of those of the whole model.
    steps_us: Vec<(f64, f64)>,
}

impl Samples {
    fn new(
        session: &mut Session,
        rows: usize,
        context: usize,
        stands_for: &StandsFor,
    ) -> Result<Self, Error> {
        let prepared = forward(session, rows, context)?;
        let (steps, groups) = (prepared.choosing_steps(), prepared.choosing_groups());
        let count = |group: &Option<u32>| group.and_then(|group| stands_for.get(&group)).copied();
        let counts: Vec<f64> = groups.iter().map(|group| count(group).unwrap_or(1.0)).collect();
        let whole =
            |amounts: &[u64]| in_all(&counts, amounts.iter().map(|amount| *amount as f64)).round() as u64;
        let bytes = whole(&steps.iter().map(|step| step.work.bytes).collect::<Vec<_>>());
        let flops = whole(&steps.iter().map(|step| step.work.flops).collect::<Vec<_>>());
        Ok(Self { rows, counts, bytes, flops, plain_us: Vec::new(), steps_us: Vec::new() })
    }

    fn is_whole(&self) -> bool {
        self.counts.iter().all(|count| *count == 1.0)
    }

    fn round(&mut self, session: &mut Session, context: usize, is_measured: bool) -> Result<(), Error> {
        let prepared = forward(session, self.rows, context)?;
        let start = now();
        prepared.choose(Choice::ARGMAX, None);
        let plain_us = us(start.elapsed());
        if is_measured {
            self.plain_us.push(plain_us);
        }
        if self.is_whole() {
            return Ok(());
        }
        let mut moments: Vec<(Moment, Instant)> = Vec::with_capacity(3 * self.counts.len() + 1);
        let prepared = forward(session, self.rows, context)?;
        prepared.choose_observed(Choice::ARGMAX, &mut |moment| moments.push((moment, now())));
        if is_measured {
            let mut own = vec![0.0; self.counts.len()];
            for time in step_times(&moments) {
                own[time.step] += time.fetch_us + time.whole_us;
            }
            let whole = in_all(&self.counts, own.iter().copied());
            self.steps_us.push((own.iter().sum(), whole));
        }
        Ok(())
    }

    fn forecast(&self, context: usize) -> ForwardForecast {
        let measured = Spread::of(&self.plain_us);
        let factor = factor(&self.steps_us);
        let Self { rows, bytes, flops, .. } = *self;
        let time = measured.times(factor);
        ForwardForecast { rows, context, bytes, flops, time, measured: 1.0 / factor }
    }
}

/// Amounts of steps, each as often as it is in the whole model.
fn in_all(counts: &[f64], amounts: impl Iterator<Item = f64>) -> f64 {
    counts.iter().zip(amounts).map(|(count, amount)| count * amount).sum()
}

/// How many times longer the steps of the whole model take than those of the blank: the median of what forwards say
/// that took both, so that it does not matter how fast the machine was meanwhile.
fn factor(steps_us: &[(f64, f64)]) -> f64 {
    let factors: Vec<f64> = steps_us.iter().map(|(own, whole)| whole / own).collect();
    median(&factors).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_as_often_as_the_whole_model_has_them() {
        // Head and embedding once, a layer that stands for three, and one for four.
        let counts = [1.0, 3.0, 4.0, 1.0];
        let own = [2.0, 10.0, 20.0, 8.0];
        let whole = in_all(&counts, own.into_iter());
        assert_eq!(whole, 2.0 + 30.0 + 80.0 + 8.0);
        assert_eq!(factor(&[(40.0, whole), (80.0, 2.0 * whole), (40.0, 10.0 * whole)]), 3.0);
        assert_eq!(factor(&[]), 1.0);
    }

    #[test]
    fn a_forecast_is_measured_times_the_factor() {
        let plain_us = (1..=11).map(f64::from).collect();
        let samples = Samples {
            rows: 1,
            counts: vec![1.0, 2.0],
            bytes: 7,
            flops: 9,
            plain_us,
            steps_us: vec![(2.0, 3.0)],
        };
        let forecast = samples.forecast(5);
        assert_eq!(forecast.time, Spread { median_us: 9.0, low_us: 3.0, high_us: 15.0 });
        assert_eq!((forecast.bytes, forecast.flops, forecast.context), (7, 9, 5));
        assert!((forecast.measured - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn memory_bounds_what_takes_as_long_as_reading() {
        let spread = |median_us| Spread { median_us, low_us: median_us, high_us: median_us };
        let forward =
            ForwardForecast { rows: 1, context: 0, bytes: 3_000, flops: 0, time: spread(4.0), measured: 1.0 };
        let of = |threads: Vec<(usize, f64)>| Forecast {
            read_bytes: 2_000,
            read: spread(2.0),
            forwards: vec![forward],
            threads,
        };
        let forecast = of(vec![(1, 9.0), (2, 4.1), (4, 4.0), (8, 6.0)]);
        assert_eq!(forecast.read_bytes_per_s(), 1e9);
        assert_eq!(forecast.bound_by_memory(&forward), 0.75);
        assert_eq!(forecast.threads_worth_using(), Some(2));
        assert_eq!(of(Vec::new()).threads_worth_using(), None);
    }

    #[test]
    fn threads_are_tried_by_halves() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(12), [1, 3, 6, 12]);
    }
}
