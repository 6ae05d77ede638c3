//! The latencies of a profile: which cells it has, in which order they are measured, and their measurement.

use std::{collections::BTreeSet, time::Duration};

use ygg_profiler::{
    Cell, CellSamples, DrafterName, GridError, GridSettings, Stage, StepStage, Wanted, measure_grid,
};

use crate::{
    engine::{Error, Loaded},
    plan::{ChosenTuning, DrafterKind},
};

use super::{
    drafters::twin,
    options::ProfileOptions,
    progress::Progress,
    subject::{Abilities, StepSubject, WIDEST_DRAFT},
};

/// Host stages around the verify forward, measured at every width.
const AROUND_VERIFY: [StepStage; 5] =
    [StepStage::Decide, StepStage::Prune, StepStage::Mask, StepStage::Accept, StepStage::Commit];

/// How much is measured of forwards that wait for a disk or a bus: fewer samples than of others, since each takes a
/// reading.
const STREAMED_GRID: GridSettings = GridSettings {
    repetitions: 3,
    fewest: 2,
    most: 4,
    noise_threshold: GridSettings::NOISE_THRESHOLD,
    settles: false,
    budget: Duration::ZERO,
};
/// Rows of verifications without which a model whose weights are streamed is not planned, and of the forwards that its
/// first drafter grows recorded trees by.
const STREAMED_ROWS: [u32; 2] = [1, 8];
const STREAMED_GROWTHS: [u32; 3] = [1, 2, 4];

/// Measures all cells of `drafters` after each of `contexts` tokens of `text` within a budget, and gives self-tuning
/// drafters the samples of the fixed ones that they start as.
pub(super) fn latencies(
    loaded: &Loaded,
    (drafters, text, contexts): (&[(DrafterName, DrafterKind)], &[u32], &[usize]),
    tunings: &[ChosenTuning],
    (options, budget): (&ProfileOptions, Duration),
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<CellSamples>, Error> {
    let streams = loaded.set().graph().streams();
    let usual = if streams { STREAMED_GRID } else { GridSettings::default() };
    let usual = GridSettings { budget, ..usual };
    let settings = if options.is_rehearsal { usual.rehearsed() } else { usual };
    let longest = contexts[contexts.len() - 1];
    let mut subject =
        StepSubject::new(loaded, drafters, text, longest, ProfileOptions::TRACE_WIDTH, options.pinning)?;
    subject.tune(tunings)?;
    let cells = cells(loaded, drafters, contexts, subject.abilities())?;
    let mut spare = by_usefulness(cells, drafters, streams);
    let needed = spare.remove(0);
    let advance = |done, total| progress(Progress { what: "latencies", done, total });
    let wanted = Wanted { needed: &needed, spare: &spare };
    let mut measured = measure_grid(&mut subject, wanted, &settings, advance).map_err(grid_error)?.cells;
    for (name, twin) in drafters.iter().filter_map(|(name, kind)| Some((name, twin(kind, drafters)?))) {
        let forwards = |cell: &CellSamples| cell.cell.stage.drafter() == Some(twin);
        let mut same: Vec<_> = measured.iter().filter(|cell| forwards(cell)).cloned().collect();
        same.iter_mut().for_each(|cell| cell.cell.stage = cell.cell.stage.of_drafter(name));
        measured.extend(same);
    }
    Ok(measured)
}

fn cells(
    loaded: &Loaded,
    drafters: &[(DrafterName, DrafterKind)],
    contexts: &[usize],
    abilities: Abilities,
) -> Result<Vec<Cell>, Error> {
    let widths = loaded.set().widths();
    let widths_to = |most| widths.iter().filter(move |w| **w <= most);
    let mut cells = Vec::new();
    let mut add = |stage: Stage, width: usize, context: usize| {
        let (width, context) = (width as u32, context as u32);
        cells.push(Cell { stage, width, context });
    };
    for context in contexts {
        for width in widths {
            add(Stage::Verify, *width, *context);
            if abilities.verifications {
                add(Stage::VerifyWalk, *width, *context);
            }
            if abilities.parts {
                [Stage::Resident, Stage::Ends].into_iter().for_each(|part| add(part, *width, *context));
            }
        }
        if abilities.parts {
            add(Stage::Read, 1, *context);
        }
        for (name, kind) in drafters.iter().filter(|(_, kind)| twin(kind, drafters).is_none()) {
            if kind.drafts_blocks() {
                // Whole proposals of as many nodes.
                widths.iter().for_each(|w| add(Stage::Draft(name.clone()), *w, *context));
            } else if kind.grows_by_forwards() {
                let mut stages = vec![Stage::Draft(name.clone())];
                if kind.keeps_a_cache() {
                    // The width that steps are priced at: the root, and one row that the drafter has not read.
                    let width = widths.iter().find(|w| **w >= 2).unwrap_or(&1);
                    add(Stage::DraftHead(name.clone()), *width, *context);
                }
                if abilities.phases {
                    stages.extend([Stage::FirstGrowth(name.clone()), Stage::NextGrowth(name.clone())]);
                    if kind.keeps_a_cache() && !loaded.reads_hidden_rows(kind)? {
                        stages.push(Stage::VerifyTail(name.clone()));
                    }
                }
                if abilities.phases && abilities.verifications {
                    let stage = Stage::VerifyGrown(name.clone());
                    widths.iter().for_each(|w| add(stage.clone(), *w, *context));
                }
                for stage in stages {
                    widths_to(WIDEST_DRAFT).for_each(|w| add(stage.clone(), *w, *context));
                }
            } else {
                add(Stage::Draft(name.clone()), 1, *context);
            }
        }
    }
    let context = contexts[0];
    // Microseconds compared with a reading, and each takes a forward to be measured, but for decisions.
    let around = if loaded.set().graph().streams() { &AROUND_VERIFY[..1] } else { &AROUND_VERIFY[..] };
    for stage in around {
        widths.iter().for_each(|w| add(Stage::Host(*stage), *w, context));
    }
    if drafters.iter().any(|(_, kind)| kind.grows_by_forwards()) {
        widths_to(ProfileOptions::TRACE_WIDTH).for_each(|w| add(Stage::Host(StepStage::Grow), *w, context));
        add(Stage::Host(StepStage::Predict), 1, context);
    }
    Ok(cells)
}

/// The cells in groups, of which a grid without time leaves out the last: narrow widths and decisions, which every plan
/// needs, then wider ones, then the next longer context, then widths that only wide trees need, then walks of a device.
/// Drafters that run a model have most of the cells and come last, each by itself in the order of `drafters`: no plan
/// needs them, and where one has no time left, those before it are still priced. Where weights are streamed see
/// [`streamed_group`]. After them all come still longer contexts, each in the same order.
fn by_usefulness(cells: Vec<Cell>, drafters: &[(DrafterName, DrafterKind)], streams: bool) -> Vec<Vec<Cell>> {
    const WITHOUT_DRAFTERS: usize = 6;
    let that_runs_a_model =
        |name: &DrafterName| drafters.iter().position(|(known, kind)| known == name && kind.grows_alone());
    let first_model = drafters.iter().position(|(_, kind)| kind.grows_alone());
    let contexts: BTreeSet<u32> = cells.iter().map(|cell| cell.context).collect();
    let contexts: Vec<u32> = contexts.into_iter().collect();
    let of_context = WITHOUT_DRAFTERS + drafters.len();
    let group = |cell: &Cell| {
        let longer = contexts.iter().position(|context| *context == cell.context).unwrap_or_default();
        let drafter = cell.stage.drafter().and_then(that_runs_a_model);
        let within = if streams {
            let drafter = drafter.map(|place| (place, Some(place) == first_model));
            streamed_group(cell, drafter, longer > 0, drafters.len())
        } else {
            match &cell.stage {
                Stage::Host(StepStage::Decide) => 0,
                Stage::VerifyWalk | Stage::Host(StepStage::Grow | StepStage::Predict) => WITHOUT_DRAFTERS - 1,
                _ => match drafter {
                    Some(drafter) => WITHOUT_DRAFTERS + drafter,
                    None => {
                        let by_width = match cell.width {
                            1 | 4 => 0,
                            2 | 8 => 1,
                            ..=16 => 2,
                            _ => 4,
                        };
                        by_width.max(if longer > 0 { 3 } else { 0 })
                    }
                },
            }
        };
        longer.saturating_sub(1) * of_context + within
    };
    let mut groups = vec![Vec::new(); contexts.len().max(1) * of_context];
    for cell in cells {
        groups[group(&cell)].push(cell);
    }
    groups
}

/// The group of a cell where weights are streamed. The first drafter that runs a model, the substitute, is what such a
/// model is decoded by, so its narrow growths are measured in any case, in addition to what every plan needs. Then come
/// what else prices its trees, parts of forwards, which price other divisions of memory, the other drafters, each by
/// itself, further widths, growths as wide as no recorded tree, and the next longer context. `drafter` is the place of
/// the one that the cell is of, and whether that is the first.
fn streamed_group(cell: &Cell, drafter: Option<(usize, bool)>, is_longer: bool, drafters: usize) -> usize {
    let behind_drafters = 2 + drafters;
    if is_longer {
        return behind_drafters + 2;
    }
    match (&cell.stage, drafter) {
        (Stage::Host(StepStage::Decide), _) => 0,
        (Stage::Host(_), _) => 1,
        (Stage::Draft(_), Some((_, true))) => match cell.width {
            width if STREAMED_GROWTHS.contains(&width) => 0,
            width if width as usize <= ProfileOptions::TRACE_WIDTH => behind_drafters,
            _ => behind_drafters + 1,
        },
        (_, Some((place, _))) => 2 + place,
        // Those of drafters without a model take no reading.
        (Stage::Draft(_), None) => 0,
        (Stage::Verify, None) if STREAMED_ROWS.contains(&cell.width) => 0,
        (Stage::Read, _) => 1,
        (_, None) => match cell.width {
            1 | 4 | 8 | 16 => 1,
            ..=32 => behind_drafters,
            _ => behind_drafters + 1,
        },
    }
}

/// Whose fault it is that latencies could not be measured.
pub(super) fn grid_error(error: GridError<Error>) -> Error {
    let said = error.to_string();
    match error {
        GridError::Subject { source, .. } => source.while_doing(&said),
        GridError::Budget { .. } => Error::input(said),
        GridError::Empty | GridError::Duplicate { .. } | GridError::Settings { .. } => Error::internal(said),
    }
}

#[cfg(test)]
mod tests;
