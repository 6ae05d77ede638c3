//! The chat of `yggc run`: through a pipe, and through a terminal with a person at it.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use yggc::model::synthetic::SyntheticSpec;

use crate::{
    program::{success, with_input},
    tiny_commands::{self as tiny, on_tiny},
};

/// A chat through a pipe.
fn piped(lines: &str, arguments: &[&str]) -> Output {
    typed(lines, &[&["--chat"], arguments].concat())
}

/// `run` with text on its standard input.
fn typed(lines: &str, arguments: &[&str]) -> Output {
    let mut command = on_tiny("run");
    command.args(["-n", "6", "--no-spec"]).args(arguments).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    with_input(&mut command, lines)
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
fn a_piped_text_is_one_prompt() {
    let prompt = success(&typed("hello\nand you\n", &["-p", "hello\nand you\n"]));
    for arguments in [&[][..], &["-p", "-"], &["--prompt-file", "-"]] {
        assert_eq!(success(&typed("hello\nand you\n", arguments)), prompt, "{arguments:?}");
    }
    assert!(crate::program::failure(&typed("", &[]), 3).contains("--chat"));
}

#[test]
fn a_block_is_one_message_and_settings_hold_from_then_on() {
    let once = success(&piped("\"\"\"hello\nand you\"\"\"\n", &[]));
    assert_eq!(success(&typed("hello\nand you", &[])), once);
    assert_eq!(success(&piped("\"\"\"\nhello\nand you\n\"\"\"\n/exit\nhello\n", &[])), once);
    let output = piped("/set n 2\nhello\n/stats\n/set n none\n/set top-p 7\n/set\n", &[]);
    let said = stderr(&output);
    for part in ["tokens     2 in", "n                   none", "top-p: expected", "ended      at the limit"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn an_answer_that_was_cut_off_says_so_and_how_it_goes_on() {
    let said = stderr(&typed("", &["-p", "hello"]));
    assert!(said.contains("cut off after 6 tokens, as -n says"), "{said}");
    let mut unlimited = on_tiny("run");
    unlimited.args(["-p", "hello", "--no-spec", "--logit-bias", "2-100", "--context", "60"]);
    let output = unlimited.output().expect("yggc starts");
    success(&output);
    assert!(stderr(&output).contains("the context is full; --context N"), "{}", stderr(&output));
}

#[test]
fn the_oldest_turns_make_room_in_a_full_context_unless_told_otherwise() {
    let line = format!("{}\n", "words and more ".repeat(6));
    let output = piped(&line.repeat(6), &[]);
    success(&output);
    let said = stderr(&output);
    assert!(said.contains("turns were dropped") && !said.contains("not answered"), "{said}");
    let said = stderr(&piped(&format!("/set drop off\n{}", line.repeat(8)), &[]));
    assert!(said.contains("not answered") && !said.contains("were dropped"), "{said}");
}

#[test]
fn the_conversation_is_known_in_the_next_turn_and_what_it_shares_is_kept() {
    let output = piped("hello\nand you\n/stats\n", &[]);
    let said = stderr(&output);
    assert!(said.contains(" of the request before"), "{said}");
}

/// Writes a model whose answers never end by themselves: its head has nothing for control tokens, so others always have
/// higher logits.
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
    let cache = tempfile::tempdir().expect("a temporary folder");
    success(&python.env("XDG_CACHE_HOME", cache.path()).output().expect("python3 starts"));
    let history = fs::read_to_string(cache.path().join("yggc/chat_history")).expect("the lines are kept");
    assert!(history.contains("hello") && history.contains("/nonsense"), "{history}");
}
