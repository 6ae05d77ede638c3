//! What requests of `/v1/responses` become, and what is refused of them.

use serde_json::json;
use yggc::engine::{Constraint, Conversation, Prompt, Role};

use super::*;
use crate::serve::{check::DEFAULTS, requests::Delivery};

fn read(body: &Value) -> Result<Asked, Refused> {
    asked(body.to_string().as_bytes(), &DEFAULTS).map_err(renamed)
}

fn conversation(asked: &Asked) -> &Conversation {
    let Prompt::Chat(conversation) = &asked.request.prompt else { panic!("{asked:?}") };
    conversation
}

#[test]
fn a_text_is_what_the_user_says() {
    let body = json!({"input": "x", "instructions": "Be brief.", "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.9,
        "seed": 3, "stream": true, "store": true, "metadata": {"a": "b"}, "user": "u", "tools": null, "drafter": "none"});
    let asked = read(&body).unwrap();
    let said: Vec<_> =
        conversation(&asked).messages.iter().map(|message| (message.role, &*message.content)).collect();
    assert_eq!(said, [(Role::System, "Be brief."), (Role::User, "x")]);
    assert_eq!(
        (asked.request.max_tokens, asked.request.sampling.seed, asked.drafter.as_str()),
        (7, 3, "none")
    );
    assert_eq!((asked.request.sampling.temperature, asked.request.sampling.top_p), (0.5, 0.9));
    assert_eq!(asked.delivery, Delivery::Stream { usage: false, steps: false });
    let head = asked.response.unwrap();
    assert_eq!(
        (&head["metadata"]["a"], &head["store"], &head["top_p"]),
        (&json!("b"), &json!(false), &json!(0.9))
    );
}

#[test]
fn items_become_messages_and_calls_belong_to_the_assistants_before_them() {
    let call = |id: &str| json!({"type": "function_call", "id": null, "call_id": id, "name": "f", "arguments": "{\"n\": 1}", "status": "completed"});
    let result =
        |id: &str, output: Value| json!({"type": "function_call_output", "call_id": id, "output": output});
    let parts = json!([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]);
    let said = json!([{"type": "output_text", "text": "I look.", "annotations": []}]);
    let body = json!({"input": [
        {"role": "developer", "content": "D"},
        {"type": "message", "role": "user", "content": parts},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": said},
        call("c1"), call("c2"), result("c1", json!("one")), result("c2", parts),
        call("c3"), result("c3", json!("three")),
    ], "tools": [{"type": "function", "name": "f", "description": "d", "strict": true, "parameters": {"type": "object"}}],
       "tool_choice": {"type": "function", "name": "f"}});
    let asked = read(&body).unwrap();
    let conversation = conversation(&asked);
    let calls = |place: usize| {
        let fields = &conversation.messages[place].fields;
        let calls = fields.iter().find(|(name, _)| name == "tool_calls");
        calls.map_or(0, |(_, calls)| if let Json::Array(calls) = calls { calls.len() } else { 0 })
    };
    let roles: Vec<_> = conversation.messages.iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]);
    assert_eq!([2, 5].map(calls), [2, 1]);
    let texts: Vec<_> = conversation.messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(texts, ["D", "ab", "I look.", "one", "ab", "", "three"]);
    let tool = conversation.tools[0].to_string();
    let nested = r#"{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"type":"object"}}}"#;
    assert_eq!(tool, nested, "in order");
    assert!(asked.tools.is_some());
}

#[test]
fn a_format_is_the_chats() {
    for (format, expected) in [
        (json!({"type": "text"}), None),
        (json!({"type": "json_object"}), Some(Constraint::JsonObject)),
        (
            json!({"type": "json_schema", "name": "x", "strict": true, "schema": {"type": "null"}}),
            Some(Constraint::JsonSchema(r#"{"type":"null"}"#.to_owned())),
        ),
        (
            json!({"type": "grammar", "syntax": "regex", "definition": "a+"}),
            Some(Constraint::Regex("a+".to_owned())),
        ),
    ] {
        let asked = read(&json!({"input": "x", "text": {"format": format}})).unwrap();
        assert_eq!(asked.request.constraint, expected);
    }
}

#[test]
fn what_cannot_be_kept_is_refused_by_its_name_here() {
    let with = |field: &str, value: Value| {
        let mut body = json!({"input": "x"});
        body[field] = value;
        body
    };
    for (field, part, body) in [
        ("input", "a text or a list of items", with("input", json!(3))),
        ("input", "at least one message", with("input", json!([]))),
        ("input", "role", with("input", json!([{"role": "oracle", "content": "x"}]))),
        ("input[0]", "`content`", with("input", json!([{"role": "user"}]))),
        (
            "input[1]",
            "`call_id`",
            with(
                "input",
                json!([{"role": "user", "content": "x"}, {"type": "function_call_output", "output": "x"}]),
            ),
        ),
        ("input[0]", "item_reference", with("input", json!([{"type": "item_reference", "id": "x"}]))),
        (
            "input[0]",
            "input_image",
            with("input", json!([{"role": "user", "content": [{"type": "input_image"}]}])),
        ),
        ("max_output_tokens", "at most 50", with("max_output_tokens", json!(99))),
        ("text.format.type", "found", with("text", json!({"format": {"type": "xml"}}))),
        ("text.verbosity", "low", with("text", json!({"verbosity": "low"}))),
        ("tools", "web_search", with("tools", json!([{"type": "web_search"}]))),
        ("tool_choice", "`tools`", with("tool_choice", json!("required"))),
        ("tool_choice", "found", with("tool_choice", json!({"type": "allowed_tools"}))),
        ("previous_response_id", "stored", with("previous_response_id", json!("resp_1"))),
        ("conversation", "stored", with("conversation", json!("conv_1"))),
        ("background", "stored", with("background", json!(true))),
        ("truncation", "auto", with("truncation", json!("auto"))),
        ("reasoning.effort", "setting", with("reasoning", json!({"effort": "low"}))),
        ("include", "log-probabilities", with("include", json!(["message.output_text.logprobs"]))),
        ("n", "several", with("n", json!(2))),
        ("input", "`messages` is no field", with("messages", json!([]))),
        ("guided_json", "setting", with("guided_json", json!({}))),
        ("temperature", "found", with("temperature", json!("hot"))),
    ] {
        let refused = read(&body).unwrap_err();
        let error = &refused.body()["error"];
        assert_eq!(error["param"], field, "{body}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(field) && message.contains(part), "{part}: {message}");
    }
    // What asks for nothing that is not so anyway is taken.
    for (field, value) in [
        ("previous_response_id", Value::Null),
        ("background", json!(false)),
        ("truncation", json!("disabled")),
        ("include", json!(["reasoning.encrypted_content"])),
        ("reasoning", json!({"effort": null, "summary": "auto"})),
        ("stream_options", json!({"include_obfuscation": true})),
    ] {
        read(&with(field, value)).unwrap();
    }
}

#[test]
fn items_of_answers_are_taken_back_as_a_chat_takes_them() {
    let call = |arguments: Value| json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments});
    let calls = |item: Value| {
        let asked = read(&json!({"input": [{"role": "user", "content": "x"}, item]})).unwrap();
        let calls = conversation(&asked).messages[1].fields[0].1.clone();
        serde_json::to_value(calls).unwrap()[0]["function"]["arguments"].clone()
    };
    for (sent, expected) in [
        (json!(""), json!({})),
        (json!(" "), json!({})),
        (Value::Null, json!({})),
        (json!("{\"n\": 9007199254740993}"), json!({"n": 9_007_199_254_740_993_u64})),
        (json!({"n": 1}), json!({"n": 1})),
        (json!("{\"n\": 1"), json!("{\"n\": 1")),
    ] {
        assert_eq!(calls(call(sent.clone())), expected, "{sent}");
    }
    let without = json!({"type": "function_call", "call_id": "c1", "name": "f", "status": "incomplete"});
    assert_eq!(calls(without), json!({}));
    for (content, expected) in [
        (Value::Null, ""),
        (json!([]), ""),
        (json!([{"type": "refusal", "refusal": "No."}]), "No."),
        (json!([{"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}]), "Yes."),
    ] {
        let item = json!({"type": "message", "role": "assistant", "content": content});
        let asked = read(&json!({"input": [{"role": "user", "content": "x"}, item]})).unwrap();
        assert_eq!(conversation(&asked).messages[1].content, expected, "{item}");
    }
}
