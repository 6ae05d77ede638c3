//! `/v1/responses`: what it answers is what the chat does, whole and as a stream of events.

use serde_json::{Value, json};

use super::{
    answered, planned, sampled,
    server::{Reply, chat},
    structured, text,
};

/// The events of a stream, each named as its data is typed and numbered from 0.
#[track_caller]
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.header("content-type"), Some("text/event-stream"), "{reply:?}");
    let blocks = reply.text.split("\n\n").filter(|block| !block.is_empty());
    let event = |(number, block): (usize, &str)| {
        let (name, data) = block.split_once('\n').expect("a name and data");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str(), "{block}");
        assert_eq!(data["sequence_number"], number, "{block}");
        data
    };
    blocks.enumerate().map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    kinds.dedup();
    kinds
}

/// A response but for what makes it this one.
fn without_ids(response: &Value) -> Value {
    let mut response = response.clone();
    response["id"] = Value::Null;
    response["created_at"] = Value::Null;
    for item in response["output"].as_array_mut().expect("items") {
        item["id"] = Value::Null;
        item["call_id"] = Value::Null;
    }
    // What the second of two equal requests finds of the first.
    response["usage"]["input_tokens_details"] = Value::Null;
    response
}

#[test]
fn a_response_says_what_the_chat_does_whole_and_as_events() {
    let server = planned();
    let body = json!({"model": "tiny", "input": "one and one", "max_output_tokens": 40, "temperature": 0});
    for (body, chat) in
        [(body.clone(), chat("one and one", 40)), (sampled(body), sampled(chat("one and one", 40)))]
    {
        let expected = answered(&server.chat(&chat));
        let whole = answered(&server.post("/v1/responses", &body));
        assert_eq!((&whole["object"], &whole["store"]), (&json!("response"), &json!(false)));
        assert_eq!(whole["output"][0]["content"][0]["text"], text(&expected));
        let is_cut = expected["choices"][0]["finish_reason"] == "length";
        assert_eq!(whole["status"], if is_cut { "incomplete" } else { "completed" });
        assert_eq!(whole["incomplete_details"]["reason"] == "max_output_tokens", is_cut);
        assert_eq!(whole["usage"]["output_tokens"], expected["usage"]["completion_tokens"]);
        assert_eq!(whole["usage"]["total_tokens"], expected["usage"]["total_tokens"]);

        let mut body = body;
        body["stream"] = json!(true);
        let events = events(&server.post("/v1/responses", &body));
        let last = format!("response.{}", whole["status"].as_str().unwrap());
        assert_eq!(
            kinds(&events),
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                &last,
            ]
        );
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        let said: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(said, text(&expected));
        let response = &events.last().unwrap()["response"];
        assert_eq!(without_ids(response), without_ids(&whole));
        assert!(
            events
                .iter()
                .all(|event| event["item_id"].is_null() || event["item_id"] == response["output"][0]["id"])
        );
    }
    let route = "yggc_requests_total{route=\"/v1/responses\",status=\"200\"}";
    assert_eq!(server.metric(route), 4.0);
}

#[test]
fn a_response_keeps_its_format_and_refusals_name_its_fields() {
    let server = planned();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema, "strict": true});
    let body = json!({"input": "one", "max_output_tokens": 60, "text": {"format": format}});
    let answer = answered(&server.post("/v1/responses", &body));
    let said: Value =
        serde_json::from_str(answer["output"][0]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(said["ok"].is_boolean(), "{answer}");
    let long = "word ".repeat(300);
    for (field, code, body) in [
        ("input", json!("context_length_exceeded"), json!({"input": long})),
        (
            "text.format",
            Value::Null,
            json!({"input": "x", "text": {"format": {"type": "json_schema", "schema": {"type": "strang"}}}}),
        ),
        (
            "previous_response_id",
            json!("previous_response_not_found"),
            json!({"input": "x", "previous_response_id": "resp_1"}),
        ),
    ] {
        let refused = server.post("/v1/responses", &body);
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["param"], &error["code"]), (400, &json!(field), &code), "{error}");
    }
}

#[test]
fn calls_are_items_and_can_be_answered() {
    let (_folder, server) = structured::with_tools();
    let mut tools = structured::tools();
    for tool in tools.as_array_mut().unwrap() {
        *tool = tool["function"].take();
        tool["type"] = json!("function");
    }
    let mut body = json!({"input": "What is the weather?", "max_output_tokens": 120, "temperature": 0, "tools": tools,
        "tool_choice": {"type": "function", "name": "weather"}});
    let whole = answered(&server.post("/v1/responses", &body));
    let [call] = &whole["output"].as_array().unwrap()[..] else { panic!("{whole}") };
    assert_eq!(
        (&call["type"], &call["name"], &whole["status"]),
        (&json!("function_call"), &json!("weather"), &json!("completed"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["days"].is_u64(), "{arguments}");

    body["stream"] = json!(true);
    let events = events(&server.post("/v1/responses", &body));
    let of_call = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds(&events), of_call);
    let deltas = events.iter().filter(|event| event["type"] == of_call[3]);
    let streamed: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(streamed, call["arguments"].as_str().unwrap());
    assert_eq!(without_ids(&events.last().unwrap()["response"]), without_ids(&whole));

    body["stream"] = json!(false);
    body["tool_choice"] = json!("auto");
    body["max_output_tokens"] = json!(5);
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"});
    body["input"] = json!([{"role": "user", "content": "What is the weather?"}, call, result]);
    assert_eq!(answered(&server.post("/v1/responses", &body))["usage"]["output_tokens"], 5);
}
