//! Measuring some latencies of a profile once more. Everything else in the profile stays.

use std::time::Duration;

use ygg_profiler::{Cell, CellSelection, DrafterName, GridSettings, Profile, Wanted, measure_grid};

use crate::{
    engine::{Error, Loaded},
    plan::DrafterKind,
    planner::choose_tunings,
    runtime::Pinning,
};

use super::{latencies::grid_error, options::ProfileOptions, progress::Progress, subject::StepSubject};

/// Which latencies are measured again, and how long.
#[derive(Clone, Debug)]
pub struct RemeasureOptions {
    /// The cells, those of any of these selections. Cells that the planner compares are best measured together: a
    /// machine drifts.
    pub cells: Vec<CellSelection>,
    /// Time for everything.
    pub budget: Duration,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
    /// Whether every cell is measured once, to rehearse with a device that is emulated.
    pub is_rehearsal: bool,
}

/// Replaces the samples of the cells by new ones, taken under the tunings of the profile. `loaded` must be what the
/// profile was measured with, opened with [`ProfileOptions::WIDTHS`](super::ProfileOptions::WIDTHS). Returns the
/// profile and how many cells were measured: none where the noisy ones are selected and none is.
///
/// # Errors
/// [`Error`] of kind `Input` if the profile is of another machine, model or build, no cell is selected, or the budget
/// is too small for a single round.
pub fn remeasure(
    loaded: &Loaded,
    mut profile: Profile,
    options: &RemeasureOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Profile, usize), Error> {
    let differences = profile.fingerprints.differences(&loaded.fingerprints()?);
    if !differences.is_empty() {
        let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
        return Err(Error::input(format!(
            "latencies of this profile cannot be measured again here: {}; make a profile with `yggc profile`",
            differences.join("; ")
        )));
    }
    let cells = selected(&profile, &options.cells)?;
    if cells.is_empty() {
        return Ok((profile, 0));
    }
    let drafters = profile
        .drafters
        .iter()
        .map(|described| Ok((described.name.clone(), DrafterKind::from_description(described)?)));
    let drafters = drafters.collect::<Result<Vec<(DrafterName, DrafterKind)>, Error>>()?;
    let loaded = &loaded.with_drafters(drafters.iter().map(|(_, kind)| kind))?;
    let text = profile.token_traces.first().map(|request| request.prompt.clone()).ok_or_else(|| {
        Error::input("the profile recorded no request: expected one or more; make it with `yggc profile`")
    })?;
    let longest = cells.iter().map(|cell| cell.context as usize).max().expect("a cell is selected");
    let mut subject =
        StepSubject::new(loaded, &drafters, &text, longest, ProfileOptions::TRACE_WIDTH, options.pinning)?;
    subject.tune(&choose_tunings(&profile.tunings))?;
    let settings = GridSettings {
        budget: options.budget,
        noise_threshold: profile.noise_threshold,
        settles: !subject.streams(),
        ..GridSettings::default()
    };
    let settings = if options.is_rehearsal { settings.rehearsed() } else { settings };
    let wanted = Wanted { needed: &cells, spare: &[] };
    let measured = measure_grid(&mut subject, wanted, &settings, |done, total| {
        progress(Progress { what: "latencies", done, total });
    })
    .map_err(grid_error)?;
    for new in measured.cells {
        let old = profile.measurements.iter_mut().find(|old| old.cell == new.cell);
        *old.expect("selected among the measurements") = new;
    }
    profile.validate().map_err(|e| Error::internal(e.to_string()))?;
    Ok((profile, cells.len()))
}

/// The cells of the profile that any of the selections picks, in its order; none where it is quiet and noisy ones are
/// asked for.
fn selected(profile: &Profile, selections: &[CellSelection]) -> Result<Vec<Cell>, Error> {
    let table = profile.table().map_err(|e| Error::input(e.to_string()))?;
    let cells: Vec<Cell> = profile.measurements.iter().map(|measured| measured.cell.clone()).collect();
    let picks = |selection: &CellSelection| cells.iter().any(|cell| selection.picks(cell, &table));
    let is_wrong = |selection: &&CellSelection| **selection != CellSelection::Noisy && !picks(selection);
    if let Some(empty) = selections.iter().find(is_wrong) {
        let stages: std::collections::BTreeSet<String> =
            cells.iter().map(|cell| cell.stage.to_string()).collect();
        let stages: Vec<String> = stages.into_iter().collect();
        return Err(Error::input(format!(
            "`{empty}` selects no cell of the profile: expected all, noisy, or cells of {}, widths {:?}, contexts {:?}",
            stages.join(", "),
            table.widths(&ygg_profiler::Stage::Verify),
            table.contexts()
        )));
    }
    if selections.is_empty() {
        return Err(Error::input("no cells to measure again: expected one selection or more, found none"));
    }
    let is_selected = |cell: &Cell| selections.iter().any(|selection| selection.picks(cell, &table));
    Ok(cells.iter().filter(|cell| is_selected(cell)).cloned().collect())
}
