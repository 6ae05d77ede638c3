//! What tells how much a machine changes while it is profiled: a few verifications before anything is recorded, which are measured
//! again with all others after that.
use ygg_profiler::{Cell, CellSamples, GridError, GridSettings, Stage, Wanted, measure_grid};

use crate::{
    engine::{Error, Loaded},
    plan::ChosenTuning,
};

use super::{
    record::{ProfileOptions, TRACE_WIDTH, grid_error},
    subject::StepSubject,
};

/// Rows of the verifications beyond one, which cost as much more as several rows do on this machine now, the most useful first.
const SEVERAL: [usize; 3] = [4, 8, 2];
/// Samples of each.
const ROUNDS: usize = 3;
/// The part of the time for everything.
const PART: u32 = 24;

/// Samples of verifications of one row and of several, behind `text` repeated to `context` tokens. None where the machine is too slow to
/// take three within their part of the budget.
///
/// # Errors
/// [`Error`] if a session cannot be opened or a forward fails.
pub(super) fn earlier(
    loaded: &Loaded,
    (text, context): (&[u32], usize),
    tunings: &[ChosenTuning],
    options: &ProfileOptions,
) -> Result<Vec<CellSamples>, Error> {
    let cell = |width: usize| Cell { stage: Stage::Verify, width: width as u32, context: context as u32 };
    let is_there = |width: &usize| loaded.set().widths().contains(width);
    let groups: Vec<Vec<Cell>> =
        SEVERAL.into_iter().filter(is_there).map(|width| vec![cell(width)]).collect();
    let Some((first, spare)) = groups.split_first() else { return Ok(Vec::new()) };
    let needed = [&[cell(1)], &first[..]].concat();
    let usual = GridSettings {
        repetitions: ROUNDS,
        fewest: ROUNDS,
        most: ROUNDS,
        budget: options.budget / PART,
        ..GridSettings::default()
    };
    let settings = if options.is_rehearsal { usual.once() } else { usual };
    let mut subject = StepSubject::new(loaded, &[], text, context, TRACE_WIDTH, options.pinning)?;
    subject.tune(tunings)?;
    match measure_grid(&mut subject, Wanted { needed: &needed, spare }, &settings, |_, _| {}) {
        Ok(measured) => Ok(measured.cells),
        Err(GridError::Budget { .. }) => Ok(Vec::new()),
        Err(error) => Err(grid_error(error)),
    }
}
