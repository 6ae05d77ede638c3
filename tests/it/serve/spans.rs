//! Spans of requests, as a collector of OpenTelemetry gets them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::mpsc::{Receiver, channel},
    thread,
};

use serde_json::{Value, json};

use super::{
    answered,
    server::{PATIENCE, Server, chat},
};
use crate::{
    program::failure,
    tiny_commands::{model, on_tiny},
};

/// A collector: its address, and the spans that it gets with the head of their request.
fn collector() -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let (sender, spans) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).expect("a head") == 0 {
                    return;
                }
            }
            let lower = head.to_lowercase();
            let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
            let mut body = vec![0; length.expect("a length").parse().expect("a number")];
            stream.read_exact(&mut body).expect("a body");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.get_mut().write_all(answer).expect("it listens");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let resource = &body["resourceSpans"][0];
            for span in resource["scopeSpans"][0]["spans"].as_array().expect("spans") {
                let mut span = span.clone();
                span["resource"] = resource["resource"].clone();
                if sender.send((head.clone(), span)).is_err() {
                    return;
                }
            }
        }
    });
    (address, spans)
}

fn attribute<'s>(span: &'s Value, key: &str) -> &'s Value {
    let found = span["attributes"].as_array().expect("a list").iter().find(|found| found["key"] == key);
    let value = &found.unwrap_or_else(|| panic!("{key} is not in {span}"))["value"];
    value.as_object().and_then(|value| value.values().next()).expect("a value")
}

fn time(span: &Value, key: &str) -> u64 {
    span[key].as_str().expect("a text").parse().expect("nanoseconds")
}

#[test]
fn requests_are_spans_of_their_callers_trace_with_their_parts_in_them() {
    let (address, spans) = collector();
    let server = Server::start_with(model(), |command| {
        command.arg("--no-spec").env("OTEL_EXPORTER_OTLP_ENDPOINT", &address);
        command.env("OTEL_BSP_SCHEDULE_DELAY", "10").env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b");
        command.env("OTEL_SERVICE_NAME", "chat");
    });
    let next = || spans.recv_timeout(PATIENCE).expect("a span");
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let caller = ("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
    let body = chat("one and one", 12);
    let reply = server.post_as("/v1/chat/completions", &body, &[(caller.0, &caller.1)]);
    let usage = answered(&reply)["usage"].clone();
    // A part is over before the whole.
    let [(_, prefill), (_, decoding), (head, span)] = [next(), next(), next()];
    assert!(
        head.starts_with("POST /v1/traces ") && head.to_lowercase().contains("x-team: a b\r\n"),
        "{head}"
    );
    assert_eq!(attribute(&span["resource"], "service.name"), "chat");
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(trace), &json!("b7ad6b7169203331")));
    assert_eq!((&span["name"], &span["kind"]), (&json!("chat tiny"), &json!(2)));
    for (key, expected) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.request.model", json!("tiny")),
        ("gen_ai.request.max_tokens", json!("12")),
        ("gen_ai.request.temperature", json!(0.0)),
        ("gen_ai.usage.input_tokens", json!(usage["prompt_tokens"].to_string())),
        ("gen_ai.usage.output_tokens", json!(usage["completion_tokens"].to_string())),
        ("gen_ai.response.id", reply.json()["id"].clone()),
        ("http.route", json!("/v1/chat/completions")),
        ("http.response.status_code", json!("200")),
    ] {
        assert_eq!(attribute(&span, key), &expected, "{key}");
    }
    let first = attribute(&span, "gen_ai.latency.time_to_first_token").as_f64().expect("seconds");
    let whole = attribute(&span, "gen_ai.latency.e2e").as_f64().expect("seconds");
    assert!(first > 0.0 && first <= whole, "{first} {whole}");

    assert_eq!((&prefill["name"], &decoding["name"]), (&json!("prefill"), &json!("decoding")));
    for part in [&prefill, &decoding] {
        assert_eq!((&part["traceId"], &part["parentSpanId"]), (&span["traceId"], &span["spanId"]));
    }
    let times = [
        time(&span, "startTimeUnixNano"),
        time(&prefill, "startTimeUnixNano"),
        time(&prefill, "endTimeUnixNano"),
        time(&decoding, "endTimeUnixNano"),
        time(&span, "endTimeUnixNano"),
    ];
    assert!(times.is_sorted() && time(&decoding, "startTimeUnixNano") <= times[2], "{times:?}");
    assert_eq!(attribute(&decoding, "yggc.drafter"), "none");
    let reasons = attribute(&span, "gen_ai.response.finish_reasons");
    assert_eq!(reasons["values"], json!([{"stringValue": reply.json()["choices"][0]["finish_reason"]}]));

    // A caller that records nothing is followed; a refusal has no parts.
    let other = ("traceparent", format!("00-{trace}-b7ad6b7169203331-00"));
    answered(&server.post_as("/v1/chat/completions", &body, &[(other.0, &other.1)]));
    assert_eq!(server.post("/v1/completions", &json!({})).status, 400);
    let (_, refused) = next();
    assert_eq!((&refused["name"], &refused["parentSpanId"]), (&json!("text_completion"), &json!("")));
    assert_eq!(refused["status"]["code"].as_u64().unwrap_or_default(), 0, "{refused}");
    assert_eq!(attribute(&refused, "error.type"), "400");
    assert_ne!(refused["traceId"], trace);

    // What is not sent yet is sent at the end.
    let (address, spans) = collector();
    let mut server = Server::start_with(model(), |command| {
        command.arg("--no-spec").env("OTEL_EXPORTER_OTLP_ENDPOINT", &address);
        command.env("OTEL_BSP_SCHEDULE_DELAY", "600000");
    });
    answered(&server.post("/v1/responses", &json!({"input": "one", "max_output_tokens": 2})));
    server.signal("TERM");
    assert!(server.ended().success());
    let names: Vec<Value> =
        (0..3).map(|_| spans.recv_timeout(PATIENCE).expect("a span").1["name"].take()).collect();
    assert_eq!(names, ["prefill", "decoding", "chat tiny"]);
}

#[test]
fn a_variable_that_means_nothing_is_said() {
    // The host is of a network for documentation, so that each ends before it serves.
    let said = |name: &str, value: &str, code: i32| {
        let mut command = on_tiny("serve");
        command.args(["--no-spec", "--host", "192.0.2.1"]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env(name, value);
        failure(&command.output().expect("yggc starts"), code)
    };
    for (name, value, code) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[", 1),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", 3),
        // The SDK goes on without these, with a warning.
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", 1),
        ("OTEL_TRACES_SAMPLER", "sometimes", 1),
    ] {
        let said = said(name, value, code);
        assert!(said.contains(name) && said.contains(value), "{said}");
    }
}
