//! Plans that are refined: measured for longer than a first use had time for, by a command of its own, or by a service
//! that nobody asks.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use yggc::{measure::profile_file, plan};

use crate::{
    program::{success, yggc},
    tiny_commands::{self as tiny, json},
};

/// A cache as a first use leaves it.
fn used_once() -> (TempDir, Value) {
    static FIRST: OnceLock<(TempDir, Value)> = OnceLock::new();
    let (made, answer) = FIRST.get_or_init(|| {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let answer = run(cache.path());
        (cache, answer)
    });
    let cache = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(cache.path().join("plans")).expect("writable");
    for ending in ["plan", "profile"] {
        let file = kept(made.path(), ending).expect("a first use makes a plan");
        let name = file.file_name().expect("a file");
        fs::copy(&file, cache.path().join("plans").join(name)).expect("writable");
    }
    (cache, answer.clone())
}

fn run(cache: &Path) -> Value {
    let mut command = tiny::on_quick("run");
    json(command.args(["-p", "hello", "-n", "8", "--json", "--cache-dir"]).arg(cache))
}

fn refine(cache: &Path) -> Command {
    let mut command = yggc();
    command.args(["plan", "refine", "--threads", "1", "--budget", "8", "-m"]);
    command.arg(tiny::quick_model()).arg("--cache-dir").arg(cache);
    command
}

/// The only file of the cached plan with this ending, if there is one.
fn kept(cache: &Path, ending: &str) -> Option<PathBuf> {
    let files = fs::read_dir(cache.join("plans")).expect("the folder exists");
    files
        .map(|entry| entry.expect("listed").path())
        .find(|path| path.extension().is_some_and(|e| e == ending))
}

#[test]
fn a_refined_plan_knows_more_drafters_and_changes_no_answer() {
    let (folder, first) = used_once();
    let cache = folder.path();
    let path = kept(cache, "plan").expect("a first use makes a plan");
    let made = fs::read(&path).expect("readable");
    // How much is measured is a matter of time, and so what is planned; of every drafter at least one answer is
    // recorded.
    let recorded = || {
        let profile = kept(cache, "profile").expect("what was measured is kept");
        let profile = profile_file::read(&profile).expect("a profile");
        profile.live_traces.iter().map(|trace| trace.drafter.to_string()).collect::<BTreeSet<_>>()
    };
    let before = recorded();

    // Killed while it measures.
    let mut killed = refine(cache).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("yggc starts");
    thread::sleep(Duration::from_millis(700));
    assert!(killed.try_wait().expect("waitable").is_none(), "it was done already");
    killed.kill().expect("SIGKILL is sent");
    killed.wait().expect("it ends");
    assert_eq!((fs::read(&path).expect("readable"), kept(cache, "refined")), (made.clone(), None));

    let said = success(&refine(cache).output().expect("yggc starts"));
    assert!(said.contains("refined") && said.contains(path.to_str().expect("UTF-8")), "{said}");
    assert!(kept(cache, "refined").is_some());
    let after = recorded();
    let has = |names: &BTreeSet<String>, name: &str| names.contains(name);
    assert!(has(&before, "mixed") && !has(&before, "recycling"), "{before:?}");
    assert!(has(&after, "mixed") && has(&after, "recycling"), "{after:?}");
    assert!(plan::decode(&fs::read(&path).expect("readable")).is_ok());
    let again = run(cache);
    assert_eq!(again["token_ids"], first["token_ids"]);
    assert_eq!(again["stats"]["plan"], path.to_str().expect("UTF-8"));
}

/// A service that refines its plan after a second, and what it says.
fn serve(cache: &Path) -> (Child, String, BufReader<std::process::ChildStderr>) {
    let mut command = tiny::on_quick("serve");
    command.args(["--port", "0", "--refine=1", "--cache-dir"]).arg(cache).env_remove("YGGC_API_KEY");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("yggc starts");
    let mut url = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut url).expect("a line");
    let said = BufReader::new(child.stderr.take().expect("piped"));
    (child, url.trim().to_owned(), said)
}

/// Reads until a line contains `words`.
fn until(said: &mut impl BufRead, words: &str) {
    let mut all = String::new();
    while !all.lines().last().is_some_and(|line| line.contains(words)) {
        assert!(said.read_line(&mut all).expect("UTF-8") > 0, "{words}: {all}");
    }
}

#[test]
fn a_service_that_nobody_asks_refines_its_plan_and_a_request_ends_that_at_once() {
    let (folder, _) = used_once();
    let cache = folder.path();
    let path = kept(cache, "plan").expect("a first use makes a plan");
    let made = fs::read(&path).expect("readable");
    let (mut child, url, mut said) = serve(cache);
    until(&mut said, "no request comes");
    let body = serde_json::json!({"prompt": "one", "max_tokens": 2}).to_string();
    let answer = ureq::post(format!("{url}/v1/completions")).content_type("application/json").send(&body);
    assert_eq!(answer.expect("answered").status(), 200);
    until(&mut said, "a request came");
    assert_eq!((fs::read(&path).expect("readable"), kept(cache, "refined")), (made, None));
    child.kill().expect("SIGKILL is sent");
    child.wait().expect("it ends");
}
