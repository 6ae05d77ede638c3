//! Conversations that go on in a later run: what was said is sent again, and what was computed of it is not computed
//! again.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::{
    program::{failure, success, with_input, yggc},
    tiny_commands::on_tiny,
};

/// `run` with a session of this name in a cache folder.
fn run(cache: &Path, name: &str) -> Command {
    let mut command = on_tiny("run");
    command.args(["-n", "6", "--no-spec", "--prefix-memory", "0", "--prefix-disk", "16M", "--session", name]);
    command.arg("--cache-dir").arg(cache).stdin(Stdio::null());
    command
}

fn asked(cache: &Path, name: &str, question: &str) -> Value {
    let output = run(cache, name).args(["--json", "-p", question]).output().expect("yggc starts");
    serde_json::from_str(&success(&output)).expect("JSON")
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// A chat through a pipe.
fn chat(cache: &Path, name: &str, lines: &str) -> Output {
    with_input(run(cache, name).arg("--chat"), lines)
}

const LONG: &str =
    "What flows to the sea, what stays on the hill, and what do they say to each other at night?";

#[test]
fn a_conversation_goes_on_in_another_process() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let whole = tempfile::tempdir().expect("a temporary folder");
    let expected = success(&chat(whole.path(), "all", &format!("{LONG}\nand then\nwhy\n")));

    let first = success(&chat(cache.path(), "rivers", &format!("{LONG}\n")));
    let second = asked(cache.path(), "rivers", "and then");
    let output = chat(cache.path(), "rivers", "why\n");
    let answers = format!("{first}{}\n{}", second["text"].as_str().expect("a text"), success(&output));
    assert_eq!(answers, expected);
    assert!(said(&output).contains("session rivers goes on after 2 turns"), "{}", said(&output));

    // The first question is longer than a block, so that it came from disk.
    let stats = &second["stats"];
    assert!(stats["reused_tokens"].as_u64().is_some_and(|reused| reused >= 64), "{stats}");
    // Another conversation knows nothing of it.
    let other = asked(cache.path(), "hills", "and then");
    assert_ne!(other["prompt_token_ids"], second["prompt_token_ids"]);

    let list = yggc().args(["cache", "list", "--cache-dir"]).arg(cache.path()).output().expect("yggc starts");
    let list = success(&list);
    assert!(list.contains("rivers  turns: 3") && list.contains("hills"), "{list}");
}

#[test]
fn a_conversation_can_begin_anew_and_is_removed_by_name_only() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let once = asked(cache.path(), "a.b", "hello");
    success(&chat(cache.path(), "a.b", "more\n/reset\n"));
    let again = asked(cache.path(), "a.b", "hello");
    assert_eq!(again["token_ids"], once["token_ids"]);

    let yggc_cache = |arguments: &[&str]| {
        let mut command = yggc();
        success(
            &command
                .arg("cache")
                .args(arguments)
                .arg("--cache-dir")
                .arg(cache.path())
                .output()
                .expect("starts"),
        )
    };
    yggc_cache(&["clear"]);
    let file = cache.path().join("sessions/a.b.json");
    assert!(file.exists(), "nothing makes a conversation again");
    yggc_cache(&["rm", "a.b"]);
    assert!(!file.exists());
}

#[test]
fn what_is_no_conversation_is_refused_and_stays() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let folder = cache.path().join("sessions");
    fs::create_dir(&folder).expect("it can be made");
    let texts = ["", "{", "[]", r#"{"version":2,"turns":[]}"#, r#"{"version":1,"turns":[{"user":"a"}]}"#];
    for text in texts {
        let file = folder.join("broken.json");
        fs::write(&file, text).expect("it can be written");
        let refused =
            failure(&run(cache.path(), "broken").args(["-p", "hi"]).output().expect("yggc starts"), 3);
        assert!(
            refused.contains("broken.json") && refused.contains("name another session"),
            "{text}: {refused}"
        );
        assert_eq!(fs::read_to_string(&file).expect("it is there"), text);
    }
    let long = "a".repeat(101);
    for name in ["", "../a", ".a", "-a", "a/b", "a b", "ä", &long] {
        let mut only = on_tiny("run");
        only.arg(format!("--session={name}")).args(["-p", "hi", "--cache-dir"]).arg(cache.path());
        let refused = failure(&only.output().expect("yggc starts"), 2);
        assert!(refused.contains("letters, digits"), "{name}: {refused}");
    }
}

/// Or one would lose what the other adds.
#[test]
fn two_runs_of_a_conversation_take_turns() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    asked(cache.path(), "shared", "hello");
    let lock =
        File::options().write(true).open(cache.path().join("sessions/shared.lock")).expect("it is there");
    lock.lock().expect("nobody has it open");
    let mut command = run(cache.path(), "shared");
    let mut waiting = command
        .args(["-p", "more"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("yggc starts");
    let mut lines = BufReader::new(waiting.stderr.take().expect("piped")).lines();
    let waits = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("has session shared open")));
    assert!(waits.is_some(), "it says what it waits for");
    assert!(waiting.try_wait().expect("it is there").is_none(), "it waits");
    drop(lock);
    assert!(waiting.wait().expect("it ends").success());
    assert_eq!(
        fs::read_to_string(cache.path().join("sessions/shared.json")).expect("there").matches("user").count(),
        2
    );
}
