//! The script for a GPU machine, `benches/gpu-check.sh`: the tests that it names are there, and none of its checks
//! passes without them. Also that scripts which run `yggc` on a model reach a GPU. `.ci/full` rehearses the script as a
//! whole.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/gpu-check.sh");

/// The names of tests in the script, `module::function`.
fn named() -> Vec<String> {
    let text = fs::read_to_string(SCRIPT).expect("the script is readable");
    let words = text.split_whitespace().filter(|word| word.contains("::"));
    words.map(str::to_owned).collect()
}

#[test]
fn every_test_that_it_names_is_there() {
    let told = Command::new(std::env::current_exe().expect("a test knows itself")).arg("--list").output();
    let listed = String::from_utf8(told.expect("tests can be listed").stdout).expect("names are text");
    let names = named();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(listed.lines().any(|line| line == format!("{name}: test")), "no test is called {name}");
    }
}

/// A program in the place of the tests that runs as many as it is told to say.
fn script(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/usr/bin/env bash\n{text}\n")).expect("writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be made a program");
    path
}

#[test]
fn a_check_whose_tests_did_not_run_fails() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = script(folder.path(), "yggc", "exit 0");
    // `YGG_TEST_DEVICE=cuda TESTS --exact NAME...`
    let all = script(folder.path(), "all", "shift; echo \"test result: ok. $# passed; 0 failed\"");
    let none = script(folder.path(), "none", "echo \"test result: ok. 0 passed; 0 failed\"");
    let run = |tests: &Path, parts: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(SCRIPT).arg(&program).arg(tests).arg(&program).arg(folder.path().join("out")).args(parts);
        let told = command.output().expect("the script starts");
        (told.status.code(), String::from_utf8_lossy(&told.stdout).into_owned())
    };
    let (status, said) = run(&none, &[]);
    assert_eq!(status, Some(1), "{said}");
    for check in ["conformance", "rows", "overlap-1", "lossless"] {
        let line = said.lines().find(|line| line.starts_with(check)).expect("every check has a line");
        assert!(line.contains("FAILED"), "{line}");
    }
    // A part goes on where the last window stopped: what ended well is not run again.
    let (status, said) = run(&all, &["overlap", "plan"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("overlap-5      ok") && said.contains("profile        done before"), "{said}");
    assert!(!said.contains("lossless") && !said.contains("widths"), "{said}");
    let (status, said) = run(&none, &["overlap"]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(run(&all, &["overlaps"]).0, Some(2));
    // One archive has what every window found.
    let told = Command::new("tar").arg("-tzf").arg(folder.path().join("out.tar.gz")).output();
    let packed = String::from_utf8(told.expect("tar lists an archive").stdout).expect("names are text");
    for file in ["out/machine.txt", "out/overlap-5.out", "out/profile.done", "out/lossless.err"] {
        assert!(packed.lines().any(|line| line == file), "{file} is not in: {packed}");
    }
}

#[test]
fn a_dry_run_asks_for_less_and_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = script(folder.path(), "yggc", "echo \"$@\"");
    let run = |arguments: &[&str], out: &str| {
        let out = folder.path().join(out);
        let mut command = Command::new("bash");
        command.arg(SCRIPT).args(arguments).args([&program, &program, &program, &out]);
        let told = command.args(["large", "plan", "schedules"]).output().expect("the script starts");
        let said = String::from_utf8_lossy(&told.stdout).into_owned();
        assert_eq!(told.status.code(), Some(0), "{said}");
        let asked = |check: &str| fs::read_to_string(out.join(format!("{check}.out"))).expect("it ran");
        (said, asked("profile"), asked("inflate"))
    };
    let (said, profile, inflate) = run(&[], "measured");
    assert!(said.contains("left out: no --draft-model") && !said.contains("draft-model-plain"), "{said}");
    assert!(!profile.contains("--rehearsal") && inflate.contains("--inflate 7b"), "{profile}{inflate}");
    let drafter = program.to_str().expect("UTF-8");
    let (said, profile, inflate) = run(&["--dry-run", "--draft-model", drafter], "rehearsed");
    assert!(said.contains("draft-model-whole_step ok"), "{said}");
    assert!(profile.contains("--rehearsal") && profile.contains("--draft-model"), "{profile}");
    assert!(inflate.contains("--inflate layers="), "{inflate}");
}

/// `activations.py` compares two kinds of activations, of which a GPU has one; `soak.py` passes on what it is given.
#[test]
fn scripts_that_run_a_model_reach_a_gpu() {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    for name in [
        "ablation.py",
        "agreement.py",
        "exhaustive.py",
        "lossless.py",
        "prediction.py",
        "swift_stream.py",
        "peers/compare.py",
    ] {
        let told = Command::new("python3").arg("-B").arg(benches.join(name)).arg("--help").output();
        let help = String::from_utf8(told.expect("python3 starts").stdout).expect("help is text");
        assert!(help.contains("--device"), "{name}: {help}");
    }
}
