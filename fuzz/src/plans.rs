//! Plan files, and the output of `plan show`, `explain` and `diff` for accepted ones.

use ygg_profiler::UnixTime;
use yggc::{
    plan::{PLAN_FORMAT, Plan, decode, encode},
    planner::report::{diff, explain, explain_at, json, text},
};

use super::sealed::Seal;

const SEAL: Seal = Seal { magic: b"YGGPLAN\0", version: PLAN_FORMAT };

/// Reads a plan file in the form of [`Seal::deflated_file`], and shows what it holds in every way.
pub fn check(input: &[u8]) -> bool {
    let Ok(plan) = decode(&SEAL.deflated_file(input)) else { return false };
    let bytes = encode(&plan).expect("a plan that was read can be written");
    let again = encode(&decode(&bytes).expect("what was written can be read"));
    assert_eq!(again.expect("and written again"), bytes);
    show(&plan);
    true
}

fn show(plan: &Plan) {
    let screen = text(plan, UnixTime::default());
    assert!(screen.lines().all(|line| line.chars().count() <= 100), "{screen}");
    assert!(json(plan).is_object());
    for band in &plan.bands {
        assert!(band.priced().count() == band.alternatives.len() && band.by_drafter.contains(band.chosen()));
    }
    let temperatures = plan.bands.iter().map(|band| band.temperature).chain([0.9]);
    let explained =
        temperatures.map(|temperature| explain_at(plan, temperature)).chain([explain::explain(plan)]);
    for explanation in explained {
        assert!(!explain::text(plan, &explanation).is_empty());
    }
    let diff = diff::diff(plan, plan);
    assert!(diff.is_empty(), "{}", diff::text(&diff));
}
