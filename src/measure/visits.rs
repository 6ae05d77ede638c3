//! What tells how much a machine changes while it is profiled: a few verifications over and over, from before anything is recorded to the end.
use std::time::{Duration, Instant};

use ygg_profiler::{Cell, CellSamples, GridError, GridSettings, Stage, Wanted, measure_grid};

use crate::{
    engine::{Error, Loaded},
    plan::ChosenTuning,
};

use super::{
    autoplan::Progress,
    record::{ProfileOptions, TRACE_WIDTH, grid_error},
    subject::StepSubject,
};

/// Rows of the verifications, the most useful first: one, and several that cost as much more as several rows do on this machine now.
const ROWS: [usize; 2] = [1, 4];
const SPARE: [usize; 6] = [8, 2, 16, 3, 6, 12];
/// The part of the time for everything that the first visit may take; those who come late find fewer widths.
const FIRST_PART: u32 = 24;
/// The part of the time between two visits that the latter takes at most, and the most visits in the time for everything.
const PART: u32 = 20;
const MOST: u32 = 60;

/// Visits to a machine.
pub(super) struct Visits {
    subject: StepSubject,
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
    /// Begins with a visit, behind `text` repeated to `context` tokens. `None` where the machine is too slow for verifications of one row and
    /// of several within their part of the budget.
    ///
    /// # Errors
    /// [`Error`] if a session cannot be opened or a forward fails.
    pub(super) fn begin(
        loaded: &Loaded,
        (text, context): (&[u32], usize),
        tunings: &[ChosenTuning],
        options: &ProfileOptions,
    ) -> Result<Option<Self>, Error> {
        let cell = |width: usize| Cell { stage: Stage::Verify, width: width as u32, context: context as u32 };
        let is_there = |width: &usize| loaded.set().widths().contains(width);
        let needed: Vec<Cell> = ROWS.into_iter().filter(is_there).map(cell).collect();
        let spare: Vec<Vec<Cell>> =
            SPARE.into_iter().filter(is_there).map(|width| vec![cell(width)]).collect();
        let settings = GridSettings::default().once();
        let mut subject = StepSubject::new(loaded, &[], text, context, TRACE_WIDTH, options.pinning)?;
        subject.tune(tunings)?;
        let begun = now();
        let first = GridSettings { budget: options.budget / FIRST_PART, ..settings };
        let wanted = Wanted { needed: &needed, spare: &spare };
        let measured = match measure_grid(&mut subject, wanted, &first, |_, _| {}) {
            Ok(measured) => measured.cells,
            Err(GridError::Budget { .. }) => return Ok(None),
            Err(error) => return Err(grid_error(error)),
        };
        let (cells, samples_us) = measured.into_iter().map(|cell| (cell.cell, cell.samples_us)).unzip();
        // Where times mean nothing, one visit is as good as many.
        let least = if options.is_rehearsal { Duration::MAX } else { options.budget / MOST };
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
pub(super) struct Watch<'p> {
    visits: Option<Visits>,
    progress: &'p mut dyn FnMut(Progress),
}

impl<'p> Watch<'p> {
    pub(super) fn new(visits: Option<Visits>, progress: &'p mut dyn FnMut(Progress)) -> Self {
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
    use crate::{
        engine::{Activations, KvFormat, LoadOptions},
        model::synthetic::SyntheticSpec,
        runtime::Pinning,
    };

    fn loaded(widths: &[usize]) -> Loaded {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        SyntheticSpec::default().write_gguf(&path).unwrap();
        let options = LoadOptions {
            tier: None,
            activations: Activations::Native,
            cache: KvFormat::F16,
            threads: Some(1),
            widths: widths.to_vec(),
            resident: None,
        };
        Loaded::open(&path, &options).unwrap()
    }

    #[test]
    fn every_visit_takes_one_sample_of_each_and_comes_when_it_is_time() {
        let loaded = loaded(&[4, 8, 32]);
        let options = |budget| ProfileOptions {
            pinning: Pinning::Floating,
            ..ProfileOptions::new(Duration::from_secs(budget))
        };
        let begin = |budget| Visits::begin(&loaded, (&[1, 2, 3], 16), &[], &options(budget)).unwrap();
        let visits = begin(3600).expect("a small model is fast");
        let mut told = 0;
        let mut progress = |_: Progress| told += 1;
        let mut watch = Watch::new(Some(visits), &mut progress);
        let done = Progress { what: "test", done: 1, total: 1 };
        watch.advance(done);
        watch.visits.as_mut().unwrap().next = now();
        watch.advance(done);
        watch.advance(done);
        let samples = watch.end().unwrap();
        assert_eq!(told, 3);
        let widths: Vec<u32> = samples.iter().map(|visited| visited.cell.width).collect();
        assert_eq!(widths, [1, 4, 8], "no width that no plan of few rows has");
        assert!(
            samples.iter().all(|visited| visited.samples_us.len() == 2),
            "one before it was time: {samples:?}"
        );
        assert!(begin(0).is_none(), "no time for a visit");
        let none = Watch::new(None, &mut |_| {}).end().unwrap();
        assert!(none.is_empty());
    }
}
