//! Several answers to a request, what an answer begins with, and what steps did.

use serde_json::{Value, json};

use super::{answered, planned, sampled, server::chat, text};
use crate::tiny_commands::{json as printed, on_tiny};

fn events(stream: &super::server::Reply) -> Vec<Value> {
    assert_eq!(stream.status, 200, "{stream:?}");
    let mut events = stream.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
}

/// The texts of a stream's answers.
fn streamed(events: &[Value], answers: usize) -> Vec<String> {
    let mut texts = vec![String::new(); answers];
    for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
        let piece = choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default();
        texts[choice["index"].as_u64().expect("an index") as usize].push_str(piece);
    }
    texts
}

#[test]
fn each_answer_is_that_of_its_own_prompt_and_seed() {
    let server = planned();
    let alone = |prompt: &str, seed: u32| {
        let mut body = sampled(json!({"prompt": prompt, "max_tokens": 12}));
        body["seed"] = json!(seed);
        answered(&server.post("/v1/completions", &body))
    };
    let mut body = sampled(json!({"prompt": ["one and one", "two"], "max_tokens": 12, "n": 3}));
    let several = answered(&server.post("/v1/completions", &body));
    let choices = several["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 6);
    let (mut prompt_tokens, mut output_tokens) = (0, 0);
    for (index, choice) in choices.iter().enumerate() {
        let single = alone(["one and one", "two"][index / 3], 7 + index as u32 % 3);
        assert_eq!((&choice["index"], &choice["text"]), (&json!(index), &single["choices"][0]["text"]));
        assert_eq!(choice["finish_reason"], single["choices"][0]["finish_reason"]);
        output_tokens += single["usage"]["completion_tokens"].as_u64().unwrap();
        prompt_tokens += if index % 3 == 0 { single["usage"]["prompt_tokens"].as_u64().unwrap() } else { 0 };
    }
    assert_ne!(choices[0]["text"], choices[1]["text"], "another seed");
    let usage = &several["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(prompt_tokens), &json!(output_tokens))
    );
    assert_eq!(usage["total_tokens"], prompt_tokens + output_tokens);

    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = events(&server.post("/v1/completions", &body));
    let texts: Vec<&str> = choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(streamed(&events, 6), texts);
    assert_eq!(events.last().unwrap()["usage"]["total_tokens"], usage["total_tokens"]);
    let ends = events.iter().filter(|event| event["choices"][0]["finish_reason"].is_string());
    assert_eq!(ends.count(), 6);
}

#[test]
fn a_chat_has_up_to_four_answers_in_one_request() {
    let server = planned();
    let mut body = sampled(chat("one and one", 8));
    body["n"] = json!(4);
    let several = answered(&server.chat(&body));
    let texts: Vec<&str> = several["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(texts.len(), 4);
    body["stream"] = json!(true);
    let events = events(&server.chat(&body));
    assert_eq!(streamed(&events, 4), texts);
    let openings = events.iter().filter(|event| event["choices"][0]["delta"]["role"] == "assistant");
    assert_eq!(openings.count(), 4);
    assert_eq!(server.metric("yggc_requests_total{route=\"/v1/chat/completions\",status=\"200\"}"), 2.0);
}

#[test]
fn a_prompt_is_repeated_before_its_answer_if_that_is_asked() {
    let server = planned();
    let mut body = json!({"prompt": "one and one", "max_tokens": 6, "temperature": 0});
    let bare = answered(&server.post("/v1/completions", &body))["choices"][0]["text"].clone();
    let whole = format!("one and one{}", bare.as_str().unwrap());
    body["echo"] = json!(true);
    let echoed = answered(&server.post("/v1/completions", &body));
    assert_eq!(echoed["choices"][0]["text"], whole);
    assert_eq!(echoed["usage"]["completion_tokens"], 6);
    let ids = answered(&server.post("/tokenize", &json!({"prompt": "one and one"})))["tokens"].clone();
    body["prompt"] = ids;
    let text = answered(&server.post("/v1/completions", &body))["choices"][0]["text"].clone();
    assert!(text.as_str().unwrap().ends_with(&whole), "{text}");
    body["prompt"] = json!(["one and one", "two"]);
    body["stream"] = json!(true);
    let texts = streamed(&events(&server.post("/v1/completions", &body)), 2);
    assert!(texts[0] == whole && texts[1].starts_with("two"), "{texts:?}");
}

#[test]
fn an_answer_can_be_begun_for_the_model() {
    let server = planned();
    let ask = printed(on_tiny("run").args(["-p", "one and one", "-n", "12", "--json", "--no-spec"]));
    let answer = ask["text"].as_str().unwrap();
    let begun: String = answer.chars().take(4).collect();
    let with = |last: Value| {
        let mut body = chat("one and one", 4);
        body["messages"] = json!([{"role": "user", "content": "one and one"}, last]);
        body
    };
    // The prompt is the question's, the generation prompt, and the text that is continued.
    let tokens = |body: &Value| answered(&server.post("/tokenize", body))["tokens"].clone();
    let plain = tokens(&chat("one and one", 1));
    let begun_message = json!({"role": "assistant", "content": begun});
    let mut body = with(begun_message.clone());
    let closed = tokens(&body);
    body["continue_final_message"] = json!(true);
    body["add_generation_prompt"] = json!(false);
    let continued = tokens(&body);
    let (plain, continued_ids) = (plain.as_array().unwrap(), continued.as_array().unwrap());
    assert!(continued_ids.len() > plain.len() && continued_ids.starts_with(plain), "{continued} {plain:?}");
    assert!(closed.as_array().unwrap().len() > continued_ids.len());
    let raw = json!({"prompt": continued, "max_tokens": 4, "temperature": 0});
    let expected = answered(&server.post("/v1/completions", &raw))["choices"][0]["text"].clone();
    assert_eq!(text(&answered(&server.chat(&body))), expected.as_str().unwrap());
    let mut prefix = begun_message;
    prefix["prefix"] = json!(true);
    assert_eq!(text(&answered(&server.chat(&with(prefix)))), expected.as_str().unwrap());

    for (part, change) in [
        ("add_generation_prompt", json!({"continue_final_message": true, "add_generation_prompt": true})),
        (
            "expected the last to be of the assistant",
            json!({"continue_final_message": true, "messages": [{"role": "user", "content": "a"}]}),
        ),
        (
            "messages[0].prefix",
            json!({"messages": [{"role": "assistant", "content": "a", "prefix": true}, {"role": "user", "content": "b"}]}),
        ),
    ] {
        let mut refused = body.clone();
        refused.as_object_mut().unwrap().remove("add_generation_prompt");
        refused.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let reply = server.chat(&refused);
        assert!(reply.status == 400 && reply.text.contains(part), "{part}: {reply:?}");
    }
}

#[test]
fn a_stream_tells_what_steps_did_if_it_is_asked() {
    let server = planned();
    let mut body = chat("one and one and one", 40);
    body["drafter"] = json!("lookup");
    body["stream"] = json!(true);
    let silent = server.chat(&body);
    assert!(!silent.text.contains("yggc"), "{silent:?}");
    body["stream_options"] = json!({"include_steps": true});
    let events = events(&server.chat(&body));
    assert_eq!(streamed(&events, 1), streamed(&self::events(&silent), 1));
    let about: Vec<&Value> =
        events.iter().map(|event| &event["yggc"]).filter(|about| !about.is_null()).collect();
    let (report, tokens) = about.split_last().expect("chunks");
    let report = &report["report"];
    assert_eq!(report["drafter"], "lookup");
    let drafted = tokens.iter().filter(|token| !token["drafters"].as_array().unwrap().is_empty());
    let drafted: Vec<_> = drafted.collect();
    assert!(drafted.iter().all(|token| token["drafters"] == json!(["lookup"])), "{drafted:?}");
    let steps: Vec<&Value> =
        tokens.iter().map(|token| &token["step"]).filter(|step| !step.is_null()).collect();
    assert_eq!(report["steps"], steps.len());
    let sum = |of: &dyn Fn(&Value) -> u64| steps.iter().map(|step| of(step)).sum::<u64>();
    assert_eq!(report["accepted"], sum(&|step| step["accepted"].as_u64().unwrap()));
    assert_eq!(report["drafted"], sum(&|step| step["rows"].as_u64().unwrap() - 1));
    // Each step's first token comes with the tree; the next step's root is the last token of this one.
    assert_eq!(drafted.len() as u64, report["accepted"].as_u64().unwrap());
    for step in steps {
        let tree = step["tree"].as_array().unwrap();
        assert_eq!(step["rows"], tree.len());
        assert!(tree[0]["parent"].is_null() && tree[0]["drafters"] == json!([]));
        for (place, node) in tree.iter().enumerate().skip(1) {
            let parent = node["parent"].as_u64().expect("a parent") as usize;
            assert!(parent < place && node["text"].is_string());
            let is_on_path = parent == 0 || tree[parent]["accepted"] == json!(true);
            assert!(is_on_path || node["accepted"] == json!(false), "{step}");
        }
        let accepted = tree.iter().filter(|node| node["accepted"] == json!(true));
        assert_eq!(step["accepted"], accepted.count());
    }
}
