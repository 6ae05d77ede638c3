//! What messages become for templates, and what is refused of them.

use serde_json::{Value, json};

use super::*;

fn json_text(value: &Json) -> String {
    serde_json::to_string(value).unwrap()
}

fn read(message: Value) -> Result<Message, String> {
    serde_json::from_str::<MessageBody>(&message.to_string()).unwrap().read()
}

fn arguments(sent: Value) -> Result<String, String> {
    let call =
        json!({"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": sent}});
    let message = read(json!({"role": "assistant", "content": null, "tool_calls": [call]}))?;
    assert_eq!(message.content, "");
    let Json::Array(calls) = &message.fields[0].1 else { panic!("{message:?}") };
    Ok(json_text(member(member(&calls[0], "function").unwrap(), "arguments").unwrap()))
}

#[test]
fn arguments_are_objects_or_the_text_that_they_are() {
    for (sent, expected) in [
        (json!(r#"{"b": 1, "a": 2}"#), r#"{"b":1,"a":2}"#),
        (json!({"b": 1}), r#"{"b":1}"#),
        (json!(""), "{}"),
        (json!(" \n\t"), "{}"),
        (json!(null), "{}"),
        (json!("null"), "{}"),
        (json!(r#"{"q": "ab"#), r#""{\"q\": \"ab""#),
        (json!("Oslo"), r#""Oslo""#),
        (json!("[1]"), r#""[1]""#),
        (json!("3"), r#""3""#),
        (json!("{} and more"), r#""{} and more""#),
    ] {
        assert_eq!(arguments(sent.clone()).as_deref(), Ok(expected), "{sent}");
    }
    for sent in [json!(3), json!([1]), json!(true)] {
        let refused = arguments(sent).unwrap_err();
        assert!(refused.contains("\"f\"") && refused.contains("as a text of JSON"), "{refused}");
    }
    let absent = json!({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]});
    let message = read(absent).unwrap();
    let expected = r#"[{"type":"function","function":{"name":"f","arguments":{}}}]"#;
    assert_eq!(json_text(&message.fields[0].1), expected);
}

#[test]
fn an_answer_is_taken_back_with_whatever_it_had() {
    for (message, content, fields) in [
        (json!({"role": "assistant", "content": null}), "", "[]"),
        (json!({"role": "assistant"}), "", "[]"),
        (json!({"role": "assistant", "content": []}), "", "[]"),
        (json!({"role": "assistant", "content": null, "tool_calls": []}), "", "[]"),
        (
            json!({"role": "assistant", "content": "x", "tool_calls": null, "function_call": null, "audio": null,
                   "refusal": null, "annotations": [], "tool_call_id": null, "name": null, "reasoning_content": null}),
            "x",
            "[]",
        ),
        (json!({"role": "assistant", "content": null, "refusal": "No."}), "No.", "[]"),
        (json!({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}), "No.", "[]"),
        (
            json!({"role": "assistant", "content": "x", "reasoning_content": "Well."}),
            "x",
            r#"[["reasoning_content","Well."]]"#,
        ),
        (json!({"role": "assistant", "content": "x", "reasoning": {"effort": "low"}}), "x", "[]"),
        (
            json!({"role": "tool", "tool_call_id": "c1", "name": "f", "content": [{"type": "text", "text": "1"},
                   {"type": "text", "text": "2"}]}),
            "12",
            r#"[["tool_call_id","c1"],["name","f"]]"#,
        ),
        (json!({"role": "tool", "content": "3"}), "3", "[]"),
        (json!({"role": "developer", "content": "x", "name": "n"}), "x", r#"[["name","n"]]"#),
    ] {
        let read = read(message.clone()).unwrap();
        assert_eq!(read.content, content, "{message}");
        let found: Vec<_> = read.fields.iter().map(|(name, value)| json!([name, value])).collect();
        assert_eq!(json!(found).to_string(), fields, "{message}");
    }
}

#[test]
fn what_has_no_meaning_here_is_refused_by_name() {
    for (message, part) in [
        (json!({"role": "user"}), "role user to have content"),
        (json!({"role": "user", "content": null}), "found none"),
        (json!({"role": "system"}), "found none"),
        (json!({"role": "tool", "content": null}), "role tool"),
        (json!({"role": "oracle", "content": "x"}), "oracle"),
        (json!({"role": "function", "content": "x"}), "function"),
        (json!({"role": "user", "content": [{"type": "image_url"}]}), "\"image_url\""),
        (json!({"role": "user", "content": [{"type": "text"}]}), "expected `text`"),
        (json!({"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}), "\"refusal\""),
        (json!({"role": "user", "content": "x", "tool_call_id": "c1"}), "role user"),
        (json!({"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}), "role user"),
        (json!({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}), "`tool_calls`"),
        (json!({"role": "assistant", "audio": {"id": "a"}}), "`audio`"),
    ] {
        let refused = read(message.clone()).unwrap_err();
        assert!(refused.contains(part), "{message}: {refused}");
    }
}
