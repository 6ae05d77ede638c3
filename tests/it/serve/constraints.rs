//! Constraints that would end or stop the service: they are refused by the limit that they exceed, or given up, and
//! others are answered meanwhile.

use serde_json::{Map, Value, json};
use yggc::model::synthetic::SyntheticSpec;

use super::{
    answered, planned,
    server::{Server, chat, status, wait},
};

fn with_schema(schema: &Value) -> Value {
    let mut body = chat("Hi", 2);
    body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    body
}

fn with_grammar(syntax: &str, definition: &str) -> Value {
    let mut body = chat("Hi", 2);
    body["response_format"] = json!({"type": "grammar", "syntax": syntax, "definition": definition});
    body
}

fn chain(count: usize) -> Value {
    let mut definitions: Map<String, Value> = (0..count)
        .map(|number| (format!("d{number}"), json!({"$ref": format!("#/$defs/d{}", number + 1)})))
        .collect();
    definitions.insert(format!("d{count}"), json!({"type": "null"}));
    json!({"$defs": definitions, "$ref": "#/$defs/d0"})
}

/// Its parser follows the forced text for ever.
fn endless() -> Value {
    with_grammar("lark", "start: /a+/ /a+/")
}

#[test]
fn constraints_that_overflowed_a_stack_or_took_minutes_are_refused_by_their_limit() {
    let server = planned();
    let properties: Map<String, Value> =
        (0..4_470).map(|number| (format!("p{number}"), json!({"type": "integer"}))).collect();
    let patterns: Map<String, Value> =
        (0..500).map(|number| (format!("^[a-z]{{{number}}}x$"), json!({"type": "integer"}))).collect();
    let optional = |count: usize| -> String {
        let rules = (0..count).map(|number| format!("r{number}: (\"a\" r{})?\n", number + 1));
        format!("start: r0\n{}r{count}: \"x\"\n", rules.collect::<String>())
    };
    let deep = (0..60).fold(json!({"type": "null"}), |inner, _| json!({"items": inner, "anyOf": [{}]}));
    for (body, of) in [
        (with_schema(&chain(631)), "more than 64 schemas or references for one value"),
        (with_schema(&chain(3_000)), "more than 64 schemas or references for one value"),
        (with_schema(&json!({"type": "object", "properties": properties})), "at most 1000 properties"),
        (with_schema(&json!({"type": "object", "patternProperties": patterns})), "more than 30"),
        (with_grammar("lark", &optional(3_000)), "at most 4000 rules and brackets"),
        (with_grammar("regex", &"(".repeat(1_000)), "at most 64 levels of brackets"),
        (with_grammar("regex", &"a".repeat(100_000)), "at most 32768 bytes"),
    ] {
        let reply = server.chat(&body);
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(reply.status == 400 && message.contains(of) && message.contains("; "), "{of}: {reply:?}");
        assert!(message.starts_with("response_format: "), "{message}");
    }
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": chain(631)}}]);
    let mut body = chat("Hi", 2);
    body["tools"] = tools;
    body["tool_choice"] = json!("required");
    assert_eq!(server.chat(&body).status, 400);
    // What fits the limits of a grammar is compiled on a stack that holds it, and deep bodies are refused before they
    // are read.
    for body in [with_grammar("lark", &optional(750)), with_schema(&chain(400)), with_schema(&deep)] {
        assert!([200, 400].contains(&server.chat(&body).status));
    }
    let body = format!("{{\"messages\": {}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let reply = server.post_with("/v1/chat/completions", &body, None);
    assert!(reply.status == 400 && reply.text.contains("nested at most 100 deep, found 50001"), "{reply:?}");
    answered(&server.chat(&chat("Hi", 2)));
}

#[test]
fn others_are_answered_while_constraints_are_compiled_and_after_their_clients_left() {
    let folder = tempfile::tempdir().expect("a folder");
    SyntheticSpec { context: 2048, ..SyntheticSpec::default() }.write_folder(folder.path()).expect("written");
    let server = Server::start(folder.path(), &["--no-spec"]);
    let mut waiting: Vec<_> = (0..3).map(|_| server.begin(&endless())).collect();
    // Neither a request without a constraint nor one with a cheap one waits for them.
    for _ in 0..3 {
        answered(&server.chat(&chat("Hi", 2)));
        answered(&server.chat(&with_grammar("regex", "[ab]{4}")));
        answered(&server.post("/tokenize", &json!({"prompt": "Hi"})));
    }
    for stream in &mut waiting {
        assert_eq!(status(stream), Some(400), "it is given up");
    }
    // As many as are compiled at once, and more that wait; all leave.
    let leaving: Vec<_> = (0..8).map(|_| server.begin(&endless())).collect();
    answered(&server.chat(&chat("Hi", 2)));
    drop(leaving);
    answered(&server.chat(&with_grammar("regex", "[ab]{4}")));
    let count = |code: u16| {
        server.metric(&format!("yggc_requests_total{{route=\"/v1/chat/completions\",status=\"{code}\"}}"))
    };
    // On a machine that is busy otherwise some may have been given up before they left.
    wait(|| count(499) + count(400) == 11.0, "the ends of all requests");
    assert!(count(499) >= 4.0, "{} left", count(499));
}
