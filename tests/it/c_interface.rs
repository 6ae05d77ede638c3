//! The C interface by programs in C: the one of `docs/embedding.md`, and one that tries everything else
//! (`c_interface.c`).

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use crate::{
    program::{success, yggc},
    tiny_commands::{drafting_plan, json, model, on_tiny},
};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put `libygg.so`, which it builds with these tests.
fn libraries() -> PathBuf {
    let tests = std::env::current_exe().expect("the tests run from a file");
    let folder = tests.parent().expect("which is in a folder").to_owned();
    assert!(folder.join("libygg.so").exists(), "no libygg.so beside {}", tests.display());
    folder
}

/// What is documented of the C interface.
fn document() -> String {
    fs::read_to_string(repository().join("docs/embedding.md")).expect("there is one")
}

/// The documented compile line, for the library that is here.
fn compile(source: &Path, program: &Path, more: &[&str]) {
    let document = document();
    let line = document.lines().find(|line| line.starts_with("cc ")).expect("it says how to compile");
    let [source, program, libraries] =
        [source, program, &libraries()].map(|path| path.to_str().expect("UTF-8").to_owned());
    let (mut replaced, mut command) = (0, Command::new("cc"));
    for word in line.split_whitespace().skip(1) {
        let word = match word {
            "chat.c" => source.clone(),
            "chat" => program.clone(),
            other => other.replace("target/release", &libraries),
        };
        replaced += usize::from(!line.contains(&word));
        command.arg(word);
    }
    assert_eq!(replaced, 4, "source, program and twice the library: {line}");
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]).args(more).current_dir(repository());
    success(&command.output().expect("cc starts"));
}

/// The test program with arguments.
fn interface(arguments: &[&str]) -> Output {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_interface");
        compile(&repository().join("tests/it/c_interface.c"), &program, &["-pthread"]);
        program
    });
    Command::new(program).args(arguments).output().expect("the program starts")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn the_documented_program_answers_as_yggc_run_does_and_ends_with_its_codes() {
    let document = document();
    let (_, program) = document.split_once("```c\n").expect("it has a program in C");
    let (program, _) = program.split_once("```").expect("which ends");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, chat) = (folder.path().join("chat.c"), folder.path().join("chat"));
    fs::write(&source, program).expect("writable");
    compile(&source, &chat, &[]);

    let question = "one and one and one";
    let expected = yggc().arg("run").arg("-m").arg(model()).args(["-p", question, "--no-spec"]).output();
    let expected = success(&expected.expect("yggc starts"));
    let said = Command::new(&chat).arg(model()).arg(question).output().expect("the program starts");
    assert!(expected.len() > 20, "{expected:?}");
    assert_eq!(success(&said), expected);

    let said = Command::new(&chat).args(["/nowhere/model.gguf", question]).output().expect("it starts");
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(3), "{text}");
    assert!(text.contains("/nowhere/model.gguf"), "{text}");
}

#[test]
fn tokens_are_those_of_the_program_with_a_plan_and_without() {
    let expected =
        json(on_tiny("run").args(["-p", "one and one and one", "-n", "40", "--json", "--no-spec"]));
    let ids = expected["token_ids"].as_array().expect("a list");
    let expected: String = ids.iter().map(|id| format!("{id}\n")).collect();
    assert!(ids.len() > 10, "{expected}");

    let plain = success(&interface(&["answer", path(model())]));
    assert_eq!(plain, format!("{expected}none, no plan\n"));
    let planned = success(&interface(&["answer", path(model()), path(drafting_plan())]));
    assert_eq!(planned, format!("{expected}layer_skip, as planned\n"));
}

#[test]
fn answers_have_the_form_that_a_request_asks_for() {
    success(&interface(&["constrained", path(model())]));
}

#[test]
fn a_request_is_ended_by_its_callback_and_by_another_thread() {
    success(&interface(&["cancel", path(model())]));
}

#[test]
fn what_is_wrong_is_refused_with_a_status_and_a_text() {
    success(&interface(&["errors", path(model())]));
}

#[test]
fn the_library_says_its_version_and_the_header_is_cpp_too() {
    assert_eq!(success(&interface(&["version", "-"])), concat!(env!("CARGO_PKG_VERSION"), "\n"));
    let header = repository().join("src/c_api/ygg.h");
    let mut command = Command::new("g++");
    command.args(["-std=c++11", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", "c++"]);
    success(&command.arg(header).output().expect("g++ starts"));
}
