//! What the program does with what is typed: exit codes and messages.

use crate::program::{failure, success, yggc};

#[test]
fn a_wrong_command_line_ends_with_2_and_says_what_was_expected() {
    for (line, expected) in [
        ("run -p x -n 0", "at least 1"),
        ("run -p x --temperature -1", "0 or more"),
        ("run -p x --no-such-flag", "--no-such-flag"),
        ("run -p x --drafter oracle", "layer_skip"),
        ("no-such-command", "no-such-command"),
        ("completions", "<SHELL>"),
        ("completions csh", "possible values: bash"),
        ("plan", "--profile"),
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
        "inspect",
        "score",
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
