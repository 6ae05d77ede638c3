//! Which schedule a plan takes: where its stages were measured, and where it pays.
use ygg_profiler::{CellSamples, Stage, StepStage};

use super::{
    search::{DEPTH, DRAFT_WIDTHS, VERIFY_WIDTHS, cells, plan, requests},
    synthetic::{Oracle, profile, record, samples, shown},
};
use crate::{
    plan::{RowRule, Schedule, StageTime, decode, encode},
    planner::SearchError,
};

/// Growths of a draft phase that the device runs, at every draft width.
fn growth_cells(us: f64) -> Vec<CellSamples> {
    let growths = ["first_growth:layer_skip", "next_growth:layer_skip"];
    DRAFT_WIDTHS.into_iter().flat_map(|width| growths.map(|stage| samples(stage, width, us))).collect()
}

#[test]
fn growths_in_one_launch_are_chosen_where_they_were_measured_and_pay() {
    let planned = |growth_us: Option<f64>, fix: &str| {
        let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, DEPTH, 5);
        let mut cells = cells(&[90.0, 92.0, 95.0, 97.0, 99.0], &[20.0; 3]);
        cells.extend(growth_us.into_iter().flat_map(growth_cells));
        plan(&profile(cells, vec![trace], requests()), fix)
    };
    let schedule = |us, fix| planned(us, fix).unwrap().bands[0].for_drafter("layer_skip").unwrap().schedule;
    assert_eq!(schedule(Some(10.0), ""), Schedule::OneLaunch);
    assert_eq!(schedule(Some(40.0), ""), Schedule::Plain);
    assert_eq!(schedule(None, ""), Schedule::Plain);
    assert_eq!(schedule(Some(40.0), "schedule=one_launch"), Schedule::OneLaunch);
    let text = shown(&planned(Some(10.0), "drafter=layer_skip").unwrap());
    assert!(text.contains("drafted in one launch"), "{text}");
    let error = planned(None, "schedule=one_launch").unwrap_err();
    assert!(matches!(error, SearchError::FixImpossible { .. }), "{error}");
}

#[test]
fn steps_without_the_host_are_chosen_where_they_were_measured_and_pay() {
    let planned = |verify_us: Option<f64>, fix: &str| {
        let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, DEPTH, 5);
        let mut cells = cells(&[90.0, 92.0, 95.0, 97.0, 99.0], &[20.0; 3]);
        cells.extend(growth_cells(10.0));
        cells.extend(VERIFY_WIDTHS.map(|width| samples("verify_walk", width, 90.0)));
        let grown = verify_us.into_iter().flat_map(|us| VERIFY_WIDTHS.map(|width| (width, us)));
        cells.extend(grown.map(|(width, us)| samples("verify_grown:layer_skip", width, us)));
        plan(&profile(cells, vec![trace], requests()), fix)
    };
    let chosen = |us, fix| planned(us, fix).unwrap().bands[0].for_drafter("layer_skip").unwrap().clone();
    assert_eq!(chosen(Some(200.0), "").schedule, Schedule::TwoLaunches);
    assert_eq!(chosen(None, "").schedule, Schedule::TwoLaunches);
    let whole = chosen(Some(70.0), "");
    assert_eq!((whole.schedule, whole.first().row_choice.rule), (Schedule::WholeStep, RowRule::Widest));
    let by_host = |time: &StageTime| matches!(time.stage, Stage::Host(_));
    assert!(!whole.first().predicted.stages.iter().any(by_host), "{:?}", whole.first().predicted.stages);
    let plan = planned(Some(200.0), "schedule=whole_step").unwrap();
    assert_eq!(decode(&encode(&plan).unwrap()).unwrap(), plan);
    assert!(shown(&plan).contains("without the host"), "{}", shown(&plan));
    for (us, fix) in [(None, "schedule=whole_step"), (Some(70.0), "schedule=whole_step,rows=best")] {
        let error = planned(us, fix).unwrap_err();
        assert!(matches!(error, SearchError::FixImpossible { .. }), "{error}");
    }
}

#[test]
fn walks_on_the_device_are_chosen_where_they_were_measured_and_pay() {
    let planned = |walk_us: Option<[f64; 5]>, growth_us: Option<f64>, fix: &str| {
        let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, DEPTH, 5);
        let mut cells = cells(&[90.0, 92.0, 95.0, 97.0, 99.0], &[20.0; 3]);
        cells.extend(growth_us.into_iter().flat_map(growth_cells));
        let walks = walk_us.into_iter().flat_map(|us| VERIFY_WIDTHS.into_iter().zip(us));
        cells.extend(walks.map(|(width, us)| samples("verify_walk", width, us)));
        cells.extend(VERIFY_WIDTHS.map(|width| samples("host:accept", width, 1.0)));
        plan(&profile(cells, vec![trace], requests()), fix)
    };
    let quick = Some([80.0, 81.0, 82.0, 83.0, 84.0]);
    let slow = Some([190.0, 192.0, 195.0, 197.0, 199.0]);
    let schedule = |walk_us, growth_us, fix| {
        planned(walk_us, growth_us, fix).unwrap().bands[0].for_drafter("layer_skip").unwrap().schedule
    };
    assert_eq!(schedule(quick, None, ""), Schedule::DeviceWalk);
    assert_eq!(schedule(quick, Some(10.0), ""), Schedule::TwoLaunches);
    assert_eq!(schedule(slow, Some(10.0), ""), Schedule::OneLaunch);
    assert_eq!(schedule(slow, None, ""), Schedule::Plain);
    assert_eq!(schedule(slow, None, "schedule=device_walk"), Schedule::DeviceWalk);
    // A drafter without a model walks there, too.
    let free = planned(quick, None, "drafter=lookup,schedule=device_walk").unwrap();
    let chosen = free.bands[0].chosen();
    assert_eq!((chosen.name.as_str(), chosen.schedule), ("lookup", Schedule::DeviceWalk));
    let walked = |time: &StageTime| time.stage == Stage::VerifyWalk;
    let by_host = |time: &StageTime| time.stage == Stage::Host(StepStage::Accept);
    let stages = &chosen.first().predicted.stages;
    assert!(stages.iter().any(walked) && !stages.iter().any(by_host), "{stages:?}");
    let text = shown(&planned(quick, Some(10.0), "drafter=layer_skip").unwrap());
    assert!(text.contains("drafted in one launch, verified and walked in another"), "{text}");
    // A plan with it survives its file, and its text.
    let plan = planned(quick, Some(10.0), "schedule=two_launches").unwrap();
    assert_eq!(decode(&encode(&plan).unwrap()).unwrap(), plan);
    for (walk_us, fix) in [(None, "schedule=device_walk"), (quick, "drafter=lookup,schedule=two_launches")] {
        let error = planned(walk_us, None, fix).unwrap_err();
        assert!(matches!(error, SearchError::FixImpossible { .. }), "{error}");
    }
}

#[test]
fn heads_are_drafted_ahead_only_where_that_gains_more_than_noise() {
    let schedule_with = |wide_us: f64, fix: &str| {
        let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, DEPTH, 5);
        let verify = [90.0, 92.0, 95.0, 97.0, 99.0];
        let profile = profile(cells(&verify, &[60.0, wide_us, wide_us]), vec![trace], requests());
        plan(&profile, fix).unwrap().bands[0].for_drafter("layer_skip").unwrap().schedule
    };
    // A forward of one row is the dearest: a staircase that some machines have.
    assert_eq!(schedule_with(20.0, ""), Schedule::HeadAhead);
    assert_eq!(schedule_with(58.0, ""), Schedule::Plain);
    assert_eq!(schedule_with(65.0, ""), Schedule::Plain);
    assert_eq!(schedule_with(20.0, "schedule=plain"), Schedule::Plain);
    assert_eq!(schedule_with(65.0, "schedule=head_ahead"), Schedule::HeadAhead);
    let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, DEPTH, 5);
    let profile = profile(cells(&[90.0; 5], &[8.0; 3]), vec![trace], requests());
    let ahead = plan(&profile, "drafter=layer_skip,schedule=head_ahead").unwrap();
    assert!(shown(&ahead).contains("heads drafted ahead"), "{}", shown(&ahead));
    let verified = ahead.bands[0].chosen().first().row_choice.widths.iter().map(|cost| cost.width);
    assert!(verified.into_iter().all(|width| ahead.planned.draft.contains(&width)), "{:?}", ahead.planned);
    for (fix, said) in [
        ("drafter=lookup,schedule=head_ahead", "drafter=layer_skip with"),
        ("drafter=layer_skip,Wv=6,schedule=head_ahead", "schedule=head_ahead with Wv [2, 4]"),
    ] {
        let error = plan(&profile, fix).unwrap_err();
        assert!(
            matches!(error, SearchError::FixImpossible { .. }) && error.to_string().contains(said),
            "{error}"
        );
    }
}
