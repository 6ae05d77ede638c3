//! Conversations as clients send them back: what answers had in them is taken, whole or cut.

use serde_json::{Value, json};

use super::{
    answered, planned,
    server::{Server, chat},
    structured::{templated, tools, with_tools},
};

/// The text of a conversation's layout.
fn layout(server: &Server, body: &Value) -> String {
    let tokens = answered(&server.post("/tokenize", body))["tokens"].clone();
    let text = answered(&server.post("/detokenize", &json!({"tokens": tokens})));
    text["prompt"].as_str().expect("a text").to_owned()
}

fn with_call(arguments: &Value) -> Value {
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}});
    let mut body = chat("What is the weather?", 4);
    body["tools"] = tools();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(
        json!({"role": "assistant", "content": null, "tool_calls": [call], "refusal": null, "audio": null,
        "function_call": null, "annotations": []}),
    );
    messages.push(json!({"role": "tool", "tool_call_id": "c1", "content": "rain"}));
    body
}

#[test]
fn arguments_of_any_kind_are_taken_back_and_laid_out_as_they_are() {
    let (_folder, server) = with_tools();
    for (arguments, written) in [
        (json!(""), "{}"),
        (json!("  "), "{}"),
        (Value::Null, "{}"),
        (json!({"city": "Oslo"}), r#"{"city": "Oslo"}"#),
        (
            json!(r#"{"days": 9007199254740993, "n": 18446744073709551615}"#),
            r#"{"days": 9007199254740993, "n": 18446744073709551615}"#,
        ),
        (json!(r#"{"city": "Os"#), r#""{\"city\": \"Os""#),
        (json!("Oslo"), r#""Oslo""#),
    ] {
        let body = with_call(&arguments);
        let text = layout(&server, &body);
        assert!(text.contains(&format!(r#""arguments": {written}"#)), "{arguments}: {text}");
        assert_eq!(answered(&server.chat(&body))["usage"]["completion_tokens"], 4);
        let item =
            json!({"type": "function_call", "call_id": "c1", "name": "weather", "arguments": arguments});
        let result = json!({"type": "function_call_output", "call_id": "c1", "output": "rain"});
        let question = json!({"role": "user", "content": "What is the weather?"});
        let response = json!({"input": [question, item, result], "max_output_tokens": 4, "temperature": 0});
        assert_eq!(answered(&server.post("/v1/responses", &response))["usage"]["output_tokens"], 4);
    }
    let refused = server.chat(&with_call(&json!(3)));
    assert!(refused.status == 400 && refused.text.contains("messages[1]"), "{refused:?}");
}

#[test]
fn a_call_that_the_limit_cut_off_can_be_sent_back() {
    let (_folder, server) = with_tools();
    let mut body = chat("What is the weather?", 120);
    (body["tools"], body["tool_choice"]) = (tools(), json!("required"));
    let mut cut = 0;
    for limit in (20..100).step_by(4) {
        body["max_tokens"] = json!(limit);
        let choice = answered(&server.chat(&body))["choices"][0].clone();
        let mut next = chat("What is the weather?", 2);
        next["tools"] = tools();
        let messages = next["messages"].as_array_mut().unwrap();
        messages.push(choice["message"].clone());
        for call in choice["message"]["tool_calls"].as_array().into_iter().flatten() {
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"}));
            let arguments = call["function"]["arguments"].as_str().unwrap();
            cut += usize::from(serde_json::from_str::<Value>(arguments).is_err());
        }
        answered(&server.chat(&next));
    }
    assert!(cut > 0, "no limit cut arguments");
}

#[test]
fn a_template_that_needs_objects_says_which_call_has_none() {
    let template = "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for call in message.tool_calls or [] %}\
        <tool_call>{% for name, value in call.function.arguments.items() %}{{ name }}={{ value }};{% endfor %}</tool_call>{% endfor %}\
        {{ message.content }}<|im_end|>\n{% endfor %}";
    let (_folder, server) = templated(template);
    let good = with_call(&json!(r#"{"n": 1}"#));
    assert!(layout(&server, &good).contains("n=1;"));
    for path in ["/v1/chat/completions", "/tokenize"] {
        let refused = server.post(path, &with_call(&json!("{\"city\": \"Os")));
        assert_eq!(refused.status, 400, "{refused:?}");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("template") && message.contains("arguments of the call of"), "{message}");
        assert!(message.contains("weather"), "{message}");
    }
}

#[test]
fn an_answer_of_nothing_is_taken_back() {
    let server = planned();
    for said in [
        json!({"role": "assistant", "content": null}),
        json!({"role": "assistant"}),
        json!({"role": "assistant", "content": "", "tool_calls": []}),
        json!({"role": "assistant", "content": [], "tool_calls": null}),
    ] {
        let mut body = chat("one", 2);
        body["messages"] =
            json!([{"role": "user", "content": "one"}, said, {"role": "user", "content": "two"}]);
        let mut empty = body.clone();
        empty["messages"][1] = json!({"role": "assistant", "content": ""});
        assert_eq!(layout(&server, &body), layout(&server, &empty), "{said}");
        answered(&server.chat(&body));
    }
    for (refused, part) in [
        (
            json!({"role": "user", "content": null}),
            "messages[1]: expected a message of role user to have content",
        ),
        (json!({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}), "tool_calls"),
    ] {
        let mut body = chat("one", 2);
        body["messages"].as_array_mut().unwrap().push(refused);
        let reply = server.chat(&body);
        assert!(reply.status == 400 && reply.text.contains(part), "{part}: {reply:?}");
    }
}
