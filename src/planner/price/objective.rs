//! The objective: what a step costs and how much faster than plain decoding it makes a token. Pure.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), eq. 3, with the draft phase made precise (one forward of the
//! root, then Dd - 1 of Wd rows) and the measured host stages added.
use std::collections::BTreeMap;

use ygg_profiler::{DrafterName, HostStage, LatencyTable, Stage, TableError};

use crate::plan::{Schedule, Shape, StageTime};

/// Stages that follow the choice of the rows to verify, at the width of the verifier; of a device that walks by itself the first alone.
const AROUND_VERIFY: [HostStage; 4] =
    [HostStage::Mask, HostStage::Sample, HostStage::Accept, HostStage::Commit];

/// The stages of a plain step. Host stages count where the table has them.
///
/// # Errors
/// [`TableError::Unmeasured`] if a stage lacks width 1.
pub fn plain_step(table: &LatencyTable, context: u32) -> Result<Vec<StageTime>, TableError> {
    let mut step = Step { table, context, stages: Vec::new() };
    step.verify(Stage::Verify, 1)?;
    Ok(step.stages)
}

/// The stages of a step that grows an Equal-Growth Tree with a model drafter:
/// `T_draft(1) + (Dd - 1) T_draft(Wd) + T_verify(Wv)`, and the host stages that the table has: the closed form of the timeline of a plain
/// schedule.
///
/// # Errors
/// [`TableError::Unmeasured`] if a stage lacks a width.
///
/// # Panics
/// If the shape has no growth.
pub(in crate::planner) fn tree_step(
    table: &LatencyTable,
    drafter: &DrafterName,
    shape: &Shape,
    context: u32,
) -> Result<Vec<StageTime>, TableError> {
    assert!(shape.depth >= 1, "a tree has at least one growth");
    let mut step = Step { table, context, stages: Vec::new() };
    let draft = Stage::Draft(drafter.clone());
    let head_us = table.latency_us(&draft, 1, context)?;
    let growth_us = if shape.depth > 1 { table.latency_us(&draft, shape.draft_width, context)? } else { 0.0 };
    step.stages.push(StageTime { stage: draft, us: head_us + f64::from(shape.depth - 1) * growth_us });
    step.host(HostStage::Grow, shape.draft_width, shape.depth)?;
    step.host(HostStage::Prune, shape.verify_width, 1)?;
    step.verify(Stage::Verify, shape.verify_width)?;
    Ok(step.stages)
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
    let mut step = Step { table, context, stages: Vec::new() };
    step.add(Stage::Draft(drafter.clone()), 1, 1)?;
    step.verify(schedule.verification(drafter), verify_width)?;
    Ok(step.stages)
}

/// Adds to the stages of a step that of deciding how many rows of a tree of `nodes` nodes to verify, where the table has
/// it: as measured at the smallest width that holds the tree.
///
/// # Errors
/// [`TableError::Unmeasured`] if the stage was measured for smaller trees only.
pub fn with_decision(
    mut stages: Vec<StageTime>,
    table: &LatencyTable,
    nodes: u32,
    context: u32,
) -> Result<Vec<StageTime>, TableError> {
    let stage = Stage::Host(HostStage::Decide);
    if table.has_stage(&stage) {
        let width = table.widths(&stage).into_iter().find(|width| *width >= nodes).unwrap_or(nodes);
        let us = table.latency_us(&stage, width, context)?;
        stages.push(StageTime { stage, us });
    }
    Ok(stages)
}

/// The mean over steps of different kinds, for instance of different widths, `steps` of each: a stage that some of them lack counts as no
/// time there.
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

/// Adds to the stages of a step, in front, that of telling how deep to draft, where the table has it.
///
/// # Errors
/// [`TableError::Unmeasured`] if the stage was measured at another width than 1 only.
pub fn with_prediction(
    mut stages: Vec<StageTime>,
    table: &LatencyTable,
    context: u32,
) -> Result<Vec<StageTime>, TableError> {
    let stage = Stage::Host(HostStage::Predict);
    if table.has_stage(&stage) {
        let us = table.latency_us(&stage, 1, context)?;
        stages.insert(0, StageTime { stage, us });
    }
    Ok(stages)
}

struct Step<'t> {
    table: &'t LatencyTable,
    context: u32,
    stages: Vec<StageTime>,
}

impl Step<'_> {
    fn add(&mut self, stage: Stage, width: u32, runs: u32) -> Result<(), TableError> {
        let us = f64::from(runs) * self.table.latency_us(&stage, width, self.context)?;
        self.stages.push(StageTime { stage, us });
        Ok(())
    }

    fn host(&mut self, stage: HostStage, width: u32, runs: u32) -> Result<(), TableError> {
        let stage = Stage::Host(stage);
        if self.table.has_stage(&stage) { self.add(stage, width, runs) } else { Ok(()) }
    }

    fn verify(&mut self, stage: Stage, width: u32) -> Result<(), TableError> {
        // Where a device walks, the host has nothing to do afterwards.
        let around = if stage == Stage::Verify { &AROUND_VERIFY[..] } else { &AROUND_VERIFY[..1] };
        self.add(stage, width, 1)?;
        around.iter().try_for_each(|stage| self.host(*stage, width, 1))
    }
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
    fn every_stage_is_counted_as_often_as_it_runs() {
        let table = table(&[
            ("verify", 1, 1000.0),
            ("verify", 8, 1200.0),
            ("draft:layer_skip", 1, 300.0),
            ("draft:layer_skip", 4, 400.0),
            ("host:grow", 4, 10.0),
            ("host:accept", 1, 2.0),
            ("host:accept", 8, 3.0),
        ]);
        let drafter = DrafterName::new("layer_skip").unwrap();
        let shape = Shape { depth: 3, draft_width: 4, verify_width: 8 };
        let stages = tree_step(&table, &drafter, &shape, 0).unwrap();
        let named: Vec<(String, f64)> = stages.iter().map(|s| (s.stage.to_string(), s.us)).collect();
        let expected =
            [("draft:layer_skip", 1100.0), ("host:grow", 30.0), ("verify", 1200.0), ("host:accept", 3.0)];
        assert_eq!(named, expected.map(|(name, us)| (name.to_owned(), us)));
        assert_eq!(step_us(&plain_step(&table, 0).unwrap()), 1002.0);
        assert_eq!(step_us(&stages), 2333.0);
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
        let drafter = DrafterName::new("x").unwrap();
        let step = |depth, verify_width| {
            tree_step(&table, &drafter, &Shape { depth, draft_width: 2, verify_width }, 0)
        };
        assert!(step(1, 4).is_ok());
        assert!(step(2, 4).unwrap_err().to_string().contains("draft:x was not measured at width 2"));
        assert!(step(1, 3).unwrap_err().to_string().contains("verify was not measured at width 3"));
        assert!(free_step(&table, &DrafterName::new("y").unwrap(), Schedule::Plain, 1, 0).is_err());
    }
}
