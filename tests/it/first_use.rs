//! The plan that `run` makes on first use: made once, found again, remade when it is unusable, and safe from a kill.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use yggc::{model::synthetic::SyntheticSpec, plan};

use crate::{
    program::success,
    tiny_commands::{self as tiny, json},
};

fn run(cache: &Path) -> Command {
    let mut command = tiny::on_quick("run");
    command.args(["-p", "hello", "-n", "8", "--json", "--cache-dir"]).arg(cache);
    command
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("listed").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// The only plan in the cache.
fn plan_in(cache: &Path) -> PathBuf {
    let names = names_in(&cache.join("plans"));
    let [plan, profile, lock] = &names[..] else { panic!("{names:?}") };
    assert!(lock == "lock" && plan.ends_with(".plan") && profile.ends_with(".profile"), "{names:?}");
    assert_eq!(plan.strip_suffix(".plan"), profile.strip_suffix(".profile"));
    cache.join("plans").join(plan)
}

#[test]
fn a_second_first_use_says_that_it_waits() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir_all(folder.path().join("plans")).expect("writable");
    let lock = fs::File::create(folder.path().join("plans/lock")).expect("writable");
    lock.lock().expect("nobody else holds it");
    let mut waits = run(folder.path());
    let mut waits = waits.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("yggc starts");
    let mut said = String::new();
    BufReader::new(waits.stderr.take().expect("piped")).read_line(&mut said).expect("a line");
    assert_eq!(said, "waiting for another yggc that is making a plan\n");
    waits.kill().expect("it waits");
    waits.wait().expect("it ends");
}

#[test]
fn a_plan_is_made_once_survives_a_kill_and_is_remade_when_it_is_damaged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path();

    // Killed while it measures.
    let mut killed = run(cache).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("yggc starts");
    let lock = cache.join("plans/lock");
    for _ in 0..600 {
        if lock.exists() {
            break;
        }
        assert!(killed.try_wait().expect("waitable").is_none(), "it ended before it took the lock");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(killed.try_wait().expect("waitable").is_none(), "it was done already");
    killed.kill().expect("SIGKILL is sent");
    killed.wait().expect("it ends");
    assert_eq!(names_in(&cache.join("plans")), ["lock"]);
    // What a kill inside a write would have left.
    fs::write(cache.join("plans/.0123.plan.77.partial"), "YGGPLAN").expect("writable");

    let output = run(cache).output().expect("yggc starts");
    let first: serde_json::Value = serde_json::from_str(&success(&output)).expect("one JSON value");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("first use") && said.contains("yggc plan show"), "{said}");
    let plan = plan_in(cache);
    assert_eq!(first["stats"]["plan"], plan.to_str().expect("UTF-8"));
    let made = fs::read(&plan).expect("the plan is there");

    let output = run(cache).output().expect("yggc starts");
    let second: serde_json::Value = serde_json::from_str(&success(&output)).expect("one JSON value");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "the second run has nothing to say");
    assert_eq!(second["token_ids"], first["token_ids"]);
    assert_eq!(second["stats"]["plan"], first["stats"]["plan"]);
    assert_eq!(fs::read(&plan).expect("the plan is there"), made, "the plan was made again");
    let forced = json(run(cache).args(["--drafter", "layer_skip"]));
    assert_eq!(forced["stats"]["drafter"], "layer_skip");
    assert_eq!(forced["token_ids"], first["token_ids"]);

    let mut damaged = made.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&plan, &damaged).expect("writable");
    let output = run(cache).output().expect("yggc starts");
    let third: serde_json::Value = serde_json::from_str(&success(&output)).expect("one JSON value");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("damaged") && said.contains("making it again"), "{said}");
    assert_eq!(third["token_ids"], first["token_ids"]);
    assert_ne!(fs::read(plan_in(cache)).expect("the plan is there"), damaged);
}

/// The plan of a first use that had no time for the drafter model, which a slow machine makes.
#[test]
fn a_drafter_model_that_was_not_measured_is_left_out_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path();
    let draft = ["--draft-model", tiny::quick_model().to_str().expect("UTF-8")];
    let first = json(run(cache).args(draft));
    let place = plan_in(cache);
    let mut plan = plan::read(&place).expect("a plan");
    let is_kept: Vec<bool> =
        plan.bands[0].by_drafter.iter().map(|sub_plan| sub_plan.drafter.draft_model().is_none()).collect();
    let moved = |from: u16| is_kept[..usize::from(from)].iter().filter(|kept| **kept).count() as u16;
    plan.bands[0].by_drafter.retain(|sub_plan| sub_plan.drafter.draft_model().is_none());
    plan.bands[0].alternatives.retain(|alternative| is_kept[usize::from(alternative.drafter)]);
    plan.bands[0]
        .alternatives
        .iter_mut()
        .for_each(|alternative| alternative.drafter = moved(alternative.drafter));
    plan.bands[0].chosen_index = 0;
    plan::write(&plan, &place).expect("a plan");

    let output = run(cache).args(draft).output().expect("yggc starts");
    let found: serde_json::Value = serde_json::from_str(&success(&output)).expect("one JSON value");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("without the drafter model") && said.contains("yggc profile --drafter model"),
        "{said}"
    );
    assert_eq!(found["token_ids"], first["token_ids"]);
    assert_eq!(found["stats"]["plan"], place.to_str().expect("UTF-8"));
}

#[test]
fn a_cache_that_cannot_be_written_costs_its_use_and_no_more() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("writable");
    let output = run(&file).output().expect("yggc starts");
    success(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("decoding plainly: a plan has no place"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn plain_decoding_asks_for_no_plan() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for plain in [&["--no-spec"][..], &["--drafter", "none"]] {
        let answer = json(run(folder.path()).args(plain));
        assert_eq!(answer["stats"]["drafter"], "none");
        assert_eq!(answer["stats"]["spec_off_reason"], "switched off by the request");
    }
    // What the model held is remembered if there was time to.
    let names = names_in(folder.path());
    assert!(names.iter().all(|name| name == "contents"), "{names:?}");
}

#[test]
fn where_no_plan_can_be_made_the_answer_comes_plainly_with_the_reason() {
    // No calibration prompt fits so short a context.
    let model = tiny::write("short.gguf", &SyntheticSpec { context: 24, ..tiny::spec() });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |arguments: &[&str]| {
        let mut command = tiny::on_machine("run", &model);
        command.args(["-p", "a", "-n", "4", "--json", "--cache-dir"]).arg(folder.path()).args(arguments);
        command.output().expect("yggc starts")
    };
    let output = run(&[]);
    let answer: serde_json::Value = serde_json::from_str(&success(&output)).expect("one JSON value");
    let reason = answer["stats"]["spec_off_reason"].as_str().expect("a reason");
    assert!(reason.contains("no plan could be made") && reason.contains("24 tokens"), "{reason}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("first use") && said.contains(reason), "{said}");
    let said = crate::program::failure(&run(&["--drafter", "lookup"]), 3);
    assert!(said.contains("no plan could be made"), "{said}");

    // Only the first run pays; the others say why and how to try again.
    let again = run(&[]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    let names = names_in(&folder.path().join("plans"));
    let failure = names.iter().find(|name| name.ends_with(".failure")).expect("the reason was kept");
    assert!(!said.contains("first use of") && said.contains("24 tokens"), "{said}");
    assert!(said.contains(failure) && said.contains("tried again an hour later"), "{said}");
    let second: serde_json::Value = serde_json::from_str(&success(&again)).expect("one JSON value");
    assert_eq!(second["token_ids"], answer["token_ids"]);
    // Whatever was in the way may be gone after an hour.
    let file = fs::File::options().append(true).open(folder.path().join("plans").join(failure));
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.and_then(|file| file.set_modified(long_ago)).expect("its time can be set");
    assert!(String::from_utf8_lossy(&run(&[]).stderr).contains("first use of"));
    assert!(!String::from_utf8_lossy(&run(&[]).stderr).contains("first use of"));
    fs::remove_file(folder.path().join("plans").join(failure)).expect("it can be removed");
    let said = String::from_utf8_lossy(&run(&[]).stderr).into_owned();
    assert!(said.contains("first use of"), "{said}");
}
