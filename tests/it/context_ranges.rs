//! Context ranges on their way: what is measured at longer contexts, the steps that are planned for each, and one
//! request that goes through them while it grows, with plain decoding's tokens.

use std::sync::{Arc, OnceLock};

use ygg_profiler::{Profile, Stage};
use yggc::{
    engine::{Answer, DrafterChoice, Engine, Loaded, Sampling},
    measure::ProfileOptions,
    plan::{self, ContextRange, Plan, RowChoice, RowRule},
    planner::{Fix, plan_from_profile},
    speculate::{BandSteps, Decoder, Drafter, Lookup, SelfDrafter, StepShape},
};

use crate::{
    lossless::{Policy, any_policy, any_sampling, any_shape, decode},
    tiny_model::{Dice, models, session},
    tiny_profiles::{self, NOW, served},
};

#[test]
fn requests_that_grow_through_any_ranges_are_answered_as_plain_decoding_does() {
    let (mut entered, mut drafted) = ([0; 3], 0);
    for case in 0..60 {
        let mut dice = Dice::new(1000 + case);
        let model = dice.pick(models());
        let set = model.set(*model.classes().last().expect("portable at least"));
        let largest = any_shape(&mut dice);
        let opened = session(set, 100, largest.tree_nodes(), 1);
        let drafter: Box<dyn Drafter> = if dice.chance(50) {
            Box::new(Lookup::new(3, 1, &largest).expect("lengths in order"))
        } else {
            let groups = opened.set().groups();
            let skipped: Vec<u32> = (0..groups).filter(|_| dice.chance(40)).collect();
            let skip = yggc::runtime::SkipSet::new(groups, &skipped).expect("groups of the model");
            Box::new(SelfDrafter::layer_skip(&opened, skip, &largest).expect("a planned width"))
        };
        let smaller = |dice: &mut Dice| StepShape {
            depth: dice.within(1, largest.depth),
            verify_width: dice.within(1, largest.verify_width),
            ..largest
        };
        let first = smaller(&mut dice);
        let mut steps = BandSteps::unplanned(Some(drafter), &largest);
        let guarded = any_policy(&first, &mut dice);
        let rule = guarded.row_choice.rule;
        let mut ranges = Vec::new();
        for from in [0, dice.within(5, 20), dice.within(21, 60)] {
            let shape = if from == 0 { first } else { smaller(&mut dice) };
            let Policy { row_choice, predicted, .. } = any_policy(&shape, &mut dice);
            ranges.push(ContextRange {
                from: from as u32,
                context: from as u32,
                drafts: dice.chance(80),
                depth: shape.depth as u32,
                row_choice: RowChoice { rule, ..row_choice },
                predicted,
                ..steps.sub_plan.first().clone()
            });
        }
        let starts: Vec<u32> = ranges.iter().map(|range| range.from).collect();
        steps = guarded.over(steps);
        steps.sub_plan.ranges = ranges;
        let mut decoder = Decoder::new(opened, vec![steps]).expect("no more than the largest");
        let mut plain =
            Decoder::new(session(set, 100, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
        for _ in 0..4 {
            let sampling = any_sampling(&mut dice);
            let len = dice.within(1, 30);
            let prompt = dice.tokens(len, set.vocabulary());
            let tokens = dice.within(1, 69);
            decode(&mut plain, &prompt, sampling, tokens, &[], None);
            decode(&mut decoder, &prompt, sampling, tokens, &[], Some(dice.bits() >> 1));
            assert_eq!(decoder.history(), plain.history(), "case {case}, {}, {sampling:?}", model.name);
            let at = starts.iter().position(|from| *from == decoder.range().from);
            entered[at.expect("one of the ranges")] += 1;
            drafted += decoder.stats().drafted;
        }
    }
    assert!(entered.iter().all(|entered| *entered > 10) && drafted > 2_000, "{entered:?}, {drafted} drafted");
}

#[test]
fn a_range_that_needs_more_than_there_is_is_refused() {
    let set = models()[0].set(*models()[0].classes().last().expect("portable at least"));
    let shape = StepShape { depth: 2, draft_width: 1, verify_width: 3, top_k: 0, draft_temperature: 1.0 };
    let opened = |change: fn(&mut ContextRange)| {
        let lookup = Lookup::new(3, 1, &shape).expect("lengths in order");
        let mut steps = BandSteps::unplanned(Some(Box::new(lookup)), &shape);
        let mut further = ContextRange { from: 9, context: 9, depth: 3, ..steps.sub_plan.first().clone() };
        change(&mut further);
        steps.sub_plan.ranges.push(further);
        Decoder::new(session(set, 20, 4, 1), vec![steps]).map(drop)
    };
    let bad: [fn(&mut ContextRange); 6] = [
        |range| range.depth = 4,
        |range| range.row_choice.widths.clear(),
        |range| range.row_choice.widths[0].width = 0,
        |range| range.row_choice.widths[0].width = 65,
        |range| range.row_choice.rule = RowRule::BestRate,
        |range| range.from = 0,
    ];
    for (place, bad) in bad.into_iter().enumerate() {
        assert!(opened(bad).is_err(), "{place}");
    }
    opened(|_| ()).expect("a range like the first, one deeper");
}

/// A loaded model and its profile at three contexts, made once.
fn profiled() -> &'static (Arc<Loaded>, Profile) {
    static PROFILED: OnceLock<(Arc<Loaded>, Profile)> = OnceLock::new();
    PROFILED.get_or_init(|| {
        tiny_profiles::profiled(None, &[1, 2, 4, 8, 16], |options| ProfileOptions {
            contexts: vec![16, 100, 1000],
            head_sizes: Vec::new(),
            ..options
        })
    })
}

/// The plan of the profile, which drafts at every step of every range.
fn plan(drafter: &str) -> Plan {
    let fix = Fix::parse(&format!("drafter={drafter},predictor=off,rows=all")).expect("a good fix");
    plan_from_profile(&profiled().1, &fix, NOW).expect("a plan")
}

#[test]
fn every_context_that_was_measured_gets_steps_of_its_own() {
    let (_, profile) = profiled();
    let table = profile.table().expect("a good table");
    // The model holds 256 tokens, and the widest rows have to fit after them.
    assert_eq!(table.contexts(), [16, 100, 189]);
    assert!(table.reaching(189).expect("it was measured").has_stage(&Stage::Verify));
    for name in ["lookup_short", "layer_skip", "suffix"] {
        let plan = plan(name);
        let chosen = plan.bands[0].chosen();
        let (first, further) = chosen.ranges.split_first().expect("a range");
        let priced: Vec<(u32, u32)> = further.iter().map(|range| (range.from, range.context)).collect();
        let from = |context: u32, before: u32| before + (context - before) / 2;
        // No other is twice as long as the one before.
        assert_eq!(
            (first.from, first.context, priced),
            (0, plan.context(), vec![(from(100, plan.context()), 100)])
        );
        for ContextRange { drafts, depth, row_choice: rows, predicted, .. } in further {
            assert!(*drafts && *depth >= 1 && rows.rule == chosen.row_rule(), "{name}");
            assert!(predicted.ar_tpot_us > 0.0 && plan.planned.verify.contains(&rows.widest()), "{name}");
        }
        let (shape, largest) = (chosen.shape(), chosen.largest_shape());
        assert!(largest.depth >= shape.depth && largest.verify_width >= shape.verify_width);
    }
}

fn answer(engine: &mut Engine, tokens: usize) -> Answer {
    let generation = engine.generate_tokens(&[5, 6, 7, 5, 6], tokens, Sampling::GREEDY).expect("it fits");
    generation.collect_answer().expect("an answer")
}

/// A plan whose steps verify two rows after 40 tokens, draft nothing after 80, and as at first again after 120.
fn changing(name: &str) -> Plan {
    let mut plan = plan(name);
    let all = plan.bands.iter_mut().flat_map(|band| &mut band.by_drafter);
    all.for_each(|sub_plan| sub_plan.ranges[0].context = 20);
    let band = &mut plan.bands[0];
    let ranges = &mut band.by_drafter[band.chosen_index as usize].ranges;
    let base = ContextRange { from: 120, context: 130, ..ranges[0].clone() };
    let rule = base.row_choice.rule;
    let narrow = RowChoice { rule, ..RowChoice::fixed(2, base.predicted.step_us) };
    let two_rows = ContextRange { from: 40, context: 60, depth: 1, row_choice: narrow, ..base.clone() };
    let off = ContextRange { from: 80, context: 100, drafts: false, ..base.clone() };
    ranges.splice(1.., [two_rows, off, base]);
    plan::decode(&plan::encode(&plan).expect("a valid plan")).expect("a whole file")
}

#[test]
fn a_request_goes_from_range_to_range_and_its_report_says_where_it_is() {
    let loaded = &profiled().0;
    let mut plain = served(loaded, None, DrafterChoice::Planned).expect("no plan");
    for name in ["lookup_short", "layer_skip"] {
        let plan = changing(name);
        let mut engine = served(loaded, Some(plan.clone()), DrafterChoice::Unguarded).expect("it fits");
        let kind = plan.bands[0].chosen().drafter.name().to_owned();
        let forced = DrafterChoice::Forced(kind.clone());
        let mut forced = served(loaded, Some(plan), forced).expect("it fits");
        let mut drafted = Vec::new();
        // Longer and shorter again: a request begins where its prompt is.
        for tokens in [20, 60, 95, 150, 20] {
            let (expected, found) = (answer(&mut plain, tokens), answer(&mut engine, tokens));
            assert_eq!(found.token_ids, expected.token_ids, "{name}, {tokens} tokens");
            assert_eq!(answer(&mut forced, tokens).token_ids, expected.token_ids, "{name}, {tokens} tokens");
            let off = found.report.spec_off_reason.as_deref().unwrap_or_default();
            let is_off = off.contains("after 80 tokens");
            assert_eq!(is_off, tokens == 95, "{name}, {tokens} tokens: {off}");
            assert_eq!(
                (found.report.drafter.as_str(), is_off),
                (kind.as_str(), found.report.predicted_tpot_ms.is_none())
            );
            drafted.push(found.report.drafted);
        }
        assert!(drafted[0] == drafted[4] && drafted[3] > drafted[2], "{name}: {drafted:?}");
    }
}
