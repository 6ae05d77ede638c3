//! Kept prefixes as clients and operators see them: cached tokens after a restart, and metrics.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{answered, server::Server};
use crate::{
    program::{failure, success, yggc},
    tiny_commands::{model, on_tiny},
};

/// What is asked: more than two blocks of tokens.
fn body() -> Value {
    let prompt: Vec<u32> = (0..150).map(|place| 5 + place % 60).collect();
    json!({"prompt": prompt, "max_tokens": 4, "temperature": 0})
}

#[test]
fn tokens_are_cached_from_start_to_start_and_counted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().to_str().expect("UTF-8");
    let start =
        |disk: &str| Server::start(model(), &["--no-spec", "--cache-dir", cache, "--prefix-disk", disk]);
    let ask = |server: &Server| {
        let answer = answered(&server.post("/v1/completions", &body()));
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        (answer["choices"][0]["text"].clone(), cached.expect("a number"))
    };
    let (expected, damaged_none) = {
        let mut server = start("64M");
        let (text, cached) = ask(&server);
        assert_eq!(cached, 0);
        assert!(ask(&server).1 >= 128, "of the request before");
        let damaged = server.metric("yggc_kept_prefix_damaged_total");
        server.signal("TERM");
        assert!(server.ended().success());
        (text, damaged)
    };
    assert!(damaged_none.abs() < f64::EPSILON);
    let mut server = start("64M");
    assert_eq!(ask(&server), (expected.clone(), 128), "from disk");
    for (name, least) in [
        ("yggc_kept_prefix_hits_total", 1.0),
        ("yggc_kept_prefix_disk_tokens_total", 128.0),
        ("yggc_kept_prefix_memory_bytes", 1000.0),
        ("yggc_kept_prefix_disk_bytes", 1000.0),
    ] {
        assert!(server.metric(name) >= least, "{name}: {}", server.metric(name));
    }
    super::metrics::checked(&server.get("/metrics").text);
    server.signal("TERM");
    assert!(server.ended().success());
    let server = start("off");
    assert_eq!(ask(&server), (expected, 0), "switched off");
}

#[test]
fn run_goes_on_from_what_a_run_before_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let prompt = "one and one and one, say the words ".repeat(6);
    let run = |disk: &str| {
        let mut run = on_tiny("run");
        run.args(["--no-spec", "--raw", "-n", "4", "--json", "--prefix-disk", disk, "--cache-dir"]);
        let output = run.arg(folder.path()).args(["-p", &prompt]).output().expect("yggc starts");
        let answer: Value = serde_json::from_str(&success(&output)).expect("JSON");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        (answer["token_ids"].clone(), answer["stats"]["reused_tokens"].as_u64())
    };
    let (expected, nothing) = run("16M");
    assert_eq!(nothing, None);
    let (found, kept) = run("16M");
    assert_eq!(found, expected);
    assert!(kept.is_some_and(|kept| kept >= 64), "{kept:?}");
    assert_eq!(run("off"), (expected, None));

    let cache = |arguments: &[&str]| {
        yggc()
            .arg("cache")
            .args(arguments)
            .arg("--cache-dir")
            .arg(folder.path())
            .output()
            .expect("yggc starts")
    };
    let listing: Value = serde_json::from_str(&success(&cache(&["list", "--json"]))).expect("JSON");
    let entry =
        listing["entries"].as_array().expect("a list").iter().find(|entry| entry["kind"] == "prefixes");
    let entry = entry.expect("it is listed");
    assert_eq!(entry["about"], "synthetic");
    assert!(success(&cache(&["check"])).contains("none is damaged"));
    let path = entry["paths"][0].as_str().expect("a path");
    let mut bytes = fs::read(path).expect("it is there");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("it has blocks");
    bytes[last] ^= 1;
    fs::write(path, bytes).expect("writable");
    let said = failure(&cache(&["check"]), 1);
    assert!(said.contains("blocks as they were written, found 1 others"), "{said}");
    success(&cache(&["clear", "prefixes"]));
    assert!(!Path::new(path).exists());
}
