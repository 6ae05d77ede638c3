//! The objective: what a step costs and how much faster than plain decoding it makes a token. Pure.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), eq. 3, with the measured host stages added. Steps that
//! grow a tree are priced by the graph of their stages.
use std::{collections::BTreeMap, iter};

use ygg_profiler::{DrafterName, LatencyTable, Stage, StepStage, TableError};

use crate::plan::{Schedule, StageTime};

/// Stages that follow the choice of the rows to verify, at the width of the verifier; of a device that walks by itself
/// the first alone.
const AROUND_VERIFY: &[StepStage] = &[StepStage::Mask, StepStage::Accept, StepStage::Commit];

/// What one run of a stage takes. Deciding about a tree of `width` nodes takes what it does at the smallest measured
/// width that holds them. `None` for host work that was not measured, which counts as none.
///
/// # Errors
/// [`TableError::Unmeasured`] if the stage lacks the width.
pub(in crate::planner) fn stage_us(
    table: &LatencyTable,
    stage: &Stage,
    width: u32,
    context: u32,
) -> Result<Option<f64>, TableError> {
    let mut width = width;
    if let Stage::Host(host) = stage {
        let measured = table.widths(stage);
        if measured.is_empty() {
            return Ok(None);
        }
        if *host == StepStage::Decide {
            width = measured.into_iter().find(|measured| *measured >= width).unwrap_or(width);
        }
    }
    table.latency_us(stage, width, context).map(Some)
}

/// Some stages in order, each run once at its width.
fn priced(
    table: &LatencyTable,
    context: u32,
    stages: impl IntoIterator<Item = (Stage, u32)>,
) -> Result<Vec<StageTime>, TableError> {
    let priced = stages.into_iter().map(|(stage, width)| {
        let us = stage_us(table, &stage, width, context)?;
        Ok(us.map(|us| StageTime { stage, us }))
    });
    priced.filter_map(Result::transpose).collect()
}

/// A verification of `width` rows with the host work around it; where a device walks, the inputs are all of that.
fn verification(stage: Stage, width: u32) -> impl Iterator<Item = (Stage, u32)> {
    let around = if stage == Stage::Verify { AROUND_VERIFY } else { &AROUND_VERIFY[..1] };
    iter::once(stage).chain(around.iter().copied().map(Stage::Host)).map(move |stage| (stage, width))
}

/// The stages of a plain step. Host stages count where the table has them.
///
/// # Errors
/// [`TableError::Unmeasured`] if a stage lacks width 1.
pub fn plain_step(table: &LatencyTable, context: u32) -> Result<Vec<StageTime>, TableError> {
    priced(table, context, verification(Stage::Verify, 1))
}

/// The stages of a step whose proposal needs no model: one `draft:NAME` at width 1, then verification of `verify_width`
/// rows, the width the proposal actually ran at.
///
/// # Errors
/// [`TableError::Unmeasured`] if a stage lacks a width.
pub fn free_step(
    table: &LatencyTable,
    drafter: &DrafterName,
    schedule: Schedule,
    verify_width: u32,
    context: u32,
) -> Result<Vec<StageTime>, TableError> {
    let proposal = iter::once((Stage::Draft(drafter.clone()), 1));
    priced(table, context, proposal.chain(verification(schedule.verification(drafter), verify_width)))
}

/// Adds to the stages of a step that of deciding how many rows of a tree of `nodes` nodes to verify, where the table
/// has it: as measured at the smallest width that holds the tree.
///
/// # Errors
/// [`TableError::Unmeasured`] if the stage was measured for smaller trees only.
pub fn with_decision(
    stages: Vec<StageTime>,
    table: &LatencyTable,
    nodes: u32,
    context: u32,
) -> Result<Vec<StageTime>, TableError> {
    let decision = priced(table, context, [(Stage::Host(StepStage::Decide), nodes)])?;
    Ok([stages, decision].concat())
}

/// Adds to the stages of a step, in front, that of telling how deep to draft, where the table has it.
///
/// # Errors
/// [`TableError::Unmeasured`] if the stage was measured at another width than 1 only.
pub fn with_prediction(
    stages: Vec<StageTime>,
    table: &LatencyTable,
    context: u32,
) -> Result<Vec<StageTime>, TableError> {
    let prediction = priced(table, context, [(Stage::Host(StepStage::Predict), 1)])?;
    Ok([prediction, stages].concat())
}

/// The mean over steps of different kinds, for instance of different widths, `steps` of each: a stage that some of them
/// lack counts as no time there.
///
/// # Errors
/// [`TableError::Unmeasured`] from `stages_at`.
pub fn mean_step<K: Copy>(
    steps: &BTreeMap<K, u64>,
    stages_at: impl Fn(K) -> Result<Vec<StageTime>, TableError>,
) -> Result<Vec<StageTime>, TableError> {
    let all: u64 = steps.values().sum();
    let mut mean: Vec<StageTime> = Vec::new();
    for (kind, steps) in steps {
        let share = *steps as f64 / all as f64;
        for StageTime { stage, us } in stages_at(*kind)? {
            match mean.iter_mut().find(|known| known.stage == stage) {
                Some(known) => known.us += share * us,
                None => mean.push(StageTime { stage, us: share * us }),
            }
        }
    }
    Ok(mean)
}

#[cfg(test)]
mod tests {
    use ygg_profiler::{Cell, CellSamples};

    use super::*;
    use crate::plan::step_us;

    fn table(cells: &[(&str, u32, f64)]) -> LatencyTable {
        let cells: Vec<CellSamples> = cells
            .iter()
            .map(|(stage, width, us)| CellSamples {
                cell: Cell { stage: stage.parse().unwrap(), width: *width, context: 0 },
                samples_us: vec![*us],
            })
            .collect();
        LatencyTable::from_samples(&cells, 0.1).unwrap()
    }

    #[test]
    fn host_work_counts_where_it_was_measured() {
        let cells = [("verify", 1, 1000.0), ("host:accept", 1, 2.0), ("host:accept", 8, 3.0)];
        assert_eq!(step_us(&plain_step(&table(&cells), 0).unwrap()), 1002.0);
    }

    #[test]
    fn the_mean_step_weighs_widths_and_deciding_costs_what_its_tree_does() {
        let table = table(&[
            ("verify", 1, 100.0),
            ("verify", 2, 130.0),
            ("draft:x", 1, 1.0),
            ("host:decide", 4, 3.0),
            ("host:decide", 8, 5.0),
        ]);
        let drafter = DrafterName::new("x").unwrap();
        let step = |width| free_step(&table, &drafter, Schedule::Plain, width, 0);
        let at = |width| with_decision(step(width)?, &table, 5, 0);
        let mean = mean_step(&BTreeMap::from([(1, 3), (2, 1)]), at).unwrap();
        let named: Vec<(String, f64)> = mean.iter().map(|s| (s.stage.to_string(), s.us)).collect();
        let expected = [("draft:x", 1.0), ("verify", 107.5), ("host:decide", 5.0)];
        assert_eq!(named, expected.map(|(name, us)| (name.to_owned(), us)));
        assert!(with_decision(Vec::new(), &table, 9, 0).is_err());
    }

    #[test]
    fn the_mean_of_unlike_steps_weighs_every_stage_by_all_of_them() {
        let table = table(&[
            ("verify", 1, 100.0),
            ("verify", 2, 130.0),
            ("draft:x", 1, 8.0),
            ("host:predict", 1, 2.0),
        ]);
        let drafter = DrafterName::new("x").unwrap();
        let plain = with_prediction(plain_step(&table, 0).unwrap(), &table, 0).unwrap();
        let drafted = free_step(&table, &drafter, Schedule::Plain, 2, 0).unwrap();
        let drafted = with_prediction(drafted, &table, 0).unwrap();
        let kinds = [plain, drafted];
        let mean =
            mean_step(&BTreeMap::from([(0, 3), (1, 1)]), |kind: usize| Ok(kinds[kind].clone())).unwrap();
        let named: Vec<(String, f64)> = mean.iter().map(|s| (s.stage.to_string(), s.us)).collect();
        let expected = [("host:predict", 2.0), ("verify", 107.5), ("draft:x", 2.0)];
        assert_eq!(named, expected.map(|(name, us)| (name.to_owned(), us)));
        assert_eq!(step_us(&mean), 0.75 * 102.0 + 0.25 * 140.0);
    }

    #[test]
    fn unmeasured_widths_are_refused() {
        let table = table(&[("verify", 1, 1.0), ("verify", 4, 1.0), ("draft:x", 1, 1.0)]);
        let step =
            |name, width| free_step(&table, &DrafterName::new(name).unwrap(), Schedule::Plain, width, 0);
        assert!(step("x", 4).is_ok());
        assert!(step("x", 3).unwrap_err().to_string().contains("verify was not measured at width 3"));
        assert!(step("y", 1).is_err());
    }
}
