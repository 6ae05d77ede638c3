//! What tells how much a machine changes while it is profiled: a few verifications over and over, from before anything
//! is recorded to the end.
use std::time::{Duration, Instant};

use ygg_profiler::{Cell, CellSamples, GridError, GridSettings, Stage, Subject, Wanted, measure_grid};

use crate::{
    engine::{Error, Loaded},
    plan::ChosenTuning,
};

use super::{latencies::grid_error, options::ProfileOptions, progress::Progress, subject::StepSubject};

/// Rows of the verifications, the most useful first: one, and several that cost as much more as several rows do on this
/// machine now.
const ROWS: [usize; 2] = [1, 4];
const SPARE: [usize; 6] = [8, 2, 16, 3, 6, 12];
/// The part of the time for everything that the first visit may take; those who come late find fewer widths.
const FIRST_PART: u32 = 24;
/// The part of the time between two visits that the latter takes at most, and the most visits in the time for
/// everything.
const PART: u32 = 20;
const MOST: u32 = 60;

/// Visits to a machine.
pub(super) struct Visits<S = StepSubject> {
    subject: S,
    /// Verifications of one row and of several.
    cells: Vec<Cell>,
    /// One sample of every visit, by cell.
    samples_us: Vec<Vec<f64>>,
    settings: GridSettings,
    /// The least time between two visits.
    least: Duration,
    next: Instant,
    failed: Option<Error>,
}

impl Visits {
    /// Begins with a visit, after `text` repeated to `context` tokens. `None` where the machine is too slow for
    /// verifications of one row and of several within their part of the budget.
    ///
    /// # Errors
    /// [`Error`] if a session cannot be opened or a forward fails.
    pub(super) fn open(
        loaded: &Loaded,
        (text, context): (&[u32], usize),
        tunings: &[ChosenTuning],
        options: &ProfileOptions,
    ) -> Result<Option<Self>, Error> {
        let mut subject =
            StepSubject::new(loaded, &[], text, context, ProfileOptions::TRACE_WIDTH, options.pinning)?;
        subject.tune(tunings)?;
        let usual = GridSettings {
            budget: options.budget / FIRST_PART,
            settles: !subject.streams(),
            ..GridSettings::default()
        };
        // Where times mean nothing, one visit is as good as many.
        let (settings, least) = if options.is_rehearsal {
            (usual.rehearsed(), Duration::MAX)
        } else {
            (usual.once(), options.budget / MOST)
        };
        Self::begin(subject, (loaded.set().widths(), context), settings, least)
    }
}

impl<S: Subject<Error = Error>> Visits<S> {
    /// Begins with a visit of as many `widths` as there is time for in the budget of the settings; the others are at
    /// least `least` apart.
    fn begin(
        mut subject: S,
        (widths, context): (&[usize], usize),
        settings: GridSettings,
        least: Duration,
    ) -> Result<Option<Self>, Error> {
        let cell = |width: usize| Cell { stage: Stage::Verify, width: width as u32, context: context as u32 };
        let is_there = |width: &usize| widths.contains(width);
        let needed: Vec<Cell> = ROWS.into_iter().filter(is_there).map(cell).collect();
        let spare: Vec<Vec<Cell>> =
            SPARE.into_iter().filter(is_there).map(|width| vec![cell(width)]).collect();
        let begun = now();
        let wanted = Wanted { needed: &needed, spare: &spare };
        let measured = match measure_grid(&mut subject, wanted, &settings, |_, _| {}) {
            Ok(measured) => measured.cells,
            Err(GridError::Budget { .. }) => return Ok(None),
            Err(error) => return Err(grid_error(error)),
        };
        let (cells, samples_us) = measured.into_iter().map(|cell| (cell.cell, cell.samples_us)).unzip();
        let mut visits = Self { subject, cells, samples_us, settings, least, next: begun, failed: None };
        visits.wait_behind(begun);
        Ok(Some(visits))
    }

    /// Comes again if it is time: to be called while other things are measured and recorded, between two of them.
    fn come(&mut self) {
        let begun = now();
        if begun < self.next || self.failed.is_some() {
            return;
        }
        // Every cell once: no budget ends that.
        let settings = GridSettings { budget: Duration::MAX, ..self.settings };
        let wanted = Wanted { needed: &self.cells, spare: &[] };
        match measure_grid(&mut self.subject, wanted, &settings, |_, _| {}) {
            Ok(measured) => {
                for (samples_us, measured) in self.samples_us.iter_mut().zip(measured.cells) {
                    samples_us.extend(measured.samples_us);
                }
            }
            Err(error) => self.failed = Some(grid_error(error)),
        }
        self.wait_behind(begun);
    }

    fn wait_behind(&mut self, begun: Instant) {
        let least = self.least.max(begun.elapsed() * PART);
        // A moment that never comes.
        const NEVER: Duration = Duration::from_secs(1 << 32);
        self.next = begun + least.min(NEVER);
    }

    /// All samples.
    ///
    /// # Errors
    /// [`Error`] if a visit failed.
    fn end(self) -> Result<Vec<CellSamples>, Error> {
        let Self { cells, samples_us, failed, .. } = self;
        let samples = || cells.into_iter().zip(samples_us);
        failed.map_or_else(
            || Ok(samples().map(|(cell, samples_us)| CellSamples { cell, samples_us }).collect()),
            Err,
        )
    }
}

/// What is told of progress, and comes again meanwhile.
pub(super) struct Watch<'p, S = StepSubject> {
    visits: Option<Visits<S>>,
    progress: &'p mut dyn FnMut(Progress),
}

impl<'p, S: Subject<Error = Error>> Watch<'p, S> {
    pub(super) fn new(visits: Option<Visits<S>>, progress: &'p mut dyn FnMut(Progress)) -> Self {
        Self { visits, progress }
    }

    /// Passes on how far a profile is.
    pub(super) fn advance(&mut self, progress: Progress) {
        if let Some(visits) = &mut self.visits {
            visits.come();
        }
        (self.progress)(progress);
    }

    /// The samples of all visits; none without.
    ///
    /// # Errors
    /// [`Error`] if a visit failed.
    pub(super) fn end(self) -> Result<Vec<CellSamples>, Error> {
        self.visits.map_or(Ok(Vec::new()), Visits::end)
    }
}

#[allow(clippy::disallowed_methods, reason = "visits are some time apart")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A verification takes as many microseconds as it has rows, and the third visit fails.
    struct Counting {
        visits: usize,
    }

    impl Subject for Counting {
        type Error = Error;

        fn warm_up(&mut self, _: &Cell) -> Result<(), Error> {
            Ok(())
        }

        fn measure(&mut self, cell: &Cell) -> Result<Duration, Error> {
            self.visits += usize::from(cell.width == 1);
            if self.visits > 2 {
                Err(Error::input("no third"))
            } else {
                Ok(Duration::from_micros(cell.width.into()))
            }
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn every_visit_takes_one_sample_of_each_and_comes_when_it_is_time() {
        let begin = |budget| {
            let settings = GridSettings { budget, ..GridSettings::default().rehearsed() };
            Visits::begin(Counting { visits: 0 }, (&[1, 4, 8, 32], 16), settings, HOUR).unwrap()
        };
        assert!(begin(Duration::ZERO).is_none(), "no time for a visit");
        let mut told = 0;
        let mut progress = |_: Progress| told += 1;
        let mut watch = Watch::new(begin(HOUR), &mut progress);
        let done = Progress { what: "test", done: 1, total: 1 };
        watch.advance(done);
        watch.visits.as_mut().unwrap().next = now();
        watch.advance(done);
        watch.advance(done);
        let visited = |width, us| CellSamples {
            cell: Cell { stage: Stage::Verify, width, context: 16 },
            samples_us: vec![us; 2],
        };
        // No width that no plan of few rows has, and none before it was time.
        assert_eq!(watch.end().unwrap(), [visited(1, 1.0), visited(4, 4.0), visited(8, 8.0)]);
        assert_eq!(told, 3);
    }

    #[test]
    fn a_visit_that_fails_is_told_at_the_end() {
        let settings = GridSettings { budget: HOUR, ..GridSettings::default().rehearsed() };
        let visits = Visits::begin(Counting { visits: 1 }, (&[1, 4], 16), settings, HOUR).unwrap();
        let mut progress = |_: Progress| {};
        let mut watch = Watch::new(visits, &mut progress);
        watch.visits.as_mut().unwrap().next = now();
        watch.advance(Progress { what: "test", done: 1, total: 1 });
        let error = watch.end().unwrap_err().to_string();
        assert!(error.contains("verify at width 1"), "{error}");
        let mut progress = |_: Progress| {};
        assert!(Watch::<Counting>::new(None, &mut progress).end().unwrap().is_empty());
    }
}
