//! The latencies of a profile: which cells it has, in which order they are measured, and their measurement.

use std::{collections::BTreeSet, time::Duration};

use ygg_profiler::{
    Cell, CellSamples, DrafterName, GridError, GridSettings, HostStage, Stage, Wanted, measure_grid,
};

use crate::{
    engine::{Error, Loaded},
    plan::{ChosenTuning, DrafterKind},
};

use super::{
    autoplan::Progress,
    drafters::twin,
    record::{ProfileOptions, TRACE_WIDTH},
    subject::{Abilities, StepSubject},
};

/// The widest draft width that is measured: wider than any growth, for heads drafted ahead of as many verified rows.
pub(super) const WIDEST_DRAFT: usize = 16;
/// Host stages around the verify forward, measured at every width.
const AROUND_VERIFY: [HostStage; 5] =
    [HostStage::Decide, HostStage::Prune, HostStage::Mask, HostStage::Accept, HostStage::Commit];

/// Measures all cells of `drafters` behind each of `contexts` tokens of `text` within a budget, and gives self-tuning drafters the samples of the
/// fixed ones that they start as.
pub(super) fn latencies(
    loaded: &Loaded,
    (drafters, text, contexts): (&[(DrafterName, DrafterKind)], &[u32], &[usize]),
    tunings: &[ChosenTuning],
    (options, budget): (&ProfileOptions, Duration),
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<CellSamples>, Error> {
    let usual = GridSettings { budget, ..GridSettings::default() };
    let settings = if options.is_rehearsal { usual.once() } else { usual };
    let longest = contexts[contexts.len() - 1];
    let mut subject = StepSubject::new(loaded, drafters, text, longest, TRACE_WIDTH, options.pinning)?;
    subject.tune(tunings)?;
    let cells = cells(loaded, drafters, contexts, subject.abilities())?;
    let mut spare = by_usefulness(cells, drafters, subject.streams());
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
            if kind.runs_a_model() {
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
    // Microseconds beside a reading, and each takes a forward to be measured, but for decisions.
    let around = if loaded.set().graph().streams() { &AROUND_VERIFY[..1] } else { &AROUND_VERIFY[..] };
    for stage in around {
        widths.iter().for_each(|w| add(Stage::Host(*stage), *w, context));
    }
    if drafters.iter().any(|(_, kind)| kind.runs_a_model()) {
        widths_to(TRACE_WIDTH).for_each(|w| add(Stage::Host(HostStage::Grow), *w, context));
        add(Stage::Host(HostStage::Predict), 1, context);
    }
    Ok(cells)
}

/// The cells in groups, of which a grid without time leaves out the last: narrow widths and decisions, which every plan needs, then wider ones, then
/// the next longer context, then widths that only wide trees need, then walks of a device. Drafters that run a model have most of the cells
/// and come last, each by itself in the order of `drafters`: no plan needs them, and where one has no time left, those before it are still
/// priced. Where weights are streamed they come before all that no plan needs, since there the verifier's forwards take the time. Behind them
/// all come still longer contexts, each in the same order.
fn by_usefulness(cells: Vec<Cell>, drafters: &[(DrafterName, DrafterKind)], streams: bool) -> Vec<Vec<Cell>> {
    const WITHOUT_DRAFTERS: usize = 6;
    let that_runs_a_model =
        |name: &DrafterName| drafters.iter().position(|(known, kind)| known == name && kind.runs_a_model());
    let contexts: BTreeSet<u32> = cells.iter().map(|cell| cell.context).collect();
    let contexts: Vec<u32> = contexts.into_iter().collect();
    let of_context = WITHOUT_DRAFTERS + drafters.len();
    let group = |cell: &Cell| {
        let longer = contexts.iter().position(|context| *context == cell.context).unwrap_or_default();
        let within = match &cell.stage {
            Stage::Host(HostStage::Decide) => 0,
            Stage::VerifyWalk | Stage::Host(HostStage::Grow | HostStage::Predict) => WITHOUT_DRAFTERS - 1,
            stage => match stage.drafter().and_then(that_runs_a_model) {
                Some(drafter) => WITHOUT_DRAFTERS + drafter,
                None => {
                    let by_width = match cell.width {
                        1 | 4 => 0,
                        2 | 8 => 1,
                        ..=16 => 2,
                        _ => 4,
                    };
                    let is_part = matches!(stage, Stage::Read | Stage::Resident | Stage::Ends);
                    by_width.max(if longer > 0 { 3 } else { usize::from(is_part) })
                }
            },
        };
        let place = match within {
            0 => 0,
            within if !streams => within,
            drafter if drafter >= WITHOUT_DRAFTERS => 1 + drafter - WITHOUT_DRAFTERS,
            other => other + drafters.len(),
        };
        longer.saturating_sub(1) * of_context + place
    };
    let mut groups = vec![Vec::new(); contexts.len().max(1) * of_context];
    for cell in cells {
        groups[group(&cell)].push(cell);
    }
    groups
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
mod tests {
    use super::*;
    use crate::measure::drafters::that_skips as drafter;

    #[test]
    fn drafters_that_run_a_model_come_last_and_each_by_itself() {
        let drafters = [drafter("b", 1), drafter("a", 2)];
        let cell = |stage: Stage, width, context| Cell { stage, width, context };
        let draft = |i: usize, width| cell(Stage::Draft(drafters[i].0.clone()), width, 100);
        let grow = cell(Stage::Host(HostStage::Grow), 2, 100);
        let [narrow, longer, wide, longest] = [(1, 100), (1, 200), (32, 100), (1, 300)]
            .map(|(width, context)| cell(Stage::Verify, width, context));
        let cells = vec![
            longest.clone(),
            draft(1, 1),
            wide.clone(),
            draft(0, 1),
            longer.clone(),
            grow.clone(),
            draft(1, 2),
            narrow.clone(),
        ];
        let groups = |streams| {
            let groups = by_usefulness(cells.clone(), &drafters, streams);
            groups.into_iter().filter(|group| !group.is_empty()).collect::<Vec<_>>()
        };
        let of_verifier = [vec![longer], vec![wide], vec![grow]];
        let of_drafters = [vec![draft(0, 1)], vec![draft(1, 1), draft(1, 2)]];
        let (first, last) = ([vec![narrow]], [vec![longest]]);
        assert_eq!(groups(false), [&first[..], &of_verifier, &of_drafters, &last].concat());
        assert_eq!(groups(true), [&first[..], &of_drafters, &of_verifier, &last].concat());
    }
}
