//! `yggc verify` over a tiny model: what it prints where all is well, and where a plan is stale. Faults of other kinds cannot be planted
//! from here; the tests of the room plant them.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{
    program::{failure, success, yggc},
    tiny_commands::{json, keys, model, on_machine, on_tiny, other_model, plan, prompts},
};

const PROPERTIES: [&str; 8] =
    ["plan", "kernels", "ties", "row invariance", "cache", "greedy answers", "sampled answers", "draws"];

fn quick(mut command: Command) -> Command {
    command.args(["--quick", "--prompts"]).arg(prompts()).arg("--plan").arg(plan());
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("yggc starts")
}

#[test]
fn every_property_holds_and_has_a_line() {
    let said = success(&run(quick(on_tiny("verify"))));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), PROPERTIES.len(), "{said}");
    for (line, name) in lines.iter().zip(PROPERTIES) {
        assert!(
            line.starts_with("ok ") && line.contains(&format!(" {name} ")) && line.contains(" s "),
            "{line}"
        );
    }
    for drafter in
        ["plan without guard", "lookup", "layer_skip", "suffix", "recycling", "ngram", "swift", "mixed"]
    {
        assert!(lines[5].contains(drafter) && lines[6].contains(drafter), "{drafter}: {said}");
    }
    assert!(!said.contains("could not be opened"), "{said}");
    assert!(!lines[5].contains(" 0 drafted"), "greedy answers were compared without a draft: {said}");
}

#[test]
fn the_same_is_one_json_object() {
    let mut command = quick(on_tiny("verify"));
    let report = json(command.arg("--json"));
    let fields = ["holds", "kernels", "model", "plan", "properties", "quick", "threads", "widths"];
    assert_eq!(keys(&report), fields);
    assert_eq!(
        (&report["holds"], &report["quick"], &report["threads"]),
        (&true.into(), &true.into(), &1.into())
    );
    assert_eq!(report["kernels"], "portable");
    let properties = report["properties"].as_array().expect("a list");
    let names: Vec<&str> = properties.iter().map(|p| p["name"].as_str().expect("a name")).collect();
    assert_eq!(names, PROPERTIES);
    for property in properties {
        assert_eq!(keys(property), ["holds", "name", "said", "seconds"]);
        assert!(property["holds"] == true && property["seconds"].as_f64() > Some(0.0), "{property}");
    }
}

/// The plan is reported, and everything else is verified with it all the same.
#[test]
fn a_stale_plan_is_found_and_ends_with_1() {
    let mut threads = yggc();
    threads.args(["verify", "--threads", "2", "--isa", "portable", "-m"]).arg(model());
    for (command, differs) in [(on_machine("verify", other_model()), "model"), (threads, "threads")] {
        let mut command = quick(command);
        command.arg("--json");
        let output = run(command);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("1 of 8 properties do not hold (plan)"), "{stderr}");
        assert!(stderr.contains("answers are exact all the same"), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        assert_eq!(report["holds"], false);
        for property in report["properties"].as_array().expect("a list") {
            assert_eq!(property["holds"], property["name"] != "plan", "{property}");
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
