//! Drafter models with a cache of their own: heads are drafted ahead where verifications together with their tails were
//! measured and that pays.
use ygg_profiler::{DrafterFile, Profile, Stage, StepStage};

use super::{
    search::{DEPTH, VERIFY_WIDTHS, cells, plan, requests},
    synthetic::{Oracle, name, profile, record, samples},
};
use crate::plan::{DrafterKind, ModelSettings, Plan, Schedule, StageTime, decode, encode};
use crate::planner::SearchError;

const VERIFY_US: [f64; 5] = [90.0, 92.0, 95.0, 97.0, 99.0];

/// A profile whose tails cost `tail_us` in addition to a verification, if they were measured, on a machine whose device
/// walks or does not.
fn profiled(tail_us: Option<f64>, walks: bool) -> Profile {
    let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, DEPTH, 5);
    let mut cells = cells(&VERIFY_US, &[20.0; 3]);
    cells.push(samples("draft_head:layer_skip", 2, 60.0));
    cells.extend(VERIFY_WIDTHS.map(|width| samples("host:accept", width, 10.0)));
    let verified = || VERIFY_WIDTHS.into_iter().zip(VERIFY_US);
    if let Some(tail_us) = tail_us {
        cells.extend(verified().map(|(width, us)| samples("verify_tail:layer_skip", width, us + tail_us)));
    }
    if walks {
        cells.extend(verified().map(|(width, us)| samples("verify_walk", width, us + 500.0)));
    }
    let mut profile = profile(cells, vec![trace], requests());
    let model = DrafterFile { path: "/drafter".to_owned(), digest: "d".repeat(64) };
    let kind = DrafterKind::Model(ModelSettings { model, head_tokens: None });
    let described = profile.drafters.iter_mut().find(|d| d.name.as_str() == "layer_skip").unwrap();
    *described = kind.describe(name("layer_skip"));
    profile
}

fn stage_us(plan: &Plan, stage: &Stage) -> Option<f64> {
    let found = plan.bands[0].chosen().first().predicted.stages.iter().find(|time| time.stage == *stage);
    found.map(|StageTime { stage: _, us }| *us)
}

#[test]
fn heads_are_drafted_ahead_where_tails_were_measured_and_pay() {
    let schedule = |tail_us, fix: &str| {
        let plan = plan(&profiled(tail_us, true), fix).unwrap();
        plan.bands[0].for_drafter("layer_skip").unwrap().schedule
    };
    assert_eq!(schedule(Some(2.0), ""), Schedule::HeadAhead);
    assert_eq!(schedule(Some(60.0), ""), Schedule::Plain);
    assert_eq!(schedule(None, ""), Schedule::Plain);
    assert_eq!(schedule(Some(60.0), "schedule=head_ahead"), Schedule::HeadAhead);
    let error = plan(&profiled(None, true), "schedule=head_ahead").unwrap_err();
    assert!(matches!(error, SearchError::FixImpossible { .. }), "{error}");
    assert!(error.to_string().contains("where verify_tail:layer_skip is measured, on a GPU"), "{error}");
    let ahead = plan(&profiled(Some(2.0), true), "drafter=layer_skip").unwrap();
    assert_eq!(decode(&encode(&ahead).unwrap()).unwrap(), ahead, "a plan with it survives its file");
}

#[test]
fn a_step_is_priced_by_its_tail_and_the_walk_beside_its_heads() {
    let fix = "drafter=layer_skip,Dd=2,Wd=2,Wv=4,rows=all,predictor=off,schedule=";
    let planned = |walks, schedule| plan(&profiled(Some(2.0), walks), &format!("{fix}{schedule}")).unwrap();
    let tail = Stage::VerifyTail(name("layer_skip"));
    let accept = Stage::Host(StepStage::Accept);
    for walks in [false, true] {
        let ahead = planned(walks, "head_ahead");
        assert_eq!(stage_us(&ahead, &tail), Some(97.0));
        assert_eq!(stage_us(&ahead, &Stage::Verify), None);
        assert_eq!(stage_us(&ahead, &Stage::DraftHead(name("layer_skip"))), None);
        // Two growths, one forward of them, the heads, and the walk only where nothing runs in parallel.
        let walk_us = if walks { 0.0 } else { 10.0 };
        assert_eq!(stage_us(&ahead, &accept), (!walks).then_some(walk_us));
        let step_us = ahead.bands[0].chosen().first().predicted.step_us;
        assert!((step_us - (1.0 + 20.0 + 97.0 + 20.0 + walk_us)).abs() < 1e-9, "{step_us}");
        let plain = planned(walks, "plain").bands[0].chosen().first().predicted.step_us;
        assert!((plain - (1.0 + 60.0 + 20.0 + 95.0 + 10.0)).abs() < 1e-9, "{plain}");
    }
}
