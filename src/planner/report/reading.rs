//! When the chosen step of a plan reads streamed weights.
use ygg_profiler::{Stage, StepStage};

use crate::{
    plan::{ContextRange, Plan, PlannedMemory, StageTime, SubPlan},
    planner::TimeSpan,
};

/// The times within the step of a sub-plan in which weights are read (derived), its stages being one after the other:
/// until the staging buffer is full, and from the verifier's first streamed matrix on. None where no reading was
/// measured.
pub fn reads(plan: &Plan, sub_plan: &SubPlan) -> Vec<TimeSpan> {
    let ContextRange { context, predicted, row_choice, .. } = sub_plan.first();
    let at = |stage, width| plan.table.latency_us(&stage, width, *context).ok();
    let Some((PlannedMemory { streamed_bytes, staging_bytes, .. }, rest_us)) =
        plan.header.memory.as_ref().zip(at(Stage::Read, 1))
    else {
        return Vec::new();
    };
    let resident_us = at(Stage::Resident, row_choice.widest()).or(at(Stage::Resident, 1)).unwrap_or(0.0);
    let is_verified = |time: &StageTime| time.stage.of_step() == StepStage::Verify;
    let place = predicted.stages.iter().position(is_verified).unwrap_or(0);
    let verify_us: f64 = predicted.stages[..place].iter().map(|stage| stage.us).sum();
    let verified_us = verify_us + predicted.stages.get(place).map_or(0.0, |stage| stage.us);
    // What was measured of steps that verify fewer rows may end before so much is read.
    let start_us = (verify_us + resident_us).min(verified_us - rest_us).max(0.0);
    let unbuffered = streamed_bytes.saturating_sub(*staging_bytes);
    let full_us = if unbuffered > 0 { rest_us * *staging_bytes as f64 / unbuffered as f64 } else { start_us };
    let first = TimeSpan { start_us: 0.0, end_us: full_us.min(start_us) };
    let second = TimeSpan { start_us, end_us: (start_us + rest_us).min(verified_us) };
    [first, second].into_iter().filter(|span| span.end_us > span.start_us).collect()
}
