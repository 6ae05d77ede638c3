//! Drafters with trimmed heads on their way from a profile through a plan to answers.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use ygg_profiler::{Expansion, Profile, Stage};
use yggc::{
    engine::{DrafterChoice, Engine, Error, ErrorKind, Loaded, Pinning, Sampling},
    measure::ProfileOptions,
    plan::{self, DrafterKind, LayerSkipSettings, Plan},
    planner::{Fix, plan_from_profile},
    runtime::{RuntimeError, SessionOptions},
};

use crate::tiny_profiles::{self, NOW, Recorder, served};

const SIZES: [usize; 2] = [40, 120];

/// A loaded model and its profile, made once.
fn profiled() -> &'static (Arc<Loaded>, Profile) {
    static PROFILED: OnceLock<(Arc<Loaded>, Profile)> = OnceLock::new();
    // Half of the vocabulary and more is not worth it.
    let head_sizes = || vec![SIZES[1], SIZES[0], 1 << 20];
    PROFILED.get_or_init(|| {
        tiny_profiles::profiled(None, &[1, 2, 4, 8, 16], |options| ProfileOptions {
            head_sizes: head_sizes(),
            ..options
        })
    })
}

fn plan() -> Plan {
    plan_from_profile(&profiled().1, &Fix::default(), NOW).expect("a plan")
}

fn engine(plan: Option<Plan>, drafter: DrafterChoice) -> Result<Engine, Error> {
    served(&profiled().0, plan, drafter)
}

fn forced(plan: Plan, name: &str) -> Result<Engine, Error> {
    engine(Some(plan), DrafterChoice::Forced(name.to_owned()))
}

#[test]
fn a_profile_measures_a_drafter_for_every_size() {
    let (loaded, profile) = profiled();
    let ends: BTreeSet<u32> = loaded.end_ids().iter().copied().collect();
    assert!(!ends.is_empty());
    let mut smaller = BTreeSet::new();
    for size in SIZES {
        let name = format!("layer_skip_v{size}");
        let drafter = profile.drafters.iter().find(|d| d.name.as_str() == name).expect("described");
        let kind = DrafterKind::from_description(drafter).expect("a drafter of this build");
        let kept: BTreeSet<u32> = kind.head_tokens().expect("a trimmed head").iter().copied().collect();
        assert_eq!(kept.len(), size);
        assert!(kept.is_superset(&ends) && kept.is_superset(&smaller));
        smaller = kept;
        let cells = profile.measurements.iter();
        let drafts = cells.filter(|m| m.cell.stage == Stage::Draft(drafter.name.clone()));
        assert!(drafts.count() > 1);
        let has_trace = profile.traces.iter().any(|trace| trace.drafter == drafter.name);
        assert!(!has_trace, "what is recorded of {name} is what its whole head offers");
    }
    assert_eq!(profile.drafters.iter().filter(|d| d.kind == "layer_skip").count(), 1 + SIZES.len());
}

/// The judge of what the planner replays: the trimmed head itself, at the places where the whole one was recorded.
#[test]
fn a_trimmed_head_offers_what_the_whole_one_does_of_its_tokens() {
    let (loaded, profile) = profiled();
    let mut compared = 0;
    for trace in &profile.traces {
        for size in SIZES {
            let name = format!("{}_v{size}", trace.drafter);
            let described = profile.drafters.iter().find(|d| d.name.as_str() == name).expect("described");
            let kind = DrafterKind::from_description(described).expect("a drafter of this build");
            let kept = kind.head_tokens().expect("a trimmed head");
            let mut trimmed = Recorder::of(loaded, described, trace);
            let requests = || profile.token_traces.iter().filter(|r| r.temperature == trace.temperature);
            for (prompt, request) in trace.prompts.iter().zip(requests()) {
                let text = [&request.prompt[..], &request.output].concat();
                let sampling =
                    Sampling { temperature: request.temperature, seed: request.seed, ..Sampling::GREEDY };
                for step in &prompt.steps {
                    let offered = trimmed.offered(&text[..step.context as usize], sampling);
                    let of_root = |all: &[Expansion]| all.first().map(|e| e.candidates.clone());
                    let whole = of_root(&step.expanded).expect("a root is expanded");
                    let known: Vec<u32> =
                        whole.iter().map(|c| c.token).filter(|t| kept.binary_search(t).is_ok()).collect();
                    let found = of_root(&offered).expect("a root is expanded");
                    let found: Vec<u32> = found.iter().map(|c| c.token).collect();
                    assert_eq!(found[..known.len()], known, "{name} at {}", step.context);
                    compared += usize::from(!known.is_empty() && known.len() < whole.len());
                }
            }
        }
    }
    assert!(compared > 20, "{compared} places where the head lacks some of the tokens");
}

#[test]
fn a_planned_trimmed_head_answers_as_plain_decoding_does() {
    // A choice of rows may verify none that were drafted, as this machine's latencies happen to be.
    let fix = Fix::parse("rows=all,predictor=off").expect("a good fix");
    let plan = plan_from_profile(&profiled().1, &fix, NOW).expect("a plan");
    let mut plain = engine(None, DrafterChoice::Planned).expect("no plan is needed");
    let shared = profiled().0.set().memory(&SessionOptions {
        context: 200,
        tree_nodes: 1,
        threads: 1,
        pinning: Pinning::Floating,
    });
    for size in SIZES {
        let name = format!("layer_skip_v{size}");
        let mut trimmed = forced(plan.clone(), &name).expect("the plan has its shape");
        assert!(trimmed.memory().weight_bytes > shared.weight_bytes, "its rows are counted");
        for sampling in [Sampling::GREEDY, Sampling { temperature: 0.9, seed: 5, ..Sampling::GREEDY }] {
            let answer = |engine: &mut Engine| {
                let generation = engine.generate_tokens(&[5, 6, 7, 5, 6], 60, sampling).expect("it fits");
                generation.collect_answer().expect("an answer")
            };
            let (expected, found) = (answer(&mut plain), answer(&mut trimmed));
            assert_eq!(found.token_ids, expected.token_ids, "{name}, {sampling:?}");
            assert!(found.report.drafted > 0, "{name} drafted nothing");
        }
    }
}

#[test]
fn a_plan_with_a_trimmed_head_survives_its_file() {
    let plan = plan();
    let again = plan::decode(&plan::encode(&plan).expect("a valid plan")).expect("a whole file");
    assert_eq!(again, plan);
    for kind in ["layer_skip", "substitute"] {
        let heads = again.bands[0].by_drafter.iter().map(|sub_plan| &sub_plan.drafter);
        let heads = heads.filter(|drafter| drafter.name() == kind && drafter.head_tokens().is_some());
        assert_eq!(heads.count(), SIZES.len(), "{kind}");
    }
}

fn with_head(tokens: &[u32]) -> Plan {
    let mut plan = plan();
    for sub_plan in &mut plan.bands[0].by_drafter {
        if let DrafterKind::LayerSkip(LayerSkipSettings { head_tokens: head @ Some(_), .. }) =
            &mut sub_plan.drafter
        {
            *head = Some(tokens.to_vec());
        }
    }
    plan
}

#[test]
fn tokens_that_no_head_can_keep_are_refused_with_what_is_wrong() {
    let vocabulary = profiled().0.set().vocabulary() as u32;
    for (tokens, part) in [
        (&[3, 2][..], "3 before 2"),
        (&[4, 4], "4 before 4"),
        (&[], "found none"),
        (&[0, vocabulary], &vocabulary.to_string()),
    ] {
        let refused = forced(with_head(tokens), "layer_skip_v40").expect_err("no such head");
        assert_eq!(refused.kind(), ErrorKind::Input, "{refused}");
        let said = refused.to_string();
        assert!(said.contains(part) && said.contains("plan again"), "{said}");
    }
    // Of what no model can have, the file is refused already.
    for tokens in [&[3, 2][..], &[4, 4], &[]] {
        let refused = plan::encode(&with_head(tokens)).expect_err("an invalid plan").to_string();
        assert!(refused.contains("tokens of a trimmed head"), "{refused}");
    }
}

#[test]
fn a_head_that_was_not_made_is_not_found() {
    let set = profiled().0.set();
    assert!(matches!(
        set.head(&[1, 2, 3]),
        Err(RuntimeError::MissingVariant { tokens: Some(3), bits: None })
    ));
}
