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
    let calls = Some((CallFormat::Hermes, tools.callable().to_vec(), tools.most_calls()));
    let form = AnswerForm { thinking: None, is_harmony: false, calls };
    let (mut streamed, mut whole) = (form.reader(), form.reader());
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

/// Functions that may be called; `find` has parameters of several kinds.
fn callable() -> Vec<Callable> {
    let kinds = r#"{"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "unit": {"enum": ["1", "2"]}}}"#;
    let kinds = Some(serde_json::from_str(kinds).unwrap());
    let others = ["a", "b", "now"].map(|name| (name.to_owned(), None));
    std::iter::once(("find".to_owned(), kinds)).chain(others).collect()
}

/// What is thought, text, and calls with their arguments, of an answer cut into parts of `len` bytes.
fn read_all(form: &AnswerForm, text: &str, len: usize) -> (String, String, Vec<(String, String)>) {
    let mut reader = form.reader();
    let mut start = 0;
    while start < text.len() {
        let mut end = (start + len).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        reader.read(&text[start..end]);
        start = end;
    }
    reader.end("");
    let has_calls = reader.reason(FinishReason::Stop) == "tool_calls";
    let (mut thought, mut said, mut calls) = (String::new(), String::new(), Vec::<(String, String)>::new());
    for piece in reader.pieces {
        match piece {
            Piece::Thought(text) => thought.push_str(&text),
            Piece::Text(text) => said.push_str(&text),
            Piece::Call { index, name } => {
                assert_eq!(index, calls.len());
                calls.push((name, String::new()));
            }
            Piece::Arguments { index, text } => calls[index].1.push_str(&text),
        }
    }
    assert_eq!(has_calls, !calls.is_empty());
    (thought, said, calls)
}

/// The same of an answer without thoughts.
fn read(format: CallFormat, text: &str, len: usize) -> (String, Vec<(String, String)>) {
    let is_harmony = format == CallFormat::Harmony;
    let form = AnswerForm { thinking: None, is_harmony, calls: Some((format, callable(), usize::MAX)) };
    let (thought, said, calls) = read_all(&form, text, len);
    assert_eq!(thought, "");
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
        (
            CallFormat::MistralArgs,
            "So.[TOOL_CALLS]a[ARGS]{\"x\": \"[TOOL_CALLS]\"}[TOOL_CALLS]b[CALL_ID]abc[ARGS]{}",
            "So.",
            vec![call("a", "{\"x\": \"[TOOL_CALLS]\"}"), call("b", "{}")],
        ),
        (
            CallFormat::Xml,
            "I look.\n\n<tool_call>\n<function=find>\n<parameter=q>\na < b\n\n</parameter>\n<parameter=n>\n3\n\
             </parameter>\n<parameter=either>\nnull\n</parameter>\n<parameter=unit>\n1\n</parameter>\n\
             <parameter=more>\n[1, {}]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n\
             </function>\n</tool_call>",
            "I look.",
            vec![
                call("find", r#"{"q":"a < b\n","n":3,"either":null,"unit":"1","more":[1,{}]}"#),
                call("now", "{}"),
            ],
        ),
        (
            CallFormat::Gemma,
            "<|tool_call>call:find{q:<|\"|>a, {b}<|\"|>,n:-3.5,more:{x:[true,null,<|\"|>c<|\"|>],y:{}}}<tool_call|>\
             <|tool_call>call:now{}<tool_call|>",
            "",
            vec![
                call("find", r#"{"q":"a, {b}","n":-3.5,"more":{"x":[true,null,"c"],"y":{}}}"#),
                call("now", "{}"),
            ],
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

#[test]
fn what_is_no_whole_call_of_another_form_is_text_as_it_was_written() {
    let deep = format!("<|tool_call>call:a{{x:{}{}}}<tool_call|>", "[".repeat(1000), "]".repeat(1000));
    for (format, text) in [
        (CallFormat::Xml, "<tool_call>\n<function=fly>\n</function>\n</tool_call>"),
        (CallFormat::Xml, "<tool_call>\n<function=a>\n<parameter=x>\n1\n</function>\n</tool_call>"),
        (CallFormat::Xml, "<tool_call>\n<function=a>\n<parameter=x>\n1\n"),
        (CallFormat::Xml, "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>"),
        (CallFormat::Gemma, "<|tool_call>call:fly{}<tool_call|>"),
        (CallFormat::Gemma, "<|tool_call>call:a{x:<|\"|>y}<tool_call|>"),
        (CallFormat::Gemma, "<|tool_call>call:a{x:1}}<tool_call|>"),
        (CallFormat::Gemma, &deep),
        (CallFormat::MistralArgs, "[TOOL_CALLS]fly[ARGS]{}"),
        (CallFormat::MistralArgs, "[TOOL_CALLS]a[ARGS][1]"),
        (CallFormat::MistralArgs, "[TOOL_CALLS]a[ARGS]{\"x\": 1"),
    ] {
        for len in [1, 2, 3, 7, 5000] {
            assert_eq!(read(format, text, len), (text.to_owned(), vec![]), "{text} by {len}");
        }
    }
}

#[test]
fn channels_are_told_apart() {
    let calls = Some((CallFormat::Harmony, callable(), usize::MAX));
    let form = AnswerForm { thinking: None, is_harmony: true, calls };
    let plain = AnswerForm { thinking: None, is_harmony: true, calls: None };
    let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    let think = "<|channel|>analysis<|message|>So <b>.<|end|>";
    let sent = "<|start|>assistant<|channel|>commentary to=functions.find <|constrain|>json<|message|>{\"q\": \"x\"}";
    let by_role = "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>";
    for (form, text, thought, said, calls) in [
        (
            &form,
            format!("{think}<|start|>assistant<|channel|>final<|message|>Yes.<|return|>"),
            "So <b>.",
            "Yes.",
            vec![],
        ),
        (&form, format!("{think}{sent}"), "So <b>.", "", vec![call("find", "{\"q\": \"x\"}")]),
        (&form, by_role.replacen("<|start|>assistant", "", 1), "", "", vec![call("now", "{}")]),
        (
            &form,
            "<|channel|>commentary<|message|>I look.<|end|>".to_owned() + sent,
            "",
            "I look.",
            vec![call("find", "{\"q\": \"x\"}")],
        ),
        (&plain, format!("{think}{sent}"), "So <b>.", "{\"q\": \"x\"}", vec![]),
        (&form, "<|channel|>analysis<|message|>cut <|en".to_owned(), "cut <|en", "", vec![]),
        (&form, format!("{think}<|start|>assistant<|channel|>fin"), "So <b>.", "", vec![]),
        (&form, "no channel".to_owned(), "", "no channel", vec![]),
        (&form, sent.replace("{\"q\": \"x\"}", "[1]"), "", "[1]", vec![]),
    ] {
        for len in [1, 2, 3, 7, 1000] {
            let expected = (thought.to_owned(), said.to_owned(), calls.clone());
            assert_eq!(read_all(form, &text, len), expected, "{text} by {len}");
        }
    }
}

#[test]
fn a_call_may_follow_what_was_thought() {
    let thinking = Some((ThinkingMarks::of_template("</think>").unwrap(), true));
    let form =
        AnswerForm { thinking, is_harmony: false, calls: Some((CallFormat::Xml, callable(), usize::MAX)) };
    let text = "I <tool_call> maybe.\n</think>\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>";
    for len in [1, 2, 3, 7, 1000] {
        let calls = vec![("now".to_owned(), "{}".to_owned())];
        assert_eq!(read_all(&form, text, len), ("I <tool_call> maybe.".to_owned(), String::new(), calls));
    }
}
