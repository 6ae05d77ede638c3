//! The program with a drafter model: measured, planned, run, and what it says where there is none.

use std::path::{Path, PathBuf};

use serde_json::Value;
use yggc::model::synthetic::{HiddenStateSpec, SyntheticSpec};

use crate::{
    program::{failure, success, yggc},
    tiny_commands::{self as tiny, json, on_tiny, plan, prompts, spec},
};

fn hidden_state() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("draft_commands");
    HiddenStateSpec::for_verifier(&spec()).write_folder(&folder).expect("the target folder is writable");
    folder
}

fn token_ids(answer: &Value) -> &Value {
    &answer["token_ids"]
}

#[test]
fn a_drafter_model_is_measured_planned_and_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (profile, plan) = (folder.path().join("a.profile"), folder.path().join("a.plan"));
    let (hidden, plain) = (hidden_state(), tiny::write("draft.gguf", &SyntheticSpec { layers: 2, ..spec() }));
    let mut command = on_tiny("profile");
    command.args(["--budget", "45", "--rehearsal", "--drafter", "model", "--prompts"]).arg(prompts());
    command.arg("--draft-model").arg(&hidden).arg("--draft-model").arg(&plain).arg("-o").arg(&profile);
    success(&command.output().expect("yggc starts"));
    let mut command = yggc();
    command.args(["plan", "--fix", "drafter=model,rows=all", "--profile"]).arg(&profile).arg("-o").arg(&plan);
    success(&command.output().expect("yggc starts"));
    let said = success(&yggc().args(["plan", "show"]).arg(&plan).output().expect("yggc starts"));
    assert!(said.contains("model_hidden"), "{said}");

    let ask = |arguments: &[&str]| {
        let mut command = on_tiny("run");
        command.args(["-p", "one and one", "-n", "30", "--json"]).args(arguments);
        command
    };
    let expected = json(&mut ask(&["--no-spec"]));
    let plan = plan.to_str().expect("UTF-8");
    let found = json(&mut ask(&["--plan", plan, "--drafter", "model"]));
    assert_eq!(token_ids(&found), token_ids(&expected));
    assert_eq!(found["stats"]["drafter"], "model");
    assert!(found["stats"]["drafted"].as_u64().expect("a number") > 0);

    // Whichever the plan took, a folder that is not there is neither.
    let gone = folder.path().join("gone");
    let mut command = ask(&["--plan", plan, "--draft-model"]);
    command.arg(&gone);
    let said = failure(&command.output().expect("yggc starts"), 3);
    assert!(said.contains("gone") && said.contains("--draft-model"), "{said}");

    let mut command = yggc();
    command.args(["bench", "-m"]).arg(tiny::model()).args([
        "--threads",
        "1",
        "--isa",
        "portable",
        "--plan",
        plan,
    ]);
    command.arg("--prompts").arg(prompts()).args([
        "--arms",
        "ar,model",
        "-n",
        "12",
        "--repetitions",
        "1",
        "--json",
    ]);
    let report = json(&mut command);
    assert_eq!(report["arms"][1]["name"], "model");
}

#[test]
fn a_plan_without_a_drafter_model_says_how_to_measure_one() {
    let (plan, hidden) = (plan(), hidden_state());
    let run = |arguments: &[&str]| {
        let mut command = on_tiny("run");
        command.args(["-p", "one", "-n", "4", "--plan"]).arg(plan).args(arguments);
        failure(&command.output().expect("yggc starts"), 3)
    };
    let said = run(&["--drafter", "model"]);
    assert!(said.contains("yggc profile --drafter model --draft-model PATH"), "{said}");
    let said = run(&["--draft-model", hidden.to_str().expect("UTF-8")]);
    assert!(said.contains("of no use to the plan") && said.contains("yggc profile"), "{said}");
    let mut command = on_tiny("profile");
    command.args(["--drafter", "model", "-o", "never.profile"]);
    let said = failure(&command.output().expect("yggc starts"), 3);
    assert!(said.contains("--draft-model"), "{said}");
}
