//! What the program does with what is typed: exit codes and messages.

use std::process::Stdio;

use crate::program::{failure, success, yggc};

#[test]
fn a_wrong_command_line_ends_with_2_and_says_what_was_expected() {
    for (line, expected) in [
        ("run -p x -n 0", "at least 1"),
        ("run -p x -n 99999999999999999999", "from 1 to 18446744073709551615"),
        ("run -p x --temperature -1", "0 or more"),
        ("run -p x --no-such-flag", "--no-such-flag"),
        ("run -p x --drafter oracle", "layer_skip"),
        ("no-such-command", "no-such-command"),
        ("completions", "<SHELL>"),
        ("completions csh", "possible values: bash"),
        ("plan", "--profile"),
        ("cache", "list"),
        ("cache rm", "<NAME>"),
        ("cache list --packed-limit 5X", "as in 500M or 20G"),
        ("", "Usage"),
    ] {
        let output = yggc().args(line.split_whitespace()).output().expect("yggc starts");
        let said = failure(&output, 2);
        assert!(said.contains(expected), "{line}: {said}");
    }
}

#[test]
fn help_and_version_are_answers() {
    let help = success(&yggc().arg("--help").output().expect("yggc starts"));
    for command in [
        "fetch",
        "cache",
        "inspect",
        "score",
        "choose",
        "corpus",
        "profile",
        "plan",
        "run",
        "bench",
        "verify",
        "completions",
        "man",
    ] {
        assert!(help.contains(command), "{command} is not in the help: {help}");
    }
    assert_eq!(help.contains("serve"), cfg!(feature = "serve"), "{help}");
    let version = success(&yggc().arg("--version").output().expect("yggc starts"));
    assert_eq!(version, format!("yggc {}\n", env!("CARGO_PKG_VERSION")));
}

/// As `yggc ... | head -1` does; the pages are longer than a pipe holds.
#[cfg(unix)]
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut command = yggc();
    let command = command.args(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("yggc starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn flags_are_grouped_in_the_help() {
    let help = success(&yggc().args(["run", "--help"]).output().expect("yggc starts"));
    for (flag, group) in [
        ("--model", "Model:"),
        ("--threads", "Machine:"),
        ("--context", "Machine:"),
        ("--temperature", "Sampling:"),
        ("--drafter", "Drafting:"),
        ("--no-spec", "Drafting:"),
        ("--skip-objective", "Drafting:"),
        ("--packed-limit", "Cache:"),
        ("--prompt", "Options:"),
    ] {
        let mut heading = "";
        let found = help.lines().find(|line| {
            if !line.starts_with(' ') && line.ends_with(':') {
                heading = line;
            }
            line.trim_start().starts_with('-') && line.split([' ', ',']).any(|word| word == flag)
        });
        assert!(found.is_some() && heading == group, "{flag} is under `{heading}`: {help}");
    }
}

#[test]
fn completions_and_manual_pages_are_answers() {
    let text = |line: &str| success(&yggc().args(line.split_whitespace()).output().expect("yggc starts"));
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&format!("completions {shell}"));
        assert!(script.contains("yggc") && script.contains("draft-model"), "{shell}: {script}");
    }
    assert!(text("man").contains(".TH yggc 1"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pages = folder.path().join("man1");
    let output = yggc().args(["man", "-o"]).arg(&pages).output().expect("yggc starts");
    assert_eq!(success(&output), "");
    assert!(pages.join("yggc.1").exists() && pages.join("yggc-run.1").exists());
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("writable");
    let said = failure(&yggc().args(["man", "-o"]).arg(&file).output().expect("yggc starts"), 3);
    assert!(said.contains("-o DIR"), "{said}");
}

#[test]
fn an_unknown_model_name_ends_with_3_and_names_the_known_ones() {
    let said = failure(&yggc().args(["fetch", "smollm3"]).output().expect("yggc starts"), 3);
    assert!(said.contains("smollm3") && said.contains("smollm2-135m-instruct"), "{said}");
}

#[test]
fn without_a_place_for_the_cache_the_flag_is_named() {
    let output = yggc().args(["fetch", "smollm2-135m-instruct"]).env_clear().output().expect("yggc starts");
    assert!(failure(&output, 1).contains("--cache-dir"));
}
