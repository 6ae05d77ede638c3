//! Paths other than generation: where things are, readiness, the version, tokens; and metrics by vLLM's names.

use serde_json::{Value, json};

use super::{
    answered, load, planned,
    server::{Server, chat, endless, wait},
};
use crate::tiny_commands::{json as printed, on_tiny};

#[test]
fn the_root_says_where_things_are_and_all_of_them_are_there() {
    let server = planned();
    let index = answered(&server.get("/"));
    assert_eq!((&index["name"], &index["model"]), (&json!("yggc"), &json!("tiny")));
    assert_eq!(index["version"], answered(&server.get("/version"))["version"]);
    assert_eq!(index["version"], env!("CARGO_PKG_VERSION"));
    let paths = index["paths"].as_object().expect("paths");
    assert!(paths.len() > 10, "{paths:?}");
    for (place, what) in paths {
        let (method, path) = place.split_once(' ').expect("a method");
        let path = path.replace("NAME", "tiny");
        let reply = match method {
            "GET" => server.get(&path),
            "POST" => server.post_with(&path, "nonsense", None),
            other => panic!("{other}"),
        };
        let expected = if method == "GET" { 200 } else { 400 };
        assert_eq!(reply.status, expected, "{place}: {reply:?}");
        assert!(!what.as_str().expect("text").is_empty());
    }
}

#[test]
fn embeddings_are_refused_with_the_reason() {
    let server = planned();
    let refused = server.post("/v1/embeddings", &json!({"model": "tiny", "input": "one"}));
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["code"]), (404, &json!("embeddings_not_supported")));
    assert!(error["message"].as_str().unwrap().contains("computes no embeddings"), "{error}");
}

#[test]
fn a_service_is_ready_while_a_request_would_be_taken() {
    let mut server = load::start(&["--queue", "0"]);
    let ready = |server: &Server| {
        let reply = server.get("/ready");
        (reply.status, reply.json()["status"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(ready(&server), (200, "ready".to_owned()));
    let running = server.begin(&endless());
    server.wait_for("yggc_requests_running", 1.0);
    assert_eq!((ready(&server), server.get("/health").status), ((503, "full".to_owned()), 200));
    server.signal("TERM");
    wait(|| ready(&server).1 == "draining", "the drain");
    assert_eq!(ready(&server), (503, "draining".to_owned()));
    drop(running);
    assert!(server.ended().success());
}

#[test]
fn texts_and_conversations_become_tokens_and_tokens_text() {
    let server = planned();
    let tokens = |body: Value| answered(&server.post("/tokenize", &body));
    let raw = printed(on_tiny("run").args(["-p", "one and one", "-n", "1", "--json", "--no-spec", "--raw"]));
    let plain = tokens(json!({"prompt": "one and one", "return_token_strs": true}));
    assert_eq!(plain["tokens"], raw["prompt_token_ids"]);
    let count = plain["tokens"].as_array().unwrap().len();
    assert_eq!((&plain["count"], &plain["max_model_len"]), (&json!(count), &json!(256)));
    assert_eq!(plain["token_strs"].as_array().unwrap().len(), count);
    let laid_out = printed(on_tiny("run").args(["-p", "one and one", "-n", "1", "--json", "--no-spec"]));
    let messages = json!([{"role": "user", "content": "one and one"}]);
    let conversation = tokens(json!({"model": "tiny", "messages": messages}));
    assert_eq!(conversation["tokens"], laid_out["prompt_token_ids"]);
    let open = tokens(json!({"messages": messages, "add_generation_prompt": false}));
    assert!(open["count"].as_u64() < conversation["count"].as_u64(), "{open} {conversation}");

    // The layout as text is a raw prompt of the same tokens.
    let text = answered(&server.post("/detokenize", &json!({"tokens": conversation["tokens"]})));
    let text = text["prompt"].as_str().unwrap();
    assert!(text.contains("one and one"), "{text}");
    assert_eq!(
        tokens(json!({"prompt": text, "add_special_tokens": false}))["tokens"],
        conversation["tokens"]
    );

    for (path, part, body) in [
        ("/tokenize", "found neither", json!({})),
        ("/tokenize", "found both", json!({"prompt": "a", "messages": messages})),
        ("/tokenize", "messages", json!({"messages": []})),
        ("/tokenize", "prompt", json!({"prompt": 3})),
        ("/detokenize", "tokens: expected ids below", json!({"tokens": [4_000_000]})),
        ("/detokenize", "tokens", json!({"tokens": "a"})),
        ("/detokenize", "tokens", json!({})),
    ] {
        let refused = server.post(path, &body);
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains(part), "{part}: {refused:?}");
    }
    let other = json!({"model": "other", "prompt": "a", "tokens": [1]});
    assert_eq!(
        (server.post("/tokenize", &other).status, server.post("/detokenize", &other).status),
        (404, 404)
    );
}

#[test]
fn metrics_go_by_vllms_names_too() {
    let server = planned();
    let mut body = chat("one and one and one", 40);
    body["drafter"] = json!("lookup");
    let usage = answered(&server.chat(&body))["usage"].clone();
    // The decoder ends a request when it looks for the next.
    server.wait_for("yggc_requests_running", 0.0);
    let theirs = |name: &str, labels: &str| {
        server.metric(&format!("vllm:{name}{{model_name=\"tiny\",engine=\"0\"{labels}}}"))
    };
    let ours = |name: &str| server.metric(&format!("yggc_{name}"));
    for name in ["num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"] {
        assert_eq!(theirs(name, ""), 0.0, "{name}");
    }
    assert_eq!(theirs("prompt_tokens_total", ""), usage["prompt_tokens"].as_f64().unwrap());
    assert_eq!(theirs("generation_tokens_total", ""), usage["completion_tokens"].as_f64().unwrap());
    assert_eq!(theirs("prefix_cache_queries_total", ""), theirs("prompt_tokens_total", ""));
    for name in [
        "time_to_first_token_seconds_count",
        "request_time_per_output_token_seconds_count",
        "request_queue_time_seconds_count",
        "e2e_request_latency_seconds_count",
    ] {
        assert_eq!(theirs(name, ""), 1.0, "{name}");
    }
    assert_eq!(theirs("request_success_total", ",finished_reason=\"length\""), 1.0);
    let drafts = theirs("spec_decode_num_drafts_total", "");
    assert!(drafts > 0.0 && drafts == ours("depth_offered_total{depth=\"1\"}"));
    let accepted = theirs("spec_decode_num_accepted_tokens_total", "");
    assert!(theirs("spec_decode_num_draft_tokens_total", "") >= drafts.max(accepted));
    let at = |position: usize| {
        let labels = format!(",position=\"{position}\"");
        theirs("spec_decode_num_accepted_tokens_per_pos_total", &labels)
    };
    // How many that are, the guard decides by the clock.
    assert_eq!((0..64).map(at).sum::<f64>(), accepted);
    assert_eq!(at(0), ours("depth_accepted_total{depth=\"1\"}"));
}

#[test]
fn the_cache_is_used_while_a_request_runs() {
    let server = load::start(&[]);
    let used = || server.metric("vllm:kv_cache_usage_perc{model_name=\"tiny\",engine=\"0\"}");
    let running = server.begin(&endless());
    wait(|| used() > 0.0, "the cache to fill");
    assert!(used() < 1.0);
    drop(running);
    wait(|| used() == 0.0, "the request to end");
}
