//! The chat of `yggc run`: through a pipe, and through a terminal with a person at it.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use yggc::model::synthetic::SyntheticSpec;

use crate::{
    program::success,
    tiny_commands::{self as tiny, on_tiny},
};

/// Lines through a pipe.
fn piped(lines: &str, arguments: &[&str]) -> Output {
    let mut child = on_tiny("run")
        .args(["-n", "6", "--no-spec"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("yggc starts");
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[test]
fn commands_are_no_messages() {
    let once = success(&piped("hello\n", &[]));
    let output = piped("/stats\nhello\n/stats\n/help\n/nonsense\n", &[]);
    assert_eq!(success(&output), once);
    let said = stderr(&output);
    for part in ["no answer yet", "tokens     6 in", "/reset", "no command /nonsense"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(success(&piped("hello\n/quit\nhello\n", &[])), once);
    assert_eq!(success(&piped("hello", &[])), once, "a last line may have no end");
    assert!(!said.contains("> "), "there is nobody to prompt: {said}");
}

#[test]
fn the_conversation_is_known_in_the_next_turn_and_what_it_shares_is_kept() {
    let output = piped("hello\nand you\n/stats\n", &[]);
    let said = stderr(&output);
    assert!(said.contains("tokens kept of the request before"), "{said}");
}

/// Writes a model whose answers never end by themselves: its head has nothing for control tokens, so others always have higher logits.
fn write_without_end(folder: &Path) {
    const CONTROL_TOKENS: usize = 3;
    let spec = SyntheticSpec { context: 60_000, tied: false, ..tiny::spec() };
    spec.write_folder(folder).expect("the model is written");
    let file = folder.join("model.safetensors");
    let mut bytes = fs::read(&file).expect("it is there");
    let (length, rest) = bytes.split_at_mut(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let (header, data) = rest.split_at_mut(usize::try_from(length).expect("a small file"));
    let header: serde_json::Value = serde_json::from_slice(header).expect("JSON");
    let offset =
        |end: usize| header["lm_head.weight"]["data_offsets"][end].as_u64().expect("an offset") as usize;
    let head = &mut data[offset(0)..offset(1)];
    let row = head.len() / spec.vocabulary;
    head[..CONTROL_TOKENS * row].fill(0);
    fs::write(file, bytes).expect("writable");
}

#[test]
fn a_person_edits_lines_and_ends_an_answer_without_ending_the_chat() {
    let model = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chatty");
    write_without_end(&model);
    let person = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/chat.py");
    let mut python = Command::new("python3");
    python.arg(person).arg(env!("CARGO_BIN_EXE_yggc")).arg("run").arg("-m").arg(&model);
    python.args(["--threads", "1", "--isa", "portable", "--no-spec", "-n", "50000", "--context", "60000"]);
    success(&python.output().expect("python3 starts"));
}
