//! Block drafters on their way from a profile through a plan to answers.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use ygg_profiler::{Profile, Stage};
use yggc::{
    engine::{DraftModel, DrafterChoice, Engine, Loaded, Options, Pinning, PlanSource, Sampling},
    measure::ProfileOptions,
    model::synthetic::{BlockSpec, SyntheticSpec},
    plan::{self, DrafterKind, Plan, Schedule},
    planner::{Fix, plan_from_profile},
};

use crate::{
    draft_plans::same_answers,
    program::{failure, yggc},
    tiny_commands,
    tiny_profiles::{self, NOW, Recorder},
};

const WIDTHS: [usize; 5] = [1, 2, 4, 8, 16];

/// A DFlash and a DSpark drafter for the verifier of [`tiny_profiles`], written once.
fn drafters() -> &'static [PathBuf; 2] {
    static WRITTEN: OnceLock<[PathBuf; 2]> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("block_plans");
        let verifier = SyntheticSpec { layers: 6, context: 256, ..SyntheticSpec::default() };
        let dflash = BlockSpec::for_verifier(&verifier);
        let dspark = BlockSpec { size: 4, markov_rank: Some(4), ..dflash.clone() };
        [("dflash", dflash), ("dspark", dspark)].map(|(name, spec)| {
            let folder = folder.join(name);
            spec.write_folder(&folder).expect("the target folder is writable");
            folder
        })
    })
}

fn profiled() -> &'static (Arc<Loaded>, Profile) {
    static PROFILED: OnceLock<(Arc<Loaded>, Profile)> = OnceLock::new();
    PROFILED.get_or_init(|| {
        tiny_profiles::profiled(None, &WIDTHS, |options| ProfileOptions {
            drafters: vec!["block".to_owned(), "lookup".to_owned()],
            draft_models: drafters().to_vec(),
            head_sizes: vec![120],
            temperatures: vec![1.0],
            budget: std::time::Duration::from_secs(30),
            is_rehearsal: true,
            ..options
        })
    })
}

/// A choice of rows may verify none that were drafted, as this machine's latencies happen to be.
fn plan() -> Plan {
    let fix = Fix::parse("rows=all,predictor=off").expect("a good fix");
    plan_from_profile(&profiled().1, &fix, NOW).expect("a plan")
}

const NAMES: [&str; 2] = ["block", "block_2"];

#[test]
fn a_profile_measures_whole_proposals_and_records_trees_that_grow_by_a_node() {
    let (loaded, profile) = profiled();
    let all_widths = loaded.set().widths();
    let rows = all_widths[all_widths.len() - 1];
    for (name, places) in NAMES.into_iter().zip([4, 4]) {
        let drafter = profile.drafters.iter().find(|d| d.name.as_str() == name);
        let drafter = drafter.unwrap_or_else(|| panic!("{name} was not described"));
        let kind = DrafterKind::from_description(drafter).expect("a drafter of this build");
        assert!(kind.drafts_blocks() && kind.head_tokens().is_none(), "{kind:?}");
        let of_it = profile.measurements.iter().filter(|m| m.cell.stage.drafter() == Some(&drafter.name));
        let mut widths = Vec::new();
        for cell in of_it.map(|m| &m.cell) {
            assert_eq!(cell.stage, Stage::Draft(drafter.name.clone()), "{name} is one forward");
            widths.push(cell.width as usize);
        }
        widths.sort_unstable();
        widths.dedup();
        assert_eq!(widths, all_widths, "{name}");
        let traces: Vec<_> = profile.traces.iter().filter(|trace| trace.drafter == drafter.name).collect();
        assert_eq!(traces.iter().map(|t| t.temperature).collect::<Vec<_>>(), [0.0, 1.0], "{name}");
        for trace in traces {
            assert_eq!((trace.width, trace.depth as usize), (1, rows - 1), "{name}");
            let steps: Vec<_> = trace.steps().collect();
            assert!(!steps.is_empty(), "{name}: recorded steps");
            for step in steps {
                assert_eq!(step.tokens.len(), rows, "{name}: a whole tree");
                let depth = |mut node: usize| {
                    let mut depth = 0;
                    while node > 0 {
                        (node, depth) = (step.parents[node] as usize, depth + 1);
                    }
                    depth
                };
                assert!((0..step.parents.len()).all(|node| depth(node) <= places), "{name}");
            }
        }
    }
}

#[test]
fn every_recorded_step_is_what_a_verifying_decoder_does() {
    let (loaded, profile) = profiled();
    let kind = |described| DrafterKind::from_description(described).expect("a drafter of this build");
    let kinds: Vec<DrafterKind> = profile.drafters.iter().map(kind).collect();
    let loaded = loaded.with_drafters(&kinds).expect("the drafters are there");
    for trace in profile.traces.iter().filter(|trace| NAMES.contains(&trace.drafter.as_str())) {
        let mut recorder = Recorder::new(&loaded, profile, trace);
        let requests = profile.token_traces.iter().filter(|r| r.temperature == trace.temperature);
        let mut steps = 0;
        for (prompt, request) in trace.prompts.iter().zip(requests) {
            let text = [&request.prompt[..], &request.output].concat();
            let sampling =
                Sampling { temperature: request.temperature, seed: request.seed, ..Sampling::GREEDY };
            for recorded in prompt.steps.iter().take(6) {
                recorder.check(&text[..recorded.context as usize], sampling, recorded);
                steps += 1;
            }
        }
        assert!(steps > 10, "{steps} steps of {} at {}", trace.drafter, trace.temperature);
    }
}

#[test]
fn a_planned_block_drafter_answers_as_plain_decoding_does() {
    let whole = plan();
    let again = plan::decode(&plan::encode(&whole).expect("a valid plan")).expect("a whole file");
    assert_eq!(again, whole, "a plan with block drafters survives its file");
    let options = Options { context: Some(200), pinning: Pinning::Floating, ..Options::new("unused") };
    let mut plain = Engine::with_loaded(Arc::clone(&profiled().0), &options).expect("no plan is needed");
    for (name, path) in NAMES.into_iter().zip(drafters()) {
        let sub_plan = whole.bands[0].by_drafter.iter().find(|sub_plan| sub_plan.name.as_str() == name);
        let sub_plan = sub_plan.unwrap_or_else(|| panic!("{name} has no shape"));
        assert_eq!((sub_plan.schedule, sub_plan.shape().draft_width), (Schedule::Plain, 1), "{name}");
        assert_eq!(Path::new(&sub_plan.drafter.draft_model().expect("a drafter").path), path);
        let mut plan = whole.clone();
        for band in &mut plan.bands {
            band.by_drafter.retain(|s| s.name.as_str() == name || s.drafter.draft_model().is_none());
            band.chosen_index = 0;
        }
        let options = Options {
            plan: Some(PlanSource { plan, name: "test".to_owned(), force: false }),
            drafter: DrafterChoice::Forced("block".to_owned()),
            ..options.clone()
        };
        let mut engine =
            Engine::with_loaded(Arc::clone(&profiled().0), &options).expect("it is where it was");
        let beside = engine.memory().session_bytes - plain.memory().session_bytes;
        assert!(beside > 0, "the drafter's session and the hidden rows are counted");
        same_answers(&mut plain, &mut engine, (name, "block"));
    }
}

#[test]
fn a_block_drafter_is_a_kind_of_its_own() {
    for path in drafters() {
        let model = DraftModel::open(path).expect("a drafter");
        assert!(model.is_block() && model.reads_hidden_rows());
        assert_eq!(model.drafter().expect("a path").name(), "block");
    }
    let mut command = yggc();
    command.args(["profile", "--budget", "10", "--drafter", "block", "-o", "never.profile", "-m"]);
    let said = failure(&command.arg(tiny_commands::model()).output().expect("yggc starts"), 3);
    assert!(said.contains("needs a block drafter") && said.contains("--draft-model"), "{said}");
}
