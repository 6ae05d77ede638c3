//! Drafters that find things out as they are served: through plans and engines, with what they found kept from run to
//! run.

use std::{fs, path::Path, process::Command};

use yggc::{
    backend::Tier,
    engine::{DrafterChoice, Engine, ErrorKind, Options, PlanSource, Sampling},
    plan::{self},
    policy::{SkipSearchSettings, SkipState, read_skip_state, write_skip_state},
    speculate::DraftGrowth,
};

use crate::{
    program::failure,
    tiny_commands::{drafting_plan, json, model, on_tiny},
};

/// A search that may try a set before every step.
fn eager() -> SkipSearchSettings {
    SkipSearchSettings { share: 50.0, window: 12, interval: 3, enough: 2.0, ..SkipSearchSettings::default() }
}

fn engine(drafter: DrafterChoice, draft_growth: DraftGrowth) -> Engine {
    let name = drafting_plan().display().to_string();
    let plan = plan::read(drafting_plan()).expect("the plan of the tests");
    let options = Options {
        plan: Some(PlanSource { plan, name, force: false }),
        drafter,
        tier: Some(Tier::Portable),
        threads: Some(1),
        skip_search: eager(),
        draft_growth,
        ..Options::new(model())
    };
    Engine::open(&options).expect("the plan was made here")
}

fn forced(name: &str) -> DrafterChoice {
    DrafterChoice::Forced(name.to_owned())
}

#[test]
fn a_served_drafter_tunes_itself_and_changes_no_answer() {
    let mut plain = engine(DrafterChoice::Plain, DraftGrowth::Equal);
    let sampled = Sampling { temperature: 0.8, top_p: 0.9, seed: 4, ..Sampling::GREEDY };
    for growth in [DraftGrowth::Equal, DraftGrowth::Confident] {
        let mut tuned = engine(forced("swift"), growth);
        let mut drafted = 0;
        for (request, sampling) in [Sampling::GREEDY, sampled, Sampling::GREEDY].into_iter().enumerate() {
            let prompt = [5 + request as u32, 9, 17, 9];
            let answer = |engine: &mut Engine| {
                let generation = engine.generate_tokens(&prompt, 90, sampling).expect("the prompt fits");
                generation.collect_answer().expect("it ends")
            };
            let (expected, found) = (answer(&mut plain), answer(&mut tuned));
            assert_eq!(found.token_ids, expected.token_ids, "{growth:?}, request {request}");
            drafted += found.report.drafted;
            let is_predicted = found.report.predicted_tpot_ms.is_some();
            assert_eq!(is_predicted, growth == DraftGrowth::Equal, "plans price trees of equal growth");
        }
        let report = tuned.generate_tokens(&[3, 4], 60, Sampling::GREEDY).expect("the prompt fits");
        let counts = report.collect_answer().expect("it ends").report.skip_search.expect("it searches");
        assert!(drafted > 20 && counts.tries > 20, "{growth:?}: {drafted} drafted, {counts:?}");
    }
    assert_eq!(plain.skip_state(), None);
}

#[test]
fn what_was_found_goes_on_where_it_was_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tiny.skip");
    let mut first = engine(forced("swift"), DraftGrowth::Equal);
    let fingerprint = first.loaded().fingerprints().expect("a readable machine").model;
    first.generate_tokens(&[5, 9], 60, Sampling::GREEDY).expect("it fits").collect_answer().expect("it ends");
    let state: SkipState = first.skip_state().expect("it searches");
    assert!(!state.points().is_empty());
    write_skip_state(&state, &fingerprint, &file).expect("a writable folder");

    let kept = read_skip_state(&file, &fingerprint).expect("as written").expect("a file");
    let mut second = engine(forced("swift"), DraftGrowth::Equal);
    assert_ne!(second.skip_state().as_ref(), Some(&state));
    second.restore_skip_state(kept.clone()).expect("of this model");
    assert_eq!(second.skip_state(), Some(state));

    let mut fixed = engine(forced("layer_skip"), DraftGrowth::Equal);
    let refused = fixed.restore_skip_state(kept).expect_err("it does not search");
    assert_eq!(refused.kind(), ErrorKind::Input);
    assert!(refused.to_string().contains("`layer_skip`"), "{refused}");
}

/// A run that is forced to a drafter and keeps what it finds out where `flag` says.
fn run_with(drafter: &str, flag: &str, file: &Path) -> Command {
    let mut command = on_tiny("run");
    command.args(["-p", "one and one and one", "-n", "40", "--json", "--plan"]).arg(drafting_plan());
    command.args(["--drafter", drafter, flag]).arg(file);
    command
}

#[test]
fn a_run_keeps_its_n_grams_and_refuses_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tiny.ngrams");
    let run = |drafter: &str| run_with(drafter, "--ngram-state", &file);
    let refused = failure(&run("lookup").output().expect("yggc starts"), 3);
    assert!(refused.contains("--drafter ngram") && !file.exists(), "{refused}");
    let first = json(&mut run("ngram"));
    let kept = fs::read(&file).expect("written");
    let second = json(&mut run("ngram"));
    assert_eq!(first["token_ids"], second["token_ids"]);
    let steps = |answer: &serde_json::Value| answer["stats"]["steps"].as_u64().expect("a number");
    assert!(steps(&second) < steps(&first), "the second run knew the answer: {second}");
    fs::write(&file, &kept[..kept.len() / 2]).expect("a writable folder");
    let refused = failure(&run("ngram").output().expect("yggc starts"), 3);
    assert!(refused.contains("tiny.ngrams") && refused.contains("remove the file"), "{refused}");
    assert_eq!(fs::read(&file).expect("still there"), &kept[..kept.len() / 2]);
}

#[test]
fn a_run_keeps_its_state_and_refuses_what_is_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tiny.skip");
    let run = |drafter: &str| run_with(drafter, "--skip-state", &file);
    let refused = failure(&run("layer_skip").output().expect("yggc starts"), 3);
    assert!(refused.contains("--drafter swift") && !file.exists(), "{refused}");
    let mut plain = on_tiny("run");
    plain.args(["-p", "one and one and one", "-n", "40", "--json", "--no-spec"]);
    let expected = json(&mut plain);
    for _ in 0..2 {
        let answer = json(&mut run("swift"));
        assert_eq!(answer["token_ids"], expected["token_ids"]);
        assert_eq!(answer["stats"]["drafter"], "swift");
        assert!(answer["stats"]["drafted"].as_u64().is_some_and(|drafted| drafted > 0));
        let search = &answer["stats"]["skip_search"];
        assert!(search["tried_us"].as_f64() <= search["stepped_us"].as_f64(), "{search}");
        assert!(file.exists());
    }
    let good = fs::read(&file).expect("written");
    fs::write(&file, &good[..good.len() / 2]).expect("a writable folder");
    let refused = failure(&run("swift").output().expect("yggc starts"), 3);
    assert!(refused.contains("tiny.skip") && refused.contains("remove the file"), "{refused}");
    assert_eq!(
        fs::read(&file).expect("still there"),
        &good[..good.len() / 2],
        "a refused file is left as it is"
    );
}
