//! Explanations against what they are derived from, and their text.
use ygg_profiler::{Stage, TokenTrace};

use super::{
    search::{cells, good_profile, plan, requests},
    synthetic::{Oracle, in_full, profile, record, samples},
};
use crate::{
    plan::{DepthRule, PricedShape, RowRule, Schedule, Shape, Unseen},
    planner::{
        NOISE_MARGIN,
        compare::leviathan,
        report::{
            explain,
            explain::{AlphaSource, DrafterReason, Outcome, Part, PartGain},
            verdict::{Verdict, verdict},
        },
    },
};

/// What became of each drafter, in the plan's order.
fn outcomes(drafters: &[DrafterReason]) -> Vec<(&str, Outcome)> {
    drafters.iter().map(|drafter| (drafter.best.name.as_str(), drafter.outcome)).collect()
}

#[test]
fn the_text_says_why() {
    let plan = plan(&good_profile(), "").unwrap();
    let said = in_full(&plan);
    let (reasons, origin) = said.split_once("\nmade for and by\n").unwrap();
    insta::assert_snapshot!(reasons);
    for part in [
        "model        tiny (ab)",
        "kernels cd, drafter models f16 in q8_0",
        "calibration synthetic",
        "measured     2026-11-22 14:03 UTC; planned 2026-11-23 14:03 UTC",
        "widths       verify 1 ",
    ] {
        assert!(origin.contains(part), "{part}: {origin}");
    }
}

#[test]
fn every_drafter_is_told_what_became_of_it() {
    let free = explain(&plan(&good_profile(), "").unwrap());
    let expected = [("none", Outcome::Slower), ("layer_skip", Outcome::Slower), ("lookup", Outcome::Won)];
    assert_eq!(outcomes(&free.drafters), expected);

    let fixed_plan = plan(&good_profile(), "drafter=layer_skip").unwrap();
    let fixed = explain(&fixed_plan);
    let expected =
        [("none", Outcome::Slower), ("layer_skip", Outcome::AskedFor), ("lookup", Outcome::Excluded)];
    assert_eq!(outcomes(&fixed.drafters), expected);
    assert!(in_full(&fixed_plan).contains("chosen within `drafter=layer_skip`"));
    let plain = explain(&plan(&good_profile(), "drafter=none").unwrap());
    assert_eq!(outcomes(&plain.drafters)[0], ("none", Outcome::AskedFor));

    let trace = record(&Oracle { seed: 5, skill: 0 }, 30, 4, 4, 5);
    let strange = vec![TokenTrace {
        kind: "noise".into(),
        temperature: 0.0,
        seed: 0,
        prompt: vec![100],
        output: (0..40).collect(),
    }];
    let useless = profile(cells(&[90.0; 5], &[1.0; 3]), vec![trace], strange);
    let useless = explain(&plan(&useless, "").unwrap());
    assert_eq!(
        outcomes(&useless.drafters)[..2],
        [("none", Outcome::NothingBetter), ("layer_skip", Outcome::SlowerThanPlain)]
    );

    // Every proposal of one token is accepted, and verifying two rows costs nearly two.
    let copy = vec![TokenTrace {
        kind: "copy".into(),
        temperature: 0.0,
        seed: 0,
        prompt: vec![7, 7],
        output: vec![7; 41],
    }];
    let dear = [("verify", 1, 100.0), ("verify", 2, 195.0), ("draft:lookup", 1, 1.0)];
    let dear = profile(dear.map(|(stage, width, us)| samples(stage, width, us)).to_vec(), vec![], copy);
    let dear = explain(&plan(&dear, "").unwrap());
    let expected = [("none", Outcome::NothingBetter), ("lookup", Outcome::Doubtful)];
    assert_eq!(outcomes(&dear.drafters), expected);
    assert_eq!((dear.margin.needed, dear.margin.as_good), (NOISE_MARGIN, dear.considered));
    assert!(dear.margin.best > 0.0 && dear.margin.best < NOISE_MARGIN);
}

#[test]
fn each_part_reaches_as_far_as_it_says() {
    let plan = plan(&good_profile(), "").unwrap();
    let explanation = explain(&plan);
    let verify_widths = plan.table.widths(&Stage::Verify);
    for sub_plan in plan.bands[0].by_drafter.iter().filter(|sub_plan| !sub_plan.is_plain()) {
        let parts: Vec<&PartGain> =
            explanation.parts.iter().filter(|p| p.best.name == sub_plan.name).collect();
        assert_eq!(parts.iter().map(|p| p.part).collect::<Vec<_>>(), Part::ALL, "{}", sub_plan.name);
        let mut before = 1.0;
        for PartGain { part, best, gain } in parts {
            let whole = |shape: &Shape| {
                let fitting = verify_widths.iter().filter(|width| u64::from(**width) <= shape.nodes());
                fitting.max() == Some(&shape.verify_width)
            };
            let mut best_of_all = 0.0f64;
            for PricedShape { name, shape, schedule, depth_rule, rule, speedup, .. } in plan.bands[0].priced()
            {
                let keeps_order = schedule == Schedule::Plain;
                let is_plain = keeps_order && depth_rule == DepthRule::Fixed;
                let is_reached = match part {
                    Part::Chain => {
                        shape.draft_width == 1 && whole(&shape) && rule == RowRule::Widest && is_plain
                    }
                    Part::Tree => whole(&shape) && rule == RowRule::Widest && is_plain,
                    Part::PrunedTree => rule == RowRule::Widest && is_plain,
                    Part::RowsChosen => is_plain,
                    Part::DepthPredicted => keeps_order,
                    Part::Scheduled => true,
                };
                if name == sub_plan.name && is_reached {
                    best_of_all = best_of_all.max(speedup);
                }
            }
            assert_eq!(best.speedup, best_of_all, "{part:?}");
            assert!((gain * before - best.speedup).abs() < 1e-12);
            before = best.speedup;
        }
        assert_eq!(before, sub_plan.first().predicted.speedup);
    }
}

#[test]
fn the_other_objective_is_the_one_with_most_tokens_per_step() {
    // Rows are so dear that accepting more costs more than it gives.
    let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, 4, 5);
    let dear =
        profile(cells(&[90.0, 120.0, 200.0, 300.0, 400.0], &[8.0, 9.0, 10.0]), vec![trace], requests());
    let plan = plan(&dear, "").unwrap();
    let contrast = explain(&plan).objective.overall;
    let most = plan.bands[0].priced().map(|shape| shape.aal).fold(0.0, f64::max);
    let fastest = plan.bands[0].priced().map(|shape| shape.tpot_us).fold(f64::INFINITY, f64::min);
    assert_eq!((contrast.by_aal.aal, contrast.by_speed.tpot_us), (most, fastest));
    assert!(contrast.by_aal.aal > contrast.by_speed.aal && contrast.cost > 1.0);
    assert_eq!(contrast.cost, contrast.by_aal.tpot_us / fastest);
}

#[test]
fn chains_are_analysed_from_what_was_measured() {
    let plan = plan(&good_profile(), "").unwrap();
    let explanation = explain(&plan);
    let [skip, lookup] = &explanation.chains[..] else { panic!("{:?}", explanation.chains) };
    assert_eq!((skip.name.as_str(), skip.alpha_from), ("layer_skip", AlphaSource::FirstCandidate));
    assert_eq!(skip.alpha, plan.bands[0].for_drafter("layer_skip").unwrap().acceptance.by_rank[0]);
    assert!((skip.cost - 8.0 / 90.0).abs() < 1e-12);
    assert_eq!(skip.gamma, leviathan::best_gamma(skip.alpha, skip.cost, 4));
    assert!(skip.best_chain.as_ref().is_some_and(|chain| chain.shape.draft_width == 1));
    assert_eq!((lookup.name.as_str(), lookup.alpha_from), ("lookup", AlphaSource::ChainOfOne));
    let one = Shape { depth: 1, draft_width: 1, verify_width: 2 };
    let one = plan.bands[0].priced().find(|s| s.name.as_str() == "lookup" && s.shape == one).unwrap();
    assert_eq!(lookup.alpha, one.aal - 1.0);
}

#[test]
fn staircases_are_the_table() {
    let plan = plan(&good_profile(), "").unwrap();
    let explanation = explain(&plan);
    let stages: Vec<String> = explanation.staircases.iter().map(|s| s.stage.to_string()).collect();
    assert_eq!(stages, ["verify", "draft:layer_skip"], "one width makes no staircase");
    let ratios: Vec<f64> = explanation.staircases[0].stairs.iter().filter_map(|stair| stair.ratio).collect();
    assert_eq!(ratios, [90.0, 92.0, 95.0, 97.0, 99.0].map(|us| us / 90.0));
}

#[test]
fn the_verdict_is_as_sure_as_the_measurements() {
    let plan = plan(&good_profile(), "").unwrap();
    let Verdict { gain, advice } = verdict(&plan, &plan.bands[0]);
    let Unseen { speedup, low, high, .. } = plan.bands[0].chosen().first().unseen;
    assert_eq!(
        gain,
        format!(
            "{speedup:.2}x plain decoding by lookup, expected on other prompts than the recorded ({low:.2} to {high:.2} in nine \
             of ten cases)"
        )
    );
    assert!(high / low > (1.0 + NOISE_MARGIN).powi(2) && high / low < 1.25, "little else is in doubt");
    assert!(advice.iter().any(|advice| advice.contains("small model")), "{advice:?}");
    assert!(!advice.iter().any(|advice| advice.contains("noisy")), "{advice:?}");

    let mut noisy = good_profile();
    let of_verify = noisy.measurements.iter_mut().filter(|cell| cell.cell.stage == Stage::Verify);
    of_verify.for_each(|cell| {
        let us = cell.samples_us[0];
        cell.samples_us = [0.7, 0.8, 1.0, 1.2, 1.3].map(|factor| factor * us).to_vec();
    });
    let noisy = super::search::plan(&noisy, "").unwrap();
    let Verdict { gain: _, advice } = verdict(&noisy, &noisy.bands[0]);
    let Unseen { low, high, .. } = noisy.bands[0].chosen().first().unseen;
    assert!(high / low > 1.2, "{low} to {high}");
    assert!(advice[0].contains("while the machine is idle"), "{advice:?}");

    let fixed = super::search::plan(&good_profile(), "drafter=layer_skip").unwrap();
    assert!(verdict(&fixed, &fixed.bands[0]).advice[0].contains("without `drafter=layer_skip`"));
    let plain = super::search::plan(&good_profile(), "drafter=none").unwrap();
    assert!(verdict(&plain, &plain.bands[0]).gain.starts_with("plain decoding"));
}
