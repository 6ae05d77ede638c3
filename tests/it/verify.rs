//! `yggc verify` over a tiny model: what it prints where all is well, and where a plan is stale. Faults of other kinds
//! cannot be planted from here; the tests of the room plant them.

use std::{
    fs,
    process::{Command, Output},
    thread,
    time::Duration,
};

use serde_json::Value;
use yggc::model::Model;

use crate::{
    program::{failure, success, yggc},
    tiny_commands::{json, keys, model, on_machine, on_tiny, other_model, plan, prompts},
};

const PROPERTIES: [&str; 9] = [
    "model",
    "plan",
    "kernels",
    "ties",
    "row invariance",
    "cache",
    "greedy answers",
    "sampled answers",
    "draws",
];

/// Whether a property was not checked since no earlier state of the model is known: another test may have used it
/// before.
fn is_first_use(property: &str, was_not_checked: bool) -> bool {
    property == "model" && was_not_checked
}

fn quick(mut command: Command) -> Command {
    command.args(["--quick", "--prompts"]).arg(prompts()).arg("--plan").arg(plan());
    command
}

/// The same of these properties alone.
fn only(command: Command, properties: &str) -> Command {
    let mut command = quick(command);
    command.args(["--only", properties]);
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("yggc starts")
}

#[test]
fn every_property_holds_and_has_a_line() {
    let output = run(quick(on_tiny("verify")));
    let bound = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(bound.contains("verifying takes 3 minutes at most"), "{bound}");
    let said = success(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), PROPERTIES.len(), "{said}");
    for (line, name) in lines.iter().zip(PROPERTIES) {
        assert!(
            is_first_use(name, line.starts_with("not checked ")) | line.starts_with("ok ")
                && line.contains(&format!(" {name} "))
                && line.contains(" s "),
            "{line}"
        );
    }
    for drafter in
        ["plan without guard", "lookup", "layer_skip", "suffix", "recycling", "ngram", "swift", "mixed"]
    {
        assert!(lines[6].contains(drafter) && lines[7].contains(drafter), "{drafter}: {said}");
    }
    assert!(!said.contains("could not be opened"), "{said}");
    assert!(!lines[6].contains(" 0 drafted"), "greedy answers were compared without a draft: {said}");
}

#[test]
fn properties_that_are_asked_for_are_one_json_object() {
    let report = json(only(on_tiny("verify"), "ties,model,row-invariance").arg("--json"));
    let fields = ["holds", "kernels", "model", "plan", "properties", "quick", "threads", "widths"];
    assert_eq!(keys(&report), fields);
    assert_eq!(
        (&report["holds"], &report["quick"], &report["threads"]),
        (&true.into(), &true.into(), &1.into())
    );
    assert_eq!(report["kernels"], "portable");
    let properties = report["properties"].as_array().expect("a list");
    let names: Vec<&str> = properties.iter().map(|p| p["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["model", "ties", "row invariance"], "in the order in which they are checked");
    for property in properties {
        assert_eq!(keys(property), ["holds", "name", "said", "seconds"]);
        let holds = &property["holds"];
        let name = property["name"].as_str().expect("a name");
        assert!(*holds == true || is_first_use(name, holds.is_null()), "{property}");
        assert!(property["seconds"].as_f64() > Some(0.0), "{property}");
    }
    let refused = failure(&run(only(on_tiny("verify"), "row invariance")), 2);
    assert!(
        refused.contains("expected one of model, plan, kernels, ties, row-invariance, cache"),
        "{refused}"
    );
}

/// A byte between the samples of the model's fingerprint, so that the plan fits; length and time of change are put
/// back.
#[test]
fn a_changed_byte_of_the_model_is_named_by_its_tensor() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("copy.gguf");
    fs::copy(model(), &copy).expect("writable");
    // A file that was just written is not remembered yet.
    thread::sleep(Duration::from_millis(2100));
    let verify = || {
        let mut command = on_machine("verify", &copy);
        command.arg("--cache-dir").arg(folder.path().join("cache"));
        run(only(command, "model,plan"))
    };
    assert!(success(&verify()).starts_with("not checked  model"));
    assert!(success(&verify()).starts_with("ok           model"));

    let tensor = "blk.2.ffn_down.weight";
    let bytes = Model::open(&copy).expect("a model").tensors[tensor].bytes.clone();
    let mut content = fs::read(&copy).expect("readable");
    content[bytes.start + bytes.len() * 3 / 8] ^= 1;
    let modified = fs::metadata(&copy).and_then(|found| found.modified()).expect("a time");
    fs::write(&copy, content).expect("writable");
    let file = fs::File::options().write(true).open(&copy).expect("writable");
    file.set_modified(modified).expect("writable");
    let output = verify();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("FAILED       model") && said.contains(&format!("in `{tensor}`")), "{said}");
    assert_eq!(said.matches("FAILED").count(), 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("1 of 2 properties do not hold (model)"), "{stderr}");
    assert!(stderr.contains("the model is not what it was"), "{stderr}");
}

/// The plan is reported, and everything else is verified with it all the same.
#[test]
fn a_stale_plan_is_found_and_ends_with_1() {
    let mut threads = yggc();
    threads.args(["verify", "--threads", "2", "--isa", "portable", "-m"]).arg(model());
    for (command, differs) in [(on_machine("verify", other_model()), "model"), (threads, "threads")] {
        let mut command = only(command, "plan,ties,greedy-answers");
        command.arg("--json");
        let output = run(command);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("1 of 3 properties do not hold (plan)"), "{stderr}");
        assert!(stderr.contains("answers are exact all the same"), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        assert_eq!(report["holds"], false);
        for property in report["properties"].as_array().expect("a list") {
            assert!(property["holds"] == (property["name"] != "plan"), "{property}");
        }
        let said = report["properties"][0]["said"].as_str().expect("a text");
        assert!(said.contains(differs) && said.contains("expected") && said.contains("found"), "{said}");
    }
}

#[test]
fn what_cannot_be_verified_at_all_is_refused_before() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (arguments, named) in [(["--plan", "no.plan"], "no.plan"), (["--prompts", "no.jsonl"], "no.jsonl")] {
        let mut command = on_tiny("verify");
        let output = command.args(arguments).current_dir(folder.path()).output().expect("yggc starts");
        assert!(failure(&output, 3).contains(named));
    }
    let output = run(on_machine("verify", &folder.path().join("no.gguf")));
    assert!(failure(&output, 3).contains("no.gguf"));
}
