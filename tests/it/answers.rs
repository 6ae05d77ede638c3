//! `run` and `score` as whole programs over a tiny model: what they print, and that it is the contract's.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    program::{success, with_input, yggc},
    tiny_commands::{drafting_plan, json, keys, model, on_tiny},
};

/// A run of a prompt with the plan.
fn planned(arguments: &[&str]) -> Command {
    let mut command = on_tiny("run");
    command
        .args(["-p", "one and one and one", "-n", "40", "--json", "--plan"])
        .arg(drafting_plan())
        .args(arguments);
    command
}

fn plain(arguments: &[&str]) -> Command {
    let mut command = on_tiny("run");
    command.args(["-p", "one and one and one", "-n", "40", "--json", "--no-spec"]).args(arguments);
    command
}

#[test]
fn run_prints_the_contracts_object_and_nothing_else() {
    let answer = json(&mut planned(&["--drafter", "layer_skip"]));
    assert_eq!(keys(&answer), ["finish_reason", "prompt_token_ids", "stats", "text", "token_ids"]);
    let stats = &answer["stats"];
    assert_eq!(
        keys(stats),
        [
            "aal",
            "acceptance_by_depth",
            "acceptance_rate",
            "accepted",
            "drafted",
            "drafter",
            "macro_tokens_per_s",
            "plan",
            "plan_temperature",
            "predicted_tpot_ms",
            "proposers",
            "spec_off_reason",
            "stages",
            "steps",
            "tokens",
            "tokens_per_s",
            "tpot_ms",
            "ttft_ms",
            "walked_by_device",
        ]
    );
    assert_eq!(stats["walked_by_device"], 0);
    assert_eq!(stats["tokens"].as_u64(), Some(answer["token_ids"].as_array().unwrap().len() as u64));
    assert_eq!(stats["drafter"], "layer_skip");
    assert_eq!(stats["plan"], drafting_plan().to_str().unwrap());
    assert_eq!(stats["plan_temperature"], 0.0);
    assert_eq!(stats["spec_off_reason"], Value::Null);
    assert!(stats["drafted"].as_u64().unwrap() > 0 && stats["predicted_tpot_ms"].as_f64().unwrap() > 0.0);
    let of_layers = &stats["proposers"]["layer_skip"];
    assert_eq!((&of_layers["drafted"], &of_layers["accepted"]), (&stats["drafted"], &stats["accepted"]));
    for stage in stats["stages"].as_array().unwrap() {
        assert_eq!(keys(stage), ["measured_ms", "name", "predicted_ms"]);
    }
    let verify = stats["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == "verify").unwrap();
    assert!(verify["predicted_ms"].as_f64().unwrap() > 0.0 && verify["measured_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_end_token_is_emitted_and_said_to_end() {
    let cut_at = |n: &str| json(on_tiny("run").args(["-p", "hello", "-n", n, "--json", "--no-spec"]));
    let answer = cut_at("200");
    let ids: Vec<u64> =
        answer["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    match answer["finish_reason"].as_str().unwrap() {
        "stop" => assert_eq!(ids.last(), Some(&2)),
        "length" => assert!(!ids.contains(&2)),
        other => panic!("{other}"),
    }
    let cut = cut_at("1");
    assert_eq!((cut["finish_reason"].as_str(), cut["token_ids"][0].as_u64()), (Some("length"), Some(ids[0])));
    assert_eq!(cut["stats"]["aal"], Value::Null, "the prefill gives the first token, so there was no step");
}

#[test]
fn every_way_to_draft_gives_the_tokens_of_plain_decoding() {
    let sampled =
        ["--temperature", "0.9", "--top-k", "50", "--top-p", "0.95", "--min-p", "0.01", "--seed", "7"];
    for sampling in [&[][..], &sampled] {
        let expected = json(&mut plain(sampling));
        assert_eq!(expected["stats"]["spec_off_reason"], "switched off by the request");
        for drafting in
            [&[][..], &["--drafter", "lookup"], &["--drafter", "layer_skip"], &["--drafter", "none"]]
        {
            let found = json(&mut planned(&[sampling, drafting].concat()));
            assert_eq!(found["token_ids"], expected["token_ids"], "{drafting:?} {sampling:?}");
            assert_eq!(found["text"], expected["text"]);
        }
    }
    let other = json(&mut plain(&["--temperature", "0.9", "--seed", "8"]));
    assert_ne!(other["token_ids"], json(&mut plain(&["--temperature", "0.9", "--seed", "9"]))["token_ids"]);
}

#[test]
fn text_streams_to_stdout_and_numbers_go_to_stderr() {
    let expected = json(&mut plain(&[]))["text"].as_str().unwrap().to_owned();
    let mut command = on_tiny("run");
    command.args(["-p", "one and one and one", "-n", "40", "--stats", "--drafter", "layer_skip", "--plan"]);
    let output = command.arg(drafting_plan()).output().expect("yggc starts");
    assert_eq!(success(&output), format!("{expected}\n"));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    for part in ["memory", "tokens/s", "TPOT", "TTFT", "AAL", "accepted", "layer_skip", "predicted", "verify"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn raw_prompts_have_no_template_and_know_control_tokens() {
    let raw = json(on_tiny("run").args(["-p", "<|im_start|>a", "--raw", "-n", "2", "--json", "--no-spec"]));
    let ids = raw["prompt_token_ids"].as_array().unwrap();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], 1);
    let chat = json(on_tiny("run").args(["-p", "<|im_start|>a", "-n", "2", "--json", "--no-spec"]));
    let ids = chat["prompt_token_ids"].as_array().unwrap();
    assert_eq!(ids.iter().filter(|id| **id == 1).count(), 2, "one for the user's turn, one for the answer's");
}

#[test]
fn a_prompt_may_come_from_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("prompt.txt");
    fs::write(&file, "one and one and one").expect("writable");
    let mut command = on_tiny("run");
    let answer = json(command.args(["-n", "40", "--json", "--no-spec", "--prompt-file"]).arg(&file));
    let expected = json(&mut plain(&[]));
    assert_eq!(answer["prompt_token_ids"], expected["prompt_token_ids"]);
    // Or from standard input.
    let mut command = on_tiny("run");
    command.args(["-n", "40", "--json", "--no-spec", "--prompt-file", "-"]);
    command.stdin(fs::File::open(&file).expect("just written"));
    assert_eq!(json(&mut command)["token_ids"], expected["token_ids"]);
}

#[test]
fn a_chat_answers_line_by_line_and_forgets_on_reset() {
    let chat = |lines: &str| with_input(on_tiny("run").args(["-n", "6", "--no-spec", "--chat"]), lines);
    let once = success(&chat("hello\n"));
    let twice = success(&chat("hello\n\nhello\n"));
    assert!(twice.starts_with(&once) && twice.len() > once.len(), "{once:?} {twice:?}");
    assert_ne!(twice, once.repeat(2), "the second answer knew the first");
    assert_eq!(success(&chat("hello\n/reset\nhello\n")), once.repeat(2));

    let long = chat(&format!("hello\n{}\nhello\n", "word ".repeat(200)));
    assert!(success(&long).starts_with(&once));
    let said = String::from_utf8_lossy(&long.stderr).into_owned();
    assert!(said.contains("not answered") && said.contains("/reset"), "{said}");
}

#[test]
fn a_reader_that_leaves_an_answer_is_no_failure() {
    let mut child = on_tiny("run")
        .args(["-p", "hello", "-n", "200", "--no-spec", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("yggc starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("error") && !said.contains("panicked"), "{said}");
}

#[test]
fn an_explicit_model_needs_no_home() {
    let mut command = yggc();
    command.env_clear().arg("run").arg("-m").arg(model());
    let answer = json(command.args(["-p", "hello", "-n", "2", "--json", "--no-spec"]));
    assert_eq!(answer["stats"]["tokens"], 2);
    // Without a place to keep a plan, none is made and the reason is given.
    let mut command = yggc();
    command.env_clear().arg("run").arg("-m").arg(model());
    let answer = json(command.args(["-p", "hello", "-n", "2", "--json"]));
    let reason = answer["stats"]["spec_off_reason"].as_str().expect("a reason");
    assert!(reason.contains("--cache-dir"), "{reason}");
}

#[test]
fn score_prints_one_entry_per_predicted_token() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, ids) = (folder.path().join("text"), folder.path().join("ids.json"));
    fs::write(&text, "hello world").expect("writable");
    let by_text = json(on_tiny("score").arg("--text-file").arg(&text).arg("--json"));
    assert_eq!(keys(&by_text), ["mean_nll", "perplexity", "tokens"]);
    let tokens = by_text["tokens"].as_array().unwrap();
    assert!(tokens.len() > 2);
    for token in tokens {
        assert_eq!(keys(token), ["argmax", "id", "nll"]);
    }
    let mean = tokens.iter().map(|t| t["nll"].as_f64().unwrap()).sum::<f64>() / tokens.len() as f64;
    assert!((by_text["mean_nll"].as_f64().unwrap() - mean).abs() < 1e-12);
    assert!((by_text["perplexity"].as_f64().unwrap() - mean.exp()).abs() < 1e-9 * mean.exp());

    // The greedy continuation is what scoring finds most probable.
    let answer = json(on_tiny("run").args(["-p", "hello", "--raw", "-n", "12", "--json", "--no-spec"]));
    let prompt = answer["prompt_token_ids"].as_array().unwrap();
    let said = answer["token_ids"].as_array().unwrap();
    let sequence: Vec<&Value> = prompt.iter().chain(said).collect();
    fs::write(&ids, serde_json::to_string(&sequence).unwrap()).expect("writable");
    let scored = json(on_tiny("score").arg("--token-ids").arg(&ids).arg("--json"));
    let scored = scored["tokens"].as_array().unwrap();
    assert_eq!(scored.len(), sequence.len() - 1);
    for (token, expected) in scored.iter().zip(&sequence[1..]) {
        assert_eq!(&token["id"], *expected);
    }
    let argmaxes: Vec<&Value> = scored[prompt.len() - 1..].iter().map(|token| &token["argmax"]).collect();
    assert_eq!(argmaxes, said.iter().collect::<Vec<_>>());
    let human = success(&on_tiny("score").arg("--token-ids").arg(&ids).output().expect("yggc starts"));
    assert!(human.contains("perplexity"), "{human}");
}
