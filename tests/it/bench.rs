//! `bench` as a whole program over a tiny model: every arm, the raw numbers, and what follows from them.

use serde_json::Value;

use crate::{
    program::{success, yggc},
    tiny_commands::{drafting_plan, json, keys, on_tiny, profile, prompts},
};

fn bench(arguments: &[&str]) -> std::process::Command {
    let mut command = on_tiny("bench");
    command.args(["-n", "12", "--repetitions", "3", "--prompts"]).arg(prompts());
    command.arg("--plan").arg(drafting_plan()).args(arguments);
    command
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

#[test]
fn every_arm_answers_every_prompt_in_rotating_order() {
    let bench = json(&mut bench(&["--arms", "plan,lookup,layer_skip", "--json"]));
    assert_eq!(
        keys(&bench),
        [
            "arms",
            "date",
            "kernels",
            "machine",
            "max_tokens",
            "model",
            "prompts",
            "repetitions",
            "sampling",
            "threads",
            "version"
        ]
    );
    assert_eq!(bench["machine"]["isa"], "portable");
    let arms = list(&bench["arms"]);
    let names: Vec<&str> = arms.iter().map(|arm| arm["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["ar", "plan", "lookup", "layer_skip"], "plain decoding is always an arm");
    for arm in arms {
        assert!(arm["tpot_ms"].as_f64().expect("measured") > 0.0);
        assert!(arm["tokens_per_s"].as_f64().expect("measured") > 0.0);
        assert_eq!(arm["runs"], 6);
        assert_eq!(keys(&arm["categories"]), ["sums", "words"]);
        assert!(arm["speedup"]["median"].as_f64().expect("measured") > 0.0);
    }
    assert_eq!(arms[0]["aal"], 1.0);
    assert_eq!(arms[0]["speedup"]["max"], 1.0);
    assert_eq!(arms[3]["drafter"], "layer_skip");
    assert!(arms[3]["aal"].as_f64().expect("measured") > 1.0, "nothing was ever accepted");

    let questions = list(&bench["prompts"]);
    assert_eq!(questions.len(), 2);
    for question in questions {
        let runs = list(&question["runs"]);
        assert_eq!(runs.len(), 3 * 4);
        for repetition in 0..3u64 {
            let mut order: Vec<u64> = runs
                .iter()
                .filter(|run| run["repetition"] == repetition)
                .map(|run| run["arm"].as_u64().expect("a number"))
                .collect();
            let begins = order[0];
            let plain = order.iter().position(|arm| *arm == 0).expect("plain decoding ran");
            order.rotate_left(plain);
            assert_eq!(order, [0, 1, 2, 3]);
            let next = runs.iter().find(|run| run["repetition"] == repetition + 1);
            if let Some(next) = next {
                assert_ne!(next["arm"], begins, "the order did not rotate");
            }
        }
        for run in runs {
            assert_eq!(run["tokens"], runs[0]["tokens"]);
            assert!(
                run["total_ms"].as_f64().expect("measured") >= run["ttft_ms"].as_f64().expect("measured")
            );
        }
    }
}

#[test]
fn sampled_answers_are_those_of_plain_decoding_with_the_seed() {
    let sampled = |seed: &str| {
        let flags = ["--arms", "plan,unguarded,layer_skip", "--temperature", "1.5", "--seed", seed, "--json"];
        let bench = json(&mut bench(&flags));
        assert_eq!(bench["sampling"]["temperature"], 1.5);
        assert_eq!(bench["sampling"]["seed"].to_string(), seed);
        bench
    };
    let tokens = |bench: &Value| -> Vec<u64> {
        list(&bench["prompts"]).iter().filter_map(|prompt| prompt["runs"][0]["tokens"].as_u64()).collect()
    };
    let (first, greedy) = (sampled("7"), json(&mut bench(&["--json"])));
    assert_eq!(first["arms"][3]["drafter"], "layer_skip");
    assert_eq!(greedy["sampling"]["temperature"], 0.0);
    assert_eq!(tokens(&first), tokens(&sampled("7")));
}

/// A plan of a shape that does not pay here: nearly everything is drafted for nothing.
fn hopeless(folder: &std::path::Path) -> std::path::PathBuf {
    let file = folder.join("hopeless.plan");
    let mut command = yggc();
    command
        .args(["plan", "--fix", "drafter=layer_skip,Dd=4,Wd=1,Wv=4,rows=all,predictor=off", "--profile"])
        .arg(profile());
    success(&command.arg("-o").arg(&file).output().expect("yggc starts"));
    file
}

#[test]
fn an_unguarded_plan_drafts_at_every_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bench = |arms: &str, json: bool| {
        let mut command = on_tiny("bench");
        command.args(["-n", "100", "--repetitions", "1", "--temperature", "3", "--arms", arms, "--prompts"]);
        command.arg(prompts()).arg("--plan").arg(hopeless(folder.path()));
        command.args(json.then_some("--json"));
        command
    };
    let report = json(&mut bench("plan,unguarded", true));
    let names: Vec<&str> =
        list(&report["arms"]).iter().map(|arm| arm["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["ar", "plan", "unguarded"]);
    let runs = || list(&report["prompts"]).iter().flat_map(|prompt| list(&prompt["runs"]));
    let drafted = |arm: u64| -> u64 {
        runs().filter(|run| run["arm"] == arm).filter_map(|run| run["drafted"].as_u64()).sum()
    };
    assert!(drafted(2) > drafted(1), "{} and {}", drafted(2), drafted(1));
    for run in runs() {
        let fell_back = run["fell_back"].as_str();
        assert_eq!(fell_back.is_some(), run["arm"] == 1, "{run}");
        assert!(fell_back.is_none_or(|reason| reason.contains("after drafts that did not pay")), "{run}");
    }
    let said = success(&bench("plan", false).output().expect("yggc starts"));
    assert!(said.contains("plan fell back to plain decoding in 2 of 2 answers, as to prompt 1: "), "{said}");
}

#[test]
fn the_tables_are_for_people() {
    let said = success(&bench(&[]).output().expect("yggc starts"));
    for part in ["arm", "ar ", "plan", "speed-up", "category", "sums", "all arms gave the same tokens"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let eager = json(&mut bench(&["--json", "--arms", "eager"]));
    let of_eager = |arm: &&Value| arm["name"] == "eager";
    let arm = list(&eager["arms"]).iter().find(of_eager).expect("an arm of its own");
    assert_eq!((&arm["drafter"], list(&eager["arms"]).len()), (&Value::from("none"), 2));
    let alone = success(&bench(&["--arms", "ar"]).output().expect("yggc starts"));
    assert!(!alone.contains("category"), "{alone}");
}

#[test]
fn several_plans_are_several_arms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("copy.plan");
    std::fs::copy(drafting_plan(), &copy).expect("writable");
    let bench = json(bench(&["--json", "--plan"]).arg(&copy));
    let names: Vec<&str> =
        list(&bench["arms"]).iter().map(|arm| arm["name"].as_str().expect("a name")).collect();
    let (first, second) = (format!("plan:{}", drafting_plan().display()), format!("plan:{}", copy.display()));
    assert_eq!(names, ["ar", first.as_str(), second.as_str()]);
}
