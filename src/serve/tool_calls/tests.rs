//! Calls of every family, however their text is cut.

use serde_json::Value;

use super::*;
use crate::serve::{
    answers::Endpoint,
    tools::{self, ToolsBody},
};

/// The deltas of an answer in Hermes' form and its whole message, with tools of these names.
fn answered(text: &str, names: &[&str], several: bool) -> (Vec<Value>, Value) {
    let tools: Vec<Value> =
        names.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
    let body = json!({"tools": tools, "parallel_tool_calls": several}).to_string();
    let tools = serde_json::from_str::<ToolsBody>(&body).unwrap().asked().unwrap().unwrap();
    let tokenizer = tools::tests::tokenizer();
    let frame = Frame::new(Endpoint::Chat, "m", 0, 0);
    let mut streamed = CallsOfAnswer::new(CallFormat::Hermes, &tools);
    let mut whole = CallsOfAnswer::new(CallFormat::Hermes, &tools);
    let mut deltas = Vec::new();
    for character in text.chars() {
        let piece = character.to_string();
        // A token that marks nothing.
        streamed.push(0, &piece, &tokenizer);
        whole.push(0, &piece, &tokenizer);
        deltas.extend(streamed.deltas(&frame));
    }
    streamed.end("");
    deltas.extend(streamed.deltas(&frame));
    let said = whole.finish("");
    let mut choice = frame.choice(&said, None, FinishReason::Stop, &tokenizer);
    whole.put(&frame, FinishReason::Stop, &mut choice);
    (deltas, choice)
}

#[test]
fn an_unknown_function_is_content_whole_and_in_deltas() {
    let text = "<tool_call>\n{\"name\": \"fly\", \"arguments\": {}}\n</tool_call>";
    let (deltas, choice) = answered(text, &["now"], true);
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(text), &json!("stop")));
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
    let content: String = deltas.iter().map(|delta| delta["content"].as_str().unwrap()).collect();
    assert_eq!(content, text);
    let (deltas, choice) = answered(text, &["fly"], true);
    assert_eq!(choice["message"]["tool_calls"][0]["function"], json!({"name": "fly", "arguments": "{}"}));
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert!(deltas.iter().all(|delta| delta["content"].is_null()), "{deltas:?}");
}

#[test]
fn one_call_is_given_where_one_is_asked_for() {
    let text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>".repeat(3);
    for (several, count) in [(true, 3), (false, 1)] {
        let (deltas, choice) = answered(&text, &["now"], several);
        assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), count);
        assert_eq!(choice["message"]["content"], Value::Null);
        let begun = deltas.iter().filter(|delta| delta["tool_calls"][0]["id"].is_string());
        assert_eq!(begun.count(), count, "{deltas:?}");
    }
}

/// Text, and calls with their arguments, of an answer cut into parts of `len` bytes.
fn read(format: CallFormat, text: &str, len: usize) -> (String, Vec<(String, String)>) {
    let names = ["find", "a", "b", "now"].map(str::to_owned).to_vec();
    let mut reader = CallReader::new(format, names);
    let mut pieces = Vec::new();
    for part in text.as_bytes().chunks(len) {
        reader.push(std::str::from_utf8(part).unwrap(), &mut pieces);
    }
    reader.finish(&mut pieces);
    let (mut said, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => said.push_str(&text),
            Piece::Call { index, name } => {
                assert_eq!(index, calls.len());
                calls.push((name, String::new()));
            }
            Piece::Arguments { index, text } => calls[index].1.push_str(&text),
        }
    }
    assert_eq!(reader.has_calls(), !calls.is_empty());
    (said, calls)
}

#[test]
fn calls_of_every_family_are_read_however_they_are_cut() {
    let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    for (format, text, said, calls) in [
        (CallFormat::Hermes, "Just text, a < b.", "Just text, a < b.", vec![]),
        (
            CallFormat::Hermes,
            "I look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"a}\\\"{\", \"n\": [1, \
             {}]}}\n</tool_call>",
            "I look.",
            vec![call("find", "{\"q\": \"a}\\\"{\", \"n\": [1, {}]}")],
        ),
        (
            CallFormat::Hermes,
            "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"x\": 1 \
             } , \"name\": \"b\"}\n</tool_call>\n",
            "",
            vec![call("a", "{}"), call("b", "{\"x\": 1 }")],
        ),
        (CallFormat::Hermes, "<tool_call>\n{\"name\": \"now\"}\n</tool_call>", "", vec![call("now", "{}")]),
        (CallFormat::Hermes, "<tool_call>no", "<tool_call>no", vec![]),
        (
            CallFormat::Hermes,
            "<tool_call>\n{\"x\": 1}\n</tool_call>",
            "<tool_call>\n{\"x\": 1}\n</tool_call>",
            vec![],
        ),
        (
            CallFormat::Llama3,
            " {\"name\": \"find\", \"parameters\": {\"q\": \"x\"}}",
            "",
            vec![call("find", "{\"q\": \"x\"}")],
        ),
        (CallFormat::Llama3, "{\"answer\": 3} it is", "{\"answer\": 3} it is", vec![]),
        (CallFormat::Llama3, "Hello {\"name\": 1}", "Hello {\"name\": 1}", vec![]),
        (
            CallFormat::Mistral,
            "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": [2]}}, {\"name\": \"b\", \"arguments\": {}}]",
            "",
            vec![call("a", "{\"x\": [2]}"), call("b", "{}")],
        ),
    ] {
        for len in [1, 2, 3, 7, 1000] {
            assert_eq!(read(format, text, len), (said.to_owned(), calls.clone()), "{text} by {len}");
        }
    }
}

#[test]
fn a_call_that_is_cut_off_gives_what_there_is() {
    let cut = "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"ab";
    assert_eq!(
        read(CallFormat::Hermes, cut, 4),
        (String::new(), vec![("find".to_owned(), "{\"q\": \"ab".to_owned())])
    );
    let early = "<tool_call>\n{\"name\": \"fi";
    assert_eq!(read(CallFormat::Hermes, early, 4), ("<tool_call>\n{\"name\": \"fi".to_owned(), vec![]));
}

#[test]
fn what_is_no_call_of_a_function_that_may_be_called_is_text_as_it_was_written() {
    let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    let hermes = |inner: &str| format!("<tool_call>\n{inner}\n</tool_call>");
    for inner in [
        r#"{"name": "fly", "arguments": {"to": "Oslo"}}"#,
        r#"{"arguments": {"to": "<tool_call>"}, "name": "fly"}"#,
        r#"{"name": "find", "arguments": "Oslo"}"#,
        r#"{"name": "find", "arguments": ["Oslo"]}"#,
        r#"{"name": "find", "arguments": 7}"#,
        r#"{"name": "find", "arguments": true}"#,
        r#"{"name": "find", "arguments": nothing}"#,
        r#"{"name": 3, "arguments": {}}"#,
        r#"{"name": "Find", "arguments": {}}"#,
        "",
        "find",
    ] {
        for (before, after) in [("", ""), ("I look.\n", "\nI see.")] {
            let text = format!("{before}{}{after}", hermes(inner));
            for len in [1, 2, 3, 7, 1000] {
                assert_eq!(read(CallFormat::Hermes, &text, len), (text.clone(), vec![]), "{text} by {len}");
            }
        }
    }
    let (good, bad) =
        (hermes(r#"{"name": "now", "arguments": null}"#), hermes(r#"{"name": "fly", "arguments": {}}"#));
    let llama = r#"{"name": "fly", "parameters": {"n": {}}} then"#;
    let mistral = r#"[TOOL_CALLS] [{"name": "a", "arguments": {}}, {"name": "fly", "arguments": {}}]"#;
    for (format, text, said, calls) in [
        (CallFormat::Hermes, format!("{good}\n{bad}"), bad.clone(), vec![call("now", "{}")]),
        (CallFormat::Hermes, format!("{bad}\n{good}"), bad.clone(), vec![call("now", "{}")]),
        (
            CallFormat::Hermes,
            hermes(r#"{"name": "now", "arguments": {"n": 12345678901234567890123}, "name": "fly"}"#),
            String::new(),
            vec![call("now", r#"{"n": 12345678901234567890123}"#)],
        ),
        (CallFormat::Llama3, llama.to_owned(), llama.to_owned(), vec![]),
        (
            CallFormat::Mistral,
            mistral.to_owned(),
            r#", {"name": "fly", "arguments": {}}]"#.to_owned(),
            vec![call("a", "{}")],
        ),
        (CallFormat::Mistral, "[TOOL_CALLS] []".to_owned(), "[TOOL_CALLS] []".to_owned(), vec![]),
    ] {
        for len in [1, 2, 3, 7, 1000] {
            assert_eq!(read(format, &text, len), (said.clone(), calls.clone()), "{text} by {len}");
        }
    }
}
