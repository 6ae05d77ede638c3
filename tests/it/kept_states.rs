//! Drafters that find things out as they are served: through plans and engines, with what they found kept from run to
//! run.

use std::{fs, path::Path, process::Command};

use yggc::{
    backend::Tier,
    engine::{DrafterChoice, Engine, ErrorKind, Options, PlanSource, Sampling},
    plan::{self},
    policy::SkipSearchSettings,
    speculate::{DraftGrowth, DrafterState},
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
    assert_eq!(plain.drafter_state(), None);
}

#[test]
fn what_was_found_goes_on_where_it_was_kept() {
    for name in ["swift", "ngram"] {
        let open = || engine(forced(name), DraftGrowth::Equal);
        let mut first = open();
        let nothing = first.drafter_state().expect("it keeps a state");
        let generation = first.generate_tokens(&[5, 9], 60, Sampling::GREEDY).expect("it fits");
        generation.collect_answer().expect("it ends");
        let kept = first.drafter_state().expect("it keeps a state");
        assert_ne!(kept, nothing);

        let mut second = open();
        assert_eq!(second.drafter_state().as_ref(), Some(&nothing));
        second.restore_drafter_state(&kept).expect("of this model");
        assert_eq!(second.drafter_state().as_ref(), Some(&kept));

        for other in ["layer_skip", "lookup", if name == "swift" { "ngram" } else { "swift" }] {
            let mut other_engine = engine(forced(other), DraftGrowth::Equal);
            let before = other_engine.drafter_state();
            let refused = other_engine.restore_drafter_state(&kept).expect_err("of another drafter");
            assert_eq!(refused.kind(), ErrorKind::Input);
            let said = refused.to_string();
            assert!(said.contains(&format!("`{name}`")) && said.contains(&format!("`{other}`")), "{said}");
            assert_eq!(other_engine.drafter_state(), before);
        }

        let model = first.loaded().fingerprints().expect("a readable machine").model;
        let states = DrafterState::decode(&kept, &model).expect("as kept");
        let other = plan::ModelFingerprint { name: "another".to_owned(), digest: "d".to_owned() };
        let refused = second.restore_drafter_state(&DrafterState::encode(&states, &other));
        let refused = refused.expect_err("of another model").to_string();
        assert!(refused.contains(&model.digest) && refused.contains("another (d)"), "{refused}");
    }
}

/// A run that is forced to a drafter and keeps what it learns where `flag` says.
fn run_with(drafter: &str, flag: &str, file: &Path) -> Command {
    let mut command = on_tiny("run");
    command.args(["-p", "one and one and one", "-n", "40", "--json", "--plan"]).arg(drafting_plan());
    command.args(["--drafter", drafter, flag]).arg(file);
    command
}

#[test]
fn a_run_keeps_its_state_and_refuses_what_is_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut plain = on_tiny("run");
    plain.args(["-p", "one and one and one", "-n", "40", "--json", "--no-spec"]);
    let expected = json(&mut plain);
    let steps = |answer: &serde_json::Value| answer["stats"]["steps"].as_u64().expect("a number");
    // The former options are the same one.
    for (drafter, former, other) in
        [("swift", "--skip-state", "layer_skip"), ("ngram", "--ngram-state", "lookup")]
    {
        let file = folder.path().join(format!("tiny.{drafter}"));
        let run = |drafter: &str| run_with(drafter, "--drafter-state", &file);
        let refused = failure(&run(other).output().expect("yggc starts"), 3);
        assert!(refused.contains(&format!("--drafter {drafter}")) && !file.exists(), "{refused}");
        let first = json(&mut run(drafter));
        let kept = fs::read(&file).expect("written");
        let second = json(&mut run_with(drafter, former, &file));
        for answer in [&first, &second] {
            assert_eq!(answer["token_ids"], expected["token_ids"]);
            assert_eq!(answer["stats"]["drafter"], drafter);
            assert!(answer["stats"]["drafted"].as_u64().is_some_and(|drafted| drafted > 0));
            let search = &answer["stats"]["skip_search"];
            assert!(search["tried_us"].as_f64() <= search["stepped_us"].as_f64(), "{search}");
        }
        if drafter == "ngram" {
            assert!(steps(&second) < steps(&first), "the second run knew the answer: {second}");
        }
        fs::write(&file, &kept[..kept.len() / 2]).expect("a writable folder");
        let refused = failure(&run_with(drafter, former, &file).output().expect("yggc starts"), 3);
        assert!(refused.contains("remove the file"), "{refused}");
        assert!(refused.contains(file.to_str().expect("UTF-8")), "{refused}");
        assert_eq!(fs::read(&file).expect("there"), &kept[..kept.len() / 2], "it is left as it is");
    }
}
