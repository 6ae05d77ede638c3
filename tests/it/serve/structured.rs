//! `response_format` and tools over HTTP: answers are what they have to be, whole and as streams, whatever drafts.

use std::fs;

use serde_json::{Value, json};
use yggc::model::synthetic::SyntheticSpec;

use super::{
    answered, planned, sampled,
    server::{Server, chat},
    text,
};

/// A chat template that lays out tools as Hermes does.
const TEMPLATE: &str = "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}\
    Answer with <tool_call>{...}</tool_call>.<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": \
    {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

pub(super) fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "now"}},
    ])
}

#[test]
fn answers_have_the_asked_form_whatever_drafts() {
    let server = planned();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}, "word": {"enum": ["one", "two"]}},
                        "required": ["ok", "word"], "additionalProperties": false});
    for (format, is_it) in [
        (
            json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}}),
            (|text| {
                let value: Value = serde_json::from_str(text).unwrap();
                value["ok"].is_boolean() && value["word"].is_string()
            }) as fn(&str) -> bool,
        ),
        (json!({"type": "grammar", "syntax": "regex", "definition": "[ab]{4}"}), |text| text.len() == 4),
        (json!({"type": "grammar", "syntax": "lark", "definition": "start: \"yes\" | \"no\""}), |text| {
            ["yes", "no"].contains(&text)
        }),
        (json!({"type": "json_object"}), |text| text.starts_with('{')),
    ] {
        for is_hot in [false, true] {
            let mut body = chat("one and one", 40);
            if is_hot {
                body = sampled(body);
            }
            body["response_format"] = format.clone();
            body["drafter"] = json!("none");
            let expected = answered(&server.chat(&body));
            assert!(is_it(text(&expected)), "{format}: {expected}");
            for drafter in ["plan", "lookup", "layer_skip", "suffix"] {
                body["drafter"] = json!(drafter);
                let answer = answered(&server.chat(&body));
                assert_eq!(answer["choices"], expected["choices"], "{drafter}");
            }
        }
    }
    let raw = json!({"prompt": "one", "response_format": {"type": "grammar", "syntax": "regex", "definition": "ab+c"}});
    let answer = answered(&server.post("/v1/completions", &raw));
    assert!(answer["choices"][0]["text"].as_str().unwrap().starts_with("ab"), "{answer}");
}

/// A server of a model whose template knows tools, and the folder that the model is in.
pub(super) fn with_tools() -> (tempfile::TempDir, Server) {
    templated(TEMPLATE)
}

pub(super) fn templated(template: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = SyntheticSpec { context: 2048, ..SyntheticSpec::default() };
    spec.write_folder(folder.path()).expect("the model is written");
    let config = folder.path().join("tokenizer_config.json");
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    value["chat_template"] = json!(template);
    fs::write(&config, value.to_string()).unwrap();
    let server = Server::start(folder.path(), &["--no-spec"]);
    (folder, server)
}

#[test]
fn required_calls_are_made_whole_and_in_deltas_and_can_be_answered() {
    let (_folder, server) = with_tools();
    let mut body = chat("What is the weather?", 120);
    body["tools"] = tools();
    body["tool_choice"] = json!({"type": "function", "function": {"name": "weather"}});
    let answer = answered(&server.chat(&body));
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null),
        "{answer}"
    );
    let [call] = &choice["message"]["tool_calls"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("weather")));
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(
        ["Oslo", "Rome"].contains(&arguments["city"].as_str().unwrap()) && arguments["days"].is_u64(),
        "{arguments}"
    );

    body["stream"] = json!(true);
    let mut events = server.chat(&body).events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let streamed: String =
        deltas().filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str()).collect();
    assert_eq!(streamed, call["function"]["arguments"].as_str().unwrap());
    let named: Vec<&Value> = deltas()
        .map(|delta| &delta["tool_calls"][0]["function"]["name"])
        .filter(|name| name.is_string())
        .collect();
    assert_eq!(named, [&json!("weather")]);
    assert!(deltas().all(|delta| delta["content"].as_str().unwrap_or_default().is_empty()));
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    // Its call and the result in the history, and calls left to the model.
    body["stream"] = json!(false);
    body["tool_choice"] = json!("auto");
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"}));
    body["max_tokens"] = json!(5);
    let answer = answered(&server.chat(&body));
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
}

/// Whose template takes ids of nine characters alone.
#[test]
fn a_call_can_be_answered_where_a_template_is_particular_about_its_id() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/text/templates/mistral-v0.3.jinja");
    let (_folder, server) = templated(&fs::read_to_string(path).expect("a template of the tests"));
    let mut body = chat("What is the weather?", 120);
    body["tools"] = tools();
    body["tool_choice"] = json!({"type": "function", "function": {"name": "weather"}});
    let answer = answered(&server.chat(&body));
    let [call] = &answer["choices"][0]["message"]["tool_calls"].as_array().expect("calls")[..] else {
        panic!("{answer}")
    };
    let messages = body["messages"].as_array_mut().expect("messages");
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"}));
    let next = answered(&server.chat(&body));
    assert_eq!(next["choices"][0]["finish_reason"], "tool_calls", "{next}");
    assert!(next["usage"]["prompt_tokens"].as_u64() > answer["usage"]["prompt_tokens"].as_u64(), "{next}");
}

#[test]
fn a_model_whose_template_knows_no_tools_is_told_of_them() {
    let template = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let (_folder, server) = templated(template);
    let mut body = chat("What is the weather?", 120);
    (body["tools"], body["tool_choice"]) = (tools(), json!("required"));
    body["parallel_tool_calls"] = json!(false);
    let answer = answered(&server.chat(&body));
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let call = &choice["message"]["tool_calls"][0];
    assert!(["weather", "now"].contains(&call["function"]["name"].as_str().unwrap()), "{answer}");

    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"}));
    let laid_out = answered(&server.post("/tokenize", &body));
    assert_eq!(answered(&server.chat(&body))["usage"]["prompt_tokens"], laid_out["count"]);
    let text = answered(&server.post("/detokenize", &json!({"tokens": laid_out["tokens"]})));
    let text = text["prompt"].as_str().unwrap();
    for part in
        ["\"name\":\"weather\"", "<tool_call>\n{\"name\": ", "<|im_start|>user\n<tool_response>\nrain\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A model whose prompt ends with the mark of a thought, which it never ends: all that it says is a thought, unless the
/// client wants none told or a constraint makes the answer.
#[test]
fn thoughts_are_told_from_answers_whole_and_in_deltas() {
    let template = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ (message.content or '').split('</think>')[-1] }}\
        <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
    let (_folder, server) = templated(template);
    let mut body = chat("one and one", 12);
    let told = answered(&server.chat(&body));
    let message = &told["choices"][0]["message"];
    let thought = message["reasoning_content"].as_str().expect("a thought").to_owned();
    assert_eq!((&message["content"], thought.is_empty()), (&json!(""), false), "{told}");
    let details = &told["usage"]["completion_tokens_details"];
    assert_eq!(details["reasoning_tokens"], told["usage"]["completion_tokens"]);

    for untold in [json!({"reasoning_format": "none"}), json!({"separate_reasoning": false})] {
        let mut plain = body.clone();
        plain.as_object_mut().unwrap().extend(untold.as_object().unwrap().clone());
        let answer = answered(&server.chat(&plain));
        let message = &answer["choices"][0]["message"];
        assert_eq!(
            (text(&answer).trim(), message.get("reasoning_content")),
            (thought.trim(), None),
            "{answer}"
        );
    }

    (body["stream"], body["logprobs"]) = (json!(true), json!(true));
    body["stream_options"] = json!({"include_steps": true});
    let mut events = server.chat(&body).events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let choices = || chunks.iter().map(|chunk| &chunk["choices"][0]);
    let streamed: String =
        choices().filter_map(|choice| choice["delta"]["reasoning_content"].as_str()).collect();
    assert_eq!(streamed, thought);
    let noted = choices().filter_map(|choice| choice["logprobs"]["content"].as_array()).map(Vec::len);
    assert_eq!(noted.sum::<usize>(), 12, "every token is noted once");
    let told = chunks.iter().filter(|chunk| chunk.get("yggc").is_some()).count();
    assert_eq!(told, 13, "what steps did is told with every token, and at the end");

    let response =
        answered(&server.post(
            "/v1/responses",
            &json!({"input": "one and one", "max_output_tokens": 12, "temperature": 0}),
        ));
    let items: Vec<&Value> =
        response["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(items, [&json!("reasoning"), &json!("message")], "{response}");
    assert_eq!(response["output"][0]["content"][0]["text"], json!(thought));
    let again = json!({"input": [{"role": "user", "content": "one and one"}, response["output"][0], response["output"][1],
        {"role": "user", "content": "and one"}], "max_output_tokens": 2});
    answered(&server.post("/v1/responses", &again));

    let mut made = chat("one and one", 12);
    made["response_format"] = json!({"type": "grammar", "syntax": "regex", "definition": "[ab]{4}"});
    let answer = answered(&server.chat(&made));
    assert_eq!((text(&answer).len(), answer["choices"][0]["message"].get("reasoning_content")), (4, None));
}
