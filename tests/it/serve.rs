//! `yggc serve` as clients see it: the real program over a tiny model, asked over HTTP.

use std::{fs, io::Write};

use serde_json::{Value, json};

mod choices;
mod choose;
mod config;
mod constraints;
mod conventions;
mod conversations;
mod drafters;
mod hostile;
mod keys;
mod load;
mod log_probs;
mod metrics;
mod numbers;
mod openai;
mod page;
mod prefixes;
mod prompts;
mod responses;
mod server;
mod slots;
mod soak;
#[cfg(feature = "otel")]
mod spans;
mod structured;

use self::server::{Reply, Server, chat, status};
use crate::{
    emulated_cuda::{exact_model, on_cuda},
    failing_device,
    program::failure,
    tiny_commands::{drafting_plan, json as printed, model, on_tiny},
};

/// A server with a plan.
fn planned() -> Server {
    Server::start(model(), &["--plan", drafting_plan().to_str().expect("UTF-8")])
}

const SAMPLED: [&str; 6] = ["--temperature", "0.9", "--top-p", "0.95", "--seed", "7"];

fn sampled(mut body: Value) -> Value {
    body["temperature"] = json!(0.9);
    body["top_p"] = json!(0.95);
    body["seed"] = json!(7);
    body
}

#[track_caller]
fn answered(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().expect("text")
}

#[test]
fn answers_are_those_of_run_for_every_drafter_and_seed() {
    let server = planned();
    let run = |arguments: &[&str]| {
        let mut command = on_tiny("run");
        printed(command.args(["-p", "one and one", "-n", "40", "--json", "--no-spec"]).args(arguments))
    };
    let (greedy, hot) = (run(&[]), run(&SAMPLED));
    let (raw, hot_raw) = (run(&["--raw"]), run(&[&["--raw"], &SAMPLED[..]].concat()));
    for drafter in ["plan", "none", "lookup", "layer_skip", "suffix"] {
        let mut body = chat("one and one", 40);
        body["drafter"] = json!(drafter);
        for (expected, body) in [(&greedy, body.clone()), (&hot, sampled(body))] {
            let answer = answered(&server.chat(&body));
            assert_eq!(text(&answer), expected["text"], "{drafter}");
            assert_eq!(answer["choices"][0]["finish_reason"], expected["finish_reason"]);
            let used = &answer["usage"];
            assert_eq!(used["completion_tokens"], expected["stats"]["tokens"]);
            assert_eq!(used["prompt_tokens"], expected["prompt_token_ids"].as_array().unwrap().len());
        }
        let body = json!({"prompt": "one and one", "max_tokens": 40, "temperature": 0, "drafter": drafter});
        for (expected, body) in [(&raw, body.clone()), (&hot_raw, sampled(body))] {
            let answer = answered(&server.post("/v1/completions", &body));
            assert_eq!(answer["choices"][0]["text"], expected["text"], "{drafter}");
            assert_eq!(answer["object"], "text_completion");
        }
        let ids = json!({"prompt": raw["prompt_token_ids"], "max_tokens": 40, "temperature": 0});
        let answer = answered(&server.post("/v1/completions", &ids));
        assert_eq!(answer["choices"][0]["text"], raw["text"], "a prompt of token ids");
    }
}

#[test]
fn a_device_that_fails_is_told_to_clients_and_to_whoever_watches() {
    let command = on_cuda("serve", exact_model(), &[(failing_device::AT, "12")]);
    let server = Server::start_as(command, |command| {
        command.arg("--no-spec");
    });
    let health = || server.get("/health");
    assert_eq!((health().status, &health().json()["status"]), (200, &json!("ok")));
    let body = json!({"prompt": "one and one", "max_tokens": 6, "temperature": 0});
    answered(&server.post("/v1/completions", &body));
    // A stream has begun when the device fails: the error is its last event but one.
    let long = json!({"prompt": "one and one", "max_tokens": 40, "temperature": 0, "stream": true});
    let stream = server.post("/v1/completions", &long);
    assert_eq!(stream.status, 200, "{stream:?}");
    let events = stream.events();
    let [.., error, done] = &events[..] else { panic!("{events:?}") };
    assert!(error.contains("the device failed while it decoded") && done == "[DONE]", "{events:?}");
    for _ in 0..2 {
        let refused = server.post("/v1/completions", &body);
        assert_eq!(refused.status, 503, "{refused:?}");
        assert_eq!(refused.json()["error"]["code"], "device_failed");
        assert!(refused.text.contains("open the model again"), "{refused:?}");
    }
    assert_eq!((health().status, &health().json()["status"]), (503, &json!("failed")));
    assert!(health().text.contains("error 719"));
}

#[test]
fn a_stream_says_what_a_whole_answer_does() {
    let server = planned();
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let is_chat = path.contains("chat");
        let mut body = sampled(chat("one and one", 40));
        if !is_chat {
            body["prompt"] = json!("one and one");
        }
        body["stop"] = json!("e");
        for log_probs in [false, true] {
            if log_probs {
                body["logprobs"] = if is_chat { json!(true) } else { json!(2) };
                if is_chat {
                    body["top_logprobs"] = json!(2);
                }
            }
            body["stream"] = json!(false);
            let whole = answered(&server.post(path, &body));
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            let stream = server.post(path, &body);
            assert_eq!(stream.header("content-type"), Some("text/event-stream"));
            let mut events = stream.events();
            assert_eq!(events.pop().as_deref(), Some("[DONE]"));
            let events: Vec<Value> =
                events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
            let (usage, pieces) = events.split_last().unwrap();
            assert_eq!(
                (&usage["choices"], &usage["usage"]["total_tokens"]),
                (&json!([]), &whole["usage"]["total_tokens"])
            );
            let choices: Vec<&Value> = pieces.iter().map(|piece| &piece["choices"][0]).collect();
            let said = |choice: &&Value| {
                let text = if is_chat { &choice["delta"]["content"] } else { &choice["text"] };
                text.as_str().unwrap_or_default().to_owned()
            };
            let choice = &whole["choices"][0];
            let expected = if is_chat { &choice["message"]["content"] } else { &choice["text"] };
            assert_eq!(choices.iter().map(said).collect::<String>(), *expected);
            let (last, before) = choices.split_last().unwrap();
            assert_eq!(last["finish_reason"], choice["finish_reason"]);
            assert!(before.iter().all(|choice| choice["finish_reason"].is_null()));
            assert!(pieces.iter().all(|piece| piece["id"] == pieces[0]["id"]));
            if is_chat {
                assert_eq!(pieces[0]["object"], "chat.completion.chunk");
                assert_eq!(choices[0]["delta"]["role"], "assistant");
            }
            let field = if is_chat { "content" } else { "tokens" };
            let noted = |choice: &Value| choice["logprobs"][field].as_array().cloned().unwrap_or_default();
            let streamed: Vec<Value> = choices.iter().flat_map(|choice| noted(choice)).collect();
            assert_eq!(streamed, noted(choice));
            assert_eq!(streamed.is_empty(), !log_probs);
        }
    }
}

#[test]
fn log_probabilities_come_in_openais_shape() {
    let server = planned();
    let mut body = chat("one and one", 5);
    (body["logprobs"], body["top_logprobs"]) = (json!(true), json!(3));
    let answer = answered(&server.chat(&body));
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 5);
    for token in content {
        let best = token["top_logprobs"].as_array().unwrap();
        assert_eq!((best.len(), &best[0]["token"]), (3, &token["token"]), "greedy");
        assert_eq!(best[0]["logprob"], token["logprob"]);
        assert!(token["logprob"].as_f64().unwrap() <= 0.0 && token["bytes"].is_array());
    }
    let body = json!({"prompt": "one", "max_tokens": 4, "temperature": 0, "logprobs": 2});
    let answer = answered(&server.post("/v1/completions", &body));
    let noted = &answer["choices"][0]["logprobs"];
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(noted[field].as_array().unwrap().len(), 4, "{field}");
    }
    assert_eq!(noted["text_offset"][0], 0);
}

#[test]
fn stop_strings_biases_penalties_and_turns_work_as_openai_says() {
    let server = planned();
    let whole = answered(&server.chat(&chat("one and one", 40)));
    let stop: String = text(&whole).chars().skip(5).take(2).collect();
    let mut body = chat("one and one", 40);
    body["stop"] = json!(["never said", stop]);
    let stopped = answered(&server.chat(&body));
    let before = text(&whole).split(&stop).next().unwrap();
    assert_eq!((text(&stopped), &stopped["choices"][0]["finish_reason"]), (before, &json!("stop")));
    assert!(stopped["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0);

    let mut body = chat("one and one", 1);
    (body["logprobs"], body["top_logprobs"]) = (json!(true), json!(1));
    let first = &answered(&server.chat(&body))["choices"][0]["logprobs"]["content"][0];
    let id = printed(on_tiny("run").args(["-p", "one and one", "-n", "1", "--json", "--no-spec"]));
    body["logit_bias"] = json!({id["token_ids"][0].to_string(): -100});
    let second = &answered(&server.chat(&body))["choices"][0]["logprobs"]["content"][0];
    assert_ne!(first["bytes"], second["bytes"]);
    assert_eq!(first["top_logprobs"], second["top_logprobs"]);
    let mut body = chat("one and one", 40);
    (body["presence_penalty"], body["frequency_penalty"]) = (json!(2), json!(2));
    assert_ne!(text(&answered(&server.chat(&body))), text(&whole));
}

#[test]
fn what_cannot_be_answered_is_refused_in_openais_shape() {
    let server = planned();
    let with = |field: &str, value: Value| {
        let mut body = chat("one", 4);
        body[field] = value;
        body
    };
    let long = "word ".repeat(300);
    for (status, part, body) in [
        (400, "n: expected a whole number from 1 to 4", with("n", json!(5))),
        (400, "n: expected a whole number from 1 to 4", with("n", json!(0))),
        (400, "best_of: expected it to equal `n`", with("best_of", json!(2))),
        (400, "temperature", with("temperature", json!(-1))),
        (400, "temperature", with("temperature", json!("hot"))),
        (400, "top_p: expected a number from 0 to 1", with("top_p", json!(1.5))),
        (400, "messages", with("messages", json!([]))),
        (400, "messages", with("messages", json!([{"role": "oracle", "content": "x"}]))),
        (400, "messages", with("messages", json!([{"role": "user", "content": [{"type": "image_url"}]}]))),
        (400, "maximum context length is 256", with("messages", json!([{"role": "user", "content": long}]))),
        (400, "guided_json", with("guided_json", json!({}))),
        (400, "repeat_penalty", with("repeat_penalty", json!(1.1))),
        (400, "max_tokens", with("max_tokens", json!(0))),
        (400, "max_tokens", with("max_tokens", json!(100_000))),
        (400, "stop", with("stop", json!([""]))),
        (400, "stop", with("stop", json!(vec!["a"; 99]))),
        (400, "top_logprobs", with("top_logprobs", json!(3))),
        (400, "logprobs", {
            let mut body = with("logprobs", json!(true));
            body["top_logprobs"] = json!(21);
            body
        }),
        (400, "logit_bias", with("logit_bias", json!({"one": 1}))),
        (400, "logit_bias", with("logit_bias", json!({"1": 101}))),
        (400, "logit_bias", with("logit_bias", json!({"999999": 1}))),
        (400, "presence_penalty", with("presence_penalty", json!(3))),
        (400, "repetition", with("repetition_penalty", json!(0))),
        (400, "seed", with("seed", json!(1.5))),
        (400, "tools", with("tools", json!([{"type": "function"}]))),
        (400, "response_format", with("response_format", json!({"type": "xml"}))),
        (
            400,
            "strang",
            with(
                "response_format",
                json!({"type": "json_schema", "json_schema": {"schema": {"type": "strang"}}}),
            ),
        ),
        (400, "tool_choice", with("tool_choice", json!("required"))),
        (400, "functions", with("functions", json!([{"name": "now"}]))),
        (400, "drafter", with("drafter", json!("oracle"))),
        (400, "retrieval", with("drafter", json!("retrieval"))),
        (404, "\"gpt-5\"", with("model", json!("gpt-5"))),
    ] {
        let refused = server.chat(&body);
        assert_eq!(refused.status, status, "{body}: {refused:?}");
        let error = &refused.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(part), "{part}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error.get("param").is_some() && error.get("code").is_some(), "{error}");
    }
    for (part, body) in [
        ("at most 64 prompts", json!({"prompt": vec!["a"; 65]})),
        ("at least one token", json!({"prompt": ["a", ""]})),
        ("at least one token", json!({"prompt": []})),
        ("at least one token", json!({"prompt": ""})),
        ("grammar", json!({"prompt": "a", "grammar": "root ::= \"a\""})),
        ("stream: expected false", json!({"prompt": "a", "echo": true, "logprobs": 1, "stream": true})),
        ("suffix: this model has no tokens", json!({"prompt": "a", "suffix": "b"})),
        ("best_of", json!({"prompt": "a", "best_of": 3})),
        ("token", json!({"prompt": [4_000_000]})),
        ("found no field `prompt`", json!({"messages": []})),
    ] {
        let refused = server.post("/v1/completions", &body);
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert!(refused.text.contains(part), "{part}: {refused:?}");
    }
    for bad in ["", "{", "[]", "null", "{\"messages\": 3}", "\u{0}", "{\"model\": \"tiny\"}"] {
        assert_eq!(server.post_with("/v1/chat/completions", bad, None).status, 400, "{bad:?}");
    }
    assert_eq!(server.get("/v1/engines").status, 404);
    assert_eq!(server.get("/v1/chat/completions").status, 405);
    assert_eq!(answered(&server.chat(&chat("one", 2)))["usage"]["completion_tokens"], 2);
}

#[test]
fn bodies_that_are_too_large_or_no_http_are_refused() {
    let server = Server::start(
        model(),
        &["--no-spec", "--max-body", "2000", "--max-output", "9", "--max-prompt", "40"],
    );
    let large = server.chat(&chat(&"x".repeat(4_000), 4));
    assert_eq!(large.status, 413, "{large:?}");
    // One that does not say how long it is.
    let mut chunked = server.connect();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let piece = format!("400\r\n{}\r\n", "x".repeat(1024));
    let sent = chunked.write_all(head.as_bytes());
    sent.and_then(|()| chunked.write_all(piece.repeat(3).as_bytes())).expect("it listens");
    assert_eq!(status(&mut chunked), Some(413));
    for nonsense in ["nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\u{0}\u{1}\u{2}\r\n\r\n"] {
        let mut stream = server.connect();
        stream.write_all(nonsense.as_bytes()).expect("it listens");
        assert!(matches!(status(&mut stream), None | Some(400 | 505)), "{nonsense:?}");
    }
    assert_eq!(server.chat(&chat("x", 10)).status, 400, "more output than is allowed");
    assert_eq!(server.chat(&chat(&"xyz ".repeat(30), 4)).status, 400, "a longer prompt than is allowed");
    let mut free = chat("x", 1);
    free.as_object_mut().unwrap().remove("max_tokens");
    free["logit_bias"] = json!({"2": -100});
    assert_eq!(answered(&server.chat(&free))["usage"]["completion_tokens"], 9);
}

#[test]
fn models_health_and_metrics_tell_of_the_service() {
    let server = planned();
    let models = answered(&server.get("/v1/models"));
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("tiny")));
    assert_eq!(answered(&server.get("/v1/models/tiny"))["object"], "model");
    assert_eq!(server.get("/v1/models/other").status, 404);
    assert_eq!(answered(&server.get("/health"))["status"], "ok");

    let mut body = chat("one and one and one", 40);
    body["drafter"] = json!("layer_skip");
    answered(&server.chat(&body));
    body["drafter"] = json!("none");
    let used = answered(&server.chat(&body))["usage"]["completion_tokens"].as_f64().unwrap();
    server.chat(&json!({}));
    assert_eq!(server.metric("yggc_requests_total{route=\"/v1/chat/completions\",status=\"200\"}"), 2.0);
    assert_eq!(server.metric("yggc_requests_total{route=\"/v1/chat/completions\",status=\"400\"}"), 1.0);
    assert_eq!(server.metric("yggc_output_tokens_total"), 2.0 * used);
    assert_eq!(server.metric("yggc_time_to_first_token_seconds_count"), 2.0);
    assert_eq!(server.metric("yggc_time_per_output_token_seconds_count"), 2.0);
    assert_eq!(server.metric("yggc_steps_total{drafter=\"none\"}"), used - 1.0);
    assert!(server.metric("yggc_steps_total{drafter=\"layer_skip\"}") > 0.0);
    assert!(server.metric("yggc_depth_offered_total{depth=\"1\"}") > 0.0);
    assert!(server.metric("yggc_average_accepted_length") >= 1.0);
    let off = "yggc_speculation_off_total{reason=\"switched off by the request\"}";
    assert_eq!((server.metric(off), server.metric("yggc_queue_length")), (1.0, 0.0));
    let chat = "yggc_requests_total{route=\"/v1/chat/completions\",status=\"200\"}";
    assert_eq!((server.metric(chat), server.metric("yggc_finished_total{reason=\"length\"}")), (2.0, 2.0));
    assert_eq!(server.metric("yggc_queue_time_seconds_count"), 2.0);
    assert_eq!(server.metric("yggc_request_duration_seconds_count"), 3.0);
    let text = server.get("/metrics");
    assert!(text.header("content-type").unwrap().starts_with("text/plain") && !text.text.contains("# EOF"));
    assert!(text.text.contains("yggc_build_info{version=\""), "{text:?}");
    let families = metrics::checked(&text.text);
    for (name, kind) in [("yggc_requests_total", "counter"), ("yggc_queue_time_seconds", "histogram")] {
        assert_eq!(families.get(name).map(String::as_str), Some(kind), "{families:?}");
    }
    let open = server.get_with("/metrics", &[("accept", "application/openmetrics-text; version=1.0.0")]);
    assert!(open.text.ends_with("# EOF\n") && open.header("content-type").unwrap().contains("openmetrics"));
}

#[test]
fn pages_of_other_sites_are_refused_unless_they_are_allowed() {
    let server =
        Server::start(model(), &["--no-spec", "--host", "localhost", "--cors-origin", "https://a.example"]);
    let status = |header: &str, value: &str| server.get_with("/health", &[(header, value)]).status;
    assert_eq!((status("host", "localhost:1"), status("host", "a.example")), (200, 200));
    assert_eq!((status("host", "b.example"), status("origin", "https://b.example")), (403, 403));
    let allowed = server.get_with("/health", &[("origin", "https://a.example")]);
    assert_eq!(
        (allowed.status, allowed.header("access-control-allow-origin")),
        (200, Some("https://a.example"))
    );
    assert_eq!(server.get("/health").header("access-control-allow-origin"), None);
}

#[test]
fn every_request_is_logged_if_asked_for() {
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = on_tiny("serve");
    command.args(["--no-spec", "--access-log", "--port", "0"]).stderr(log.reopen().expect("the same file"));
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("yggc starts");
    let mut url = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut url).expect("a line");
    let body = json!({"prompt": "one", "max_tokens": 2}).to_string();
    let asked =
        ureq::post(format!("{}/v1/completions", url.trim())).content_type("application/json").send(&body);
    assert_eq!(asked.expect("answered").status(), 200);
    child.kill().expect("SIGKILL is sent");
    child.wait().expect("it ends");
    let said = fs::read_to_string(log.path()).expect("UTF-8");
    assert!(said.lines().any(|line| line.starts_with("/v1/completions 200 0.")), "{said}");
}

#[cfg(not(feature = "otel"))]
#[test]
fn spans_that_this_build_cannot_send_are_said() {
    let said = |disabled: &str| {
        let mut command = on_tiny("serve");
        // Of a network for documentation, so that it ends before it serves.
        command.args(["--no-spec", "--host", "192.0.2.1"]).env("OTEL_SDK_DISABLED", disabled);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        failure(&command.output().expect("yggc starts"), 1)
    };
    let remark = |said: String| said.matches("--features otel").count();
    assert_eq!([said("false"), said("true")].map(remark), [1, 0]);
}

#[test]
fn an_address_that_is_taken_is_said() {
    let server = planned();
    let address = server.address().port().to_string();
    let mut command = on_tiny("serve");
    let said = failure(&command.args(["--no-spec", "--port", &address]).output().expect("yggc starts"), 1);
    assert!(said.contains("cannot listen on") && said.contains("--port"), "{said}");
}
