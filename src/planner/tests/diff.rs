//! Differences of plans: every field that differs is found, equal plans have none, noise in latencies is told apart.
use ygg_profiler::{CellSamples, TunedShape};

use super::{
    search::{cells, good_profile, plan, requests},
    synthetic::{MADE_AT, MEASURED_AT, Oracle, name, profile, record},
};
use crate::{
    plan::{Calibration, ChosenTuning, GrowthRule, Knot, LeftOut, Plan, Prediction, Refusal, RowRule},
    planner::report::{
        PlanDiff, diff,
        diff::{Change, LatencyChange, text},
    },
};

fn good_plan() -> Plan {
    plan(&good_profile(), "").unwrap()
}

#[test]
fn equal_plans_do_not_differ() {
    let same = diff(&good_plan(), &good_plan());
    assert!(same.is_empty());
    assert_eq!(text(&same), "no difference\n");
    let mut later = good_plan();
    later.header.made_at = MEASURED_AT;
    assert!(later != good_plan() && diff(&good_plan(), &later).is_empty(), "they decide the same");
}

#[test]
fn the_text_says_in_what_plans_differ() {
    let trace = record(&Oracle { seed: 5, skill: 80 }, 30, 4, 4, 5);
    let mut other =
        profile(cells(&[80.0, 92.0, 95.0, 97.0, 140.0], &[8.0, 9.0, 10.0]), vec![trace], requests());
    other.fingerprints.machine.threads = 8;
    other.token_traces.clear();
    let other = plan(&other, "drafter=layer_skip").unwrap();
    insta::assert_snapshot!(text(&diff(&good_plan(), &other)));
}

/// What the difference must mention, and the change that causes it.
type Mutation = (&'static str, fn(&mut Plan));

#[test]
fn every_field_is_compared() {
    let mutations: [Mutation; 29] = [
        ("made by", |p| p.header.created_by.push('x')),
        ("model's name", |p| p.header.fingerprints.model.name.push('x')),
        ("model", |p| p.header.fingerprints.model.digest.push('x')),
        ("threads", |p| p.header.fingerprints.machine.threads = 9),
        ("measured", |p| p.header.measured_at = MADE_AT),
        ("formats of drafter models", |p| p.header.fingerprints.build.draft_formats.push('x')),
        ("kernel set", |p| p.header.fingerprints.build.kernels.push('x')),
        ("calibration", |p| p.header.calibration.push('x')),
        ("fixed", |p| p.header.fixed.push_str("Dd=1")),
        ("context", |p| p.bands[0].by_drafter[0].ranges[0].context += 1),
        ("verify widths", |p| p.planned.verify = vec![1]),
        ("draft widths", |p| p.planned.draft.push(99)),
        ("chosen drafter", |p| p.bands[0].chosen_index = 0),
        ("shapes priced", |p| p.bands[0].alternatives.truncate(3)),
        ("prices of shapes", |p| p.bands[0].alternatives[0].step_us += 1e-9),
        ("prices of shapes", |p| {
            let rule = &mut p.bands[0].alternatives[0].rule;
            *rule = match rule {
                RowRule::Widest => RowRule::BestRate,
                RowRule::BestRate => RowRule::Widest,
            };
        }),
        ("refused", |p| {
            let growth = GrowthRule::Equal;
            p.bands[0].refused.push(Refusal {
                name: name("layer_skip"),
                growth,
                depth: 9,
                draft_width: 9,
                missing: 0.5,
            });
        }),
        ("left out", |p| {
            p.bands[0].left_out.push(LeftOut { name: name("ngram"), lacks: "recorded steps".to_owned() })
        }),
        ("not in this plan", |p| {
            p.bands[0].chosen_index = 1;
            p.bands[0].by_drafter.truncate(2);
            p.bands[0].alternatives.retain(|alternative| alternative.drafter < 2);
        }),
        ("candidates per node", |p| p.bands[0].by_drafter[1].top_k += 1),
        ("draft temperature", |p| p.bands[0].by_drafter[1].draft_temperature = 0.5),
        ("costs of widths", |p| p.bands[0].by_drafter[1].ranges[0].row_choice.widths[0].step_us += 1e-9),
        ("calibration", |p| {
            let calibration = &mut p.bands[0].by_drafter[1].ranges[0].row_choice.calibration;
            *calibration = match calibration {
                Some(_) => None,
                None => {
                    let by_depth = vec![vec![Knot { score: 0.0, probability: 0.5 }]];
                    Some(Calibration { by_depth, fitted_nodes: 1, held_out: None })
                }
            };
        }),
        ("Wv", |p| p.bands[0].by_drafter[1].ranges[0].row_choice.widths.last_mut().unwrap().width += 1),
        ("stages", |p| {
            let predicted = &mut p.bands[0].by_drafter[1].ranges[0].predicted;
            predicted.stages[0].us += 1e-3;
            *predicted = Prediction::new(predicted.aal, predicted.stages.clone(), predicted.ar_tpot_us);
        }),
        ("accepted to depth", |p| p.bands[0].by_drafter[1].acceptance.by_depth[0] += 1e-9),
        ("accepted candidate", |p| p.bands[0].by_drafter[1].acceptance.by_rank[0] += 1e-9),
        ("steps recorded", |p| p.bands[0].by_drafter[1].acceptance.steps += 1),
        ("linears tuned", |p| {
            let shape = TunedShape { kernel: "linear".to_owned(), outputs: 8, columns: 8, rows: 1 };
            let tuning = "rows=8".to_owned();
            p.tunings.push(ChosenTuning { shape, tuning, default_us: 2.0, tuned_us: 1.0, gain: 2.0 });
        }),
    ];
    for (what, change) in mutations {
        let (plan, mut other) = (good_plan(), good_plan());
        change(&mut other);
        assert_ne!(plan, other, "{what}: nothing was changed");
        for (a, b) in [(&plan, &other), (&other, &plan)] {
            let diff = diff(a, b);
            assert!(!diff.is_empty() && text(&diff).contains(what), "{what}: {}", text(&diff));
        }
    }
}

/// A plan whose verifier was measured three times at every width, `factor` times as slow at the widest.
fn measured_thrice(factor: f64) -> Plan {
    let mut profile = good_profile();
    for CellSamples { cell, samples_us } in &mut profile.measurements {
        let us = samples_us[0] * if cell.width == 9 { factor } else { 1.0 };
        *samples_us = vec![us * 0.9, us, us * 1.1];
    }
    plan(&profile, "").unwrap()
}

#[test]
fn only_latencies_beyond_both_spreads_count_as_changed() {
    let plan = measured_thrice(1.0);
    let within = diff(&plan, &measured_thrice(1.05));
    assert!(within.latencies.is_empty() && within.latencies_within_spread > 0);
    assert!(text(&within).contains("differ by no more than their spreads"));
    let PlanDiff { latencies, latencies_within_spread, .. } = diff(&plan, &measured_thrice(2.0));
    let changed: Vec<String> = latencies.iter().map(|change| change.cell.to_string()).collect();
    assert_eq!(changed, ["verify at width 9, context 0", "host:decide at width 9, context 0"]);
    assert_eq!(latencies_within_spread, 0);
    let LatencyChange { a: Some(a), b: Some(b), .. } = latencies[0] else { panic!("{latencies:?}") };
    assert_eq!((a.median_us, b.median_us), (99.0, 198.0));
}

#[test]
fn a_cell_of_one_plan_is_a_difference() {
    let mut fewer = good_profile();
    fewer.measurements.retain(|samples| samples.cell.width != 9);
    let fewer = plan(&fewer, "").unwrap();
    let said = text(&diff(&good_plan(), &fewer));
    assert!(said.contains("not measured") && said.contains("verify at width 9"), "{said}");
}

#[test]
fn a_change_too_small_for_the_brief_form_is_told_in_full() {
    let (plan, mut other) = (good_plan(), good_plan());
    other.bands[0].by_drafter[1].acceptance.by_depth[0] += 1e-9;
    let [Change { a, b, .. }] = &diff(&plan, &other).drafters[0].changes[..] else { panic!("one change") };
    assert_ne!(a, b);
}
