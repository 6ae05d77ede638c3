//! Every command of README and documents, run in order from an empty cache as a newcomer types them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::program::default_model;

const DOCUMENTS: [&str; 3] = [
    include_str!("../../README.md"),
    include_str!("../../docs/guide.md"),
    include_str!("../../docs/serving.md"),
];

/// Beginnings of commands that are not run here, and why.
const ELSEWHERE: [(&str, &str); 5] = [
    ("apt-get ", "needs a bare Debian machine"),
    ("cargo install ", "builds the program anew"),
    ("cargo test ", "runs this test"),
    ("yggc fetch hf:", "needs the hub; tests/it/hub.rs has one of its own"),
    ("yggc distill ", "needs PyTorch; tests/it/distill.rs has a stand-in"),
];

/// Commands of the blocks of shell lines; a quotation may go over several lines.
fn commands(document: &str) -> Vec<String> {
    let blocks = document.split("```sh\n").skip(1).filter_map(|tail| tail.split("```").next());
    let mut commands: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in blocks.flat_map(str::lines).filter(|line| !line.is_empty()) {
        match commands.last_mut().filter(|_| is_open) {
            Some(command) => command.push_str(&format!("\n{line}")),
            None => commands.push(line.to_owned()),
        }
        is_open ^= line.matches('\'').count() % 2 == 1;
    }
    commands
}

/// The service of a walk, killed at its end.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself, with an error that the test tells.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the documents assume to be there.
fn furnish(folder: &Path) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        fs::write(path, text).expect("writable");
    };
    write("README.md", include_str!("../../README.md"));
    write("notes.md", "The Danube rises in the Black Forest. The Rhine flows to the North Sea.");
    write(
        "place.json",
        r#"{"type": "object", "properties": {"country": {"enum": ["Norway", "Sweden"]}}, "required": ["country"]}"#,
    );
    write("contract.txt", "The tenant pays 500 a month. What kind of contract is this?");
    write("labels.txt", "A lease\nA loan\n");
    write("answer.lark", "start: \"yes\" | \"no\"\n");
    write("texts/a.jsonl", "{\"text\": \"The Loire is the longest river of France.\"}\n");
    // Few, as a bench takes all.
    write(
        "plans/calibration/prompts.jsonl",
        "{\"text\": \"Name five rivers.\"}\n{\"text\": \"Name a lake.\"}\n",
    );
    write(".local/share/bash-completion/completions/.kept", "");
    symlink(default_model(), folder.join("model.gguf")).expect("a link");
    fs::create_dir(folder.join("bin")).expect("writable");
    symlink(env!("CARGO_BIN_EXE_yggc"), folder.join("bin/yggc")).expect("a link");
}

fn shell(folder: &Path, command: &str) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("set -o pipefail; PATH=$PWD/bin:$PATH; {command}")]).current_dir(folder);
    shell.env("HOME", folder).env("XDG_CACHE_HOME", folder.join("cache")).env_remove("YGGC_API_KEY");
    shell.stdin(Stdio::null());
    shell
}

#[test]
#[ignore = "takes half an hour: profiles have their default budgets"]
fn every_documented_command_runs_from_an_empty_cache() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    furnish(at);
    let mut serving = None;
    let mut run = 0;
    for command in DOCUMENTS.into_iter().flat_map(commands) {
        if ELSEWHERE.iter().any(|(beginning, _)| command.starts_with(beginning)) {
            continue;
        }
        let typed = command.replace("cargo run --release -- ", "yggc ").replace("dot -Tsvg", "cat");
        let typed = typed.replace("DRAFTER", "model.gguf").replace("MODEL", "model.gguf");
        let typed = typed.split(" # ").next().unwrap_or_default().trim_end().trim_end_matches('&');
        run += 1;
        if typed.starts_with("yggc serve") {
            drop(serving.take());
            serving = Some(Serving(shell(at, &format!("exec {typed}")).spawn().expect("bash starts")));
            // The first use of a drafter or a plan measures for a minute.
            let is_up = || shell(at, "curl -sf http://127.0.0.1:8080/health").output().expect("bash starts");
            let came = (0..200).any(|_| {
                thread::sleep(Duration::from_secs(1));
                is_up().status.success()
            });
            assert!(came, "{typed}: it does not answer");
            continue;
        }
        // A chat has somebody at it.
        let is_chat = typed == "yggc run" || typed == "yggc run -m model.gguf";
        let typed =
            if is_chat { format!("echo hello | {typed}") } else { typed.replace("curl ", "curl -sSf ") };
        let output = shell(at, &typed).output().expect("bash starts");
        assert!(output.status.success(), "$ {typed}\n{}", String::from_utf8_lossy(&output.stderr));
        let (made, other) = (at.join("here.plan"), at.join("there.plan"));
        if made.exists() && !other.exists() {
            fs::copy(made, other).expect("writable");
        }
    }
    assert!(run > 40, "{run} commands were found");
}

#[test]
fn commands_are_found_with_what_is_quoted_in_them() {
    let document = "```sh\na 'b\nc' d\n\ne\n```\ntext\n```sh\nf\n```\n";
    assert_eq!(commands(document), ["a 'b\nc' d", "e", "f"]);
    let all: Vec<String> = DOCUMENTS.into_iter().flat_map(commands).collect();
    assert!(all.iter().any(|command| command.starts_with("curl") && command.ends_with("3}'")), "{all:?}");
}

/// What CI sees of the walk: the files that commands read are furnished.
#[test]
fn files_that_commands_read_are_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    furnish(folder.path());
    let mut read = 0;
    for command in DOCUMENTS.into_iter().flat_map(commands) {
        let words: Vec<&str> = command.split_whitespace().collect();
        for (option, file) in words.windows(2).map(|two| (two[0], two[1])) {
            let reads =
                ["--json-schema", "--grammar", "--prompts", "--text-file", "--prompt-file", "--options-file"];
            if reads.contains(&option) {
                read += 1;
                assert!(
                    folder.path().join(file).exists(),
                    "`{command}` reads `{file}`, which nothing furnishes"
                );
            }
        }
    }
    assert!(read >= 5, "{read} files were found");
}
