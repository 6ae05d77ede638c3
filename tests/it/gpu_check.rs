//! The script for a GPU machine, `benches/gpu-check.sh`: the tests that it names are there, and none of its checks passes without them.

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
}
