//! Measuring a list of cells, interleaved round by round, until enough samples or time are spent.
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    statistics::is_noisy,
    subject::{Cell, Stage, Subject},
};

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GridSettings {
    /// Samples wanted of every cell.
    pub repetitions: usize,
    /// Samples of every cell below which a spent budget is an error instead of an early end.
    pub fewest: usize,
    /// Samples at which a noisy cell is left as it is.
    pub most: usize,
    /// Relative spread above which a cell is noisy, unless it spreads over [`QUIET_US`](crate::statistics::QUIET_US) at
    /// most.
    pub noise_threshold: f64,
    /// Whether a forward is repeated after those of another stage or context until it takes no less.
    pub settles: bool,
    /// Time for the whole grid, warm-up included.
    pub budget: Duration,
}

impl GridSettings {
    /// Relative spread above which a cell is noisy, usually.
    pub const NOISE_THRESHOLD: f64 = 0.10;

    /// One sample of every cell.
    pub fn once(self) -> Self {
        GridSettings { repetitions: 1, fewest: 1, most: 1, ..self }
    }

    /// One sample of every cell, as it comes: to rehearse, where times mean nothing.
    pub fn rehearsed(self) -> Self {
        GridSettings { settles: false, ..self.once() }
    }
}

impl Default for GridSettings {
    fn default() -> Self {
        GridSettings {
            repetitions: 5,
            fewest: 3,
            most: 20,
            noise_threshold: Self::NOISE_THRESHOLD,
            settles: true,
            budget: Duration::from_secs(60),
        }
    }
}

/// Raw samples of one cell, in the order they were taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSamples {
    /// What was measured.
    pub cell: Cell,
    /// Elapsed times, in microseconds.
    pub samples_us: Vec<f64>,
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Cells without which there is no use in measuring.
    pub needed: &'a [Cell],
    /// Groups of further cells, the most useful first. Where the first round takes more than its share of the fewest
    /// rounds, the groups that it has not finished by then are left out.
    pub spare: &'a [Vec<Cell>],
}

impl Wanted<'_> {
    /// Where the group of spare cells begins that has the cell at `place`: a cell that is given up takes its group and
    /// the later ones along. Nothing can be done without the needed ones.
    fn group_begins(self, place: usize) -> Option<usize> {
        let lengths = std::iter::once(self.needed.len()).chain(self.spare.iter().map(Vec::len));
        let begins = lengths.scan(0, |sum, length| {
            *sum += length;
            Some(*sum)
        });
        begins.take_while(|begin| *begin <= place).last()
    }
}

/// What a grid gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Samples of every cell that was measured, in the order the cells were given.
    pub cells: Vec<CellSamples>,
    /// Whether spare cells were left out.
    pub is_spared: bool,
    /// Cells that stayed above the noise threshold.
    pub noisy: Vec<Cell>,
    /// Whether the budget ended the measurement before every cell was quiet or had all its samples.
    pub budget_spent: bool,
}

/// Warm-up time of short forwards, after which a forward no longer depends on what ran before.
const SETTLED_US: f64 = 16_000.0;
/// Most of them before a sample, however short they are.
const MOST_BEFORE: usize = 5;
/// Part of the time of the run before from which on a forward has settled: after other stages the first verification
/// was seen to take up to five times as long, and the next ones less and less.
const SETTLED_PART: f64 = 0.95;
/// Seconds after which nothing more is run to settle: of slow models one forward, or few samples would be left.
const MOST_SETTLING: f64 = 0.5;

/// Why a grid could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum GridError<E: std::error::Error + 'static> {
    /// The caller gave nothing to measure.
    #[error("no cells to measure: give at least one")]
    Empty,
    /// The caller gave a cell twice.
    #[error("{cell} is listed twice: list every cell once")]
    Duplicate {
        /// The cell.
        cell: Cell,
    },
    /// The settings contradict themselves.
    #[error("bad grid settings: expected {expected}, found {found}")]
    Settings {
        /// The rule.
        expected: &'static str,
        /// What the settings say.
        found: String,
    },
    /// The subject could not run a cell.
    #[error("cannot measure {cell}")]
    Subject {
        /// The cell.
        cell: Cell,
        /// The subject's own error.
        source: E,
    },
    /// The budget was spent before there was enough to judge.
    #[error(
        "measured {rounds} of at least {expected} rounds over {cells} cells in {spent:.1?}: allow more time or fewer \
         cells"
    )]
    Budget {
        /// Complete rounds.
        rounds: usize,
        /// Fewest rounds.
        expected: usize,
        /// Cells per round.
        cells: usize,
        /// Time spent.
        spent: Duration,
    },
}

/// Measures cells in rounds (A B C, A B C, ...), so that a slow drift of the machine affects all of them alike.
///
/// Every cell is warmed up first, short forwards again before each sample, and all until they have settled wherever
/// stage or context change ([`GridSettings::settles`]). Warm-up and first round show for which
/// spare cells there is time. After [`GridSettings::repetitions`] rounds the noisy cells are measured further, also in
/// rounds, until they are quiet or have [`GridSettings::most`] samples. `progress` gets (runs done, runs expected); the
/// second number grows when noisy cells need more.
///
/// # Errors
/// [`GridError`]: an unusable list or settings, a failing subject, or too small a budget.
pub fn measure_grid<S: Subject>(
    subject: &mut S,
    wanted: Wanted<'_>,
    settings: &GridSettings,
    progress: impl FnMut(usize, usize),
) -> Result<Measurement, GridError<S::Error>> {
    #[allow(
        clippy::disallowed_methods,
        reason = "the time budget of a measurement is what this function keeps"
    )]
    let start = Instant::now();
    measure_grid_with_clock(subject, wanted, settings, progress, |_| start.elapsed())
}

/// [`measure_grid`] with the clock `elapsed`, which may ask the subject.
///
/// # Errors
/// As [`measure_grid`].
pub fn measure_grid_with_clock<S: Subject>(
    subject: &mut S,
    wanted: Wanted<'_>,
    settings: &GridSettings,
    mut progress: impl FnMut(usize, usize),
    elapsed: impl Fn(&S) -> Duration,
) -> Result<Measurement, GridError<S::Error>> {
    let mut cells: Vec<&Cell> = wanted.needed.iter().chain(wanted.spare.iter().flatten()).collect();
    let all = cells.len();
    if wanted.needed.is_empty() {
        return Err(GridError::Empty);
    }
    check(&cells, settings)?;
    let spent = |subject: &S| elapsed(subject) >= settings.budget;
    let too_early = |rounds, cells, subject: &S| GridError::Budget {
        rounds,
        expected: settings.fewest,
        cells,
        spent: elapsed(subject),
    };
    let share = settings.budget / u32::try_from(settings.fewest).expect("few rounds");
    let kept = |place: usize, most: Duration, subject: &S| {
        if elapsed(subject) > most { wanted.group_begins(place) } else { None }
    };

    let mut warm_us = Vec::with_capacity(cells.len());
    for place in 0..cells.len() {
        let cell = cells[place];
        let before = elapsed(subject);
        subject.warm_up(cell).map_err(|source| GridError::Subject { cell: cell.clone(), source })?;
        warm_us.push(elapsed(subject).saturating_sub(before).as_secs_f64() * 1e6);
        // The first round takes about twice the time of the warm-up.
        if let Some(kept) = kept(place, share / 3, subject) {
            cells.truncate(kept);
            break;
        }
        if spent(subject) {
            return Err(too_early(0, cells.len(), subject));
        }
    }
    let mut total = cells.len() * settings.repetitions;
    let mut done = 0;
    let mut samples: Vec<Vec<f64>> = vec![Vec::with_capacity(settings.most); cells.len()];
    let mut budget_spent = false;
    let mut runs = Runs { last: None, settles: settings.settles };
    'rounds: for round in 0..settings.repetitions {
        for place in 0..cells.len() {
            if spent(subject) {
                if round < settings.fewest {
                    return Err(too_early(round, cells.len(), subject));
                }
                budget_spent = true;
                break 'rounds;
            }
            let before = match samples[place].last() {
                Some(us) => repeated(*us).min(MOST_BEFORE),
                None => repeated(warm_us[place]).min(1),
            };
            let time = runs.run(subject, cells[place], before)?;
            samples[place].push(time);
            if round == 0
                && let Some(kept) = kept(place, share, subject)
            {
                cells.truncate(kept);
                samples.truncate(kept);
                (total, done) = (kept * settings.repetitions, kept);
                break;
            }
            done += 1;
            progress(done, total);
        }
    }

    let is_noisy = |samples: &[f64]| is_noisy(samples, settings.noise_threshold);
    'noisy: while !budget_spent {
        let again: Vec<usize> = (0..cells.len())
            .filter(|i| samples[*i].len() < settings.most && is_noisy(&samples[*i]))
            .collect();
        if again.is_empty() {
            break;
        }
        total += again.len();
        for i in again {
            if spent(subject) {
                budget_spent = true;
                break 'noisy;
            }
            let before = samples[i].last().map_or(1, |us| repeated(*us).min(MOST_BEFORE));
            let time = runs.run(subject, cells[i], before)?;
            samples[i].push(time);
            done += 1;
            progress(done, total);
        }
    }

    let noisy = cells.iter().zip(&samples).filter(|(_, s)| is_noisy(s)).map(|(c, _)| (*c).clone()).collect();
    let is_spared = cells.len() < all;
    let cells = cells
        .into_iter()
        .zip(samples)
        .map(|(cell, samples_us)| CellSamples { cell: cell.clone(), samples_us });
    Ok(Measurement { cells: cells.collect(), is_spared, noisy, budget_spent })
}

/// How often a forward of this time is repeated before a sample. The time of a short one depends on what ran before it
/// (caches, clocks, parked threads). While decoding that is a forward of the same kind, so it is repeated until its
/// time has settled; a long one settles by itself while stage and context stay.
fn repeated(us: f64) -> usize {
    if us > 0.0 { (SETTLED_US / us) as usize } else { usize::MAX }
}

/// Samples one after the other.
struct Runs<'a> {
    /// What ran last.
    last: Option<&'a Cell>,
    settles: bool,
}

impl<'a> Runs<'a> {
    /// One sample, after `before` runs that are not counted, and after as many as the forward needs to settle where
    /// another stage or context ran last; host stages need none.
    fn run<S: Subject>(
        &mut self,
        subject: &mut S,
        cell: &'a Cell,
        before: usize,
    ) -> Result<f64, GridError<S::Error>> {
        let failed = |source| GridError::Subject { cell: cell.clone(), source };
        let is_other =
            self.last.is_none_or(|last| (&last.stage, last.context) != (&cell.stage, cell.context));
        self.last = Some(cell);
        if !matches!(cell.stage, Stage::Host(_)) {
            for _ in 0..before {
                subject.warm_up(cell).map_err(failed)?;
            }
            let (mut last, mut spent) = (f64::INFINITY, 0.0);
            while is_other && self.settles && spent < MOST_SETTLING {
                let time = subject.measure(cell).map_err(failed)?.as_secs_f64();
                spent += time;
                if time > SETTLED_PART * last {
                    break;
                }
                last = time;
            }
        }
        let time = subject.measure(cell).map_err(failed)?;
        Ok(time.as_secs_f64() * 1e6)
    }
}

fn check<E: std::error::Error>(cells: &[&Cell], settings: &GridSettings) -> Result<(), GridError<E>> {
    let GridSettings { repetitions, fewest, most, noise_threshold, settles: _, budget: _ } = *settings;
    let mut seen = BTreeSet::new();
    if let Some(cell) = cells.iter().find(|cell| !seen.insert(**cell)) {
        return Err(GridError::Duplicate { cell: (*cell).clone() });
    }
    if !(1 <= fewest && fewest <= repetitions && repetitions <= most) {
        return Err(GridError::Settings {
            expected: "1 <= fewest <= repetitions <= most",
            found: format!("{fewest}, {repetitions}, {most}"),
        });
    }
    if !(noise_threshold.is_finite() && noise_threshold > 0.0) {
        return Err(GridError::Settings {
            expected: "a positive noise threshold",
            found: noise_threshold.to_string(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
