//! Log-probabilities: the same whole and as a stream, for tokens that are parts of characters too.

use serde_json::{Value, json};

use super::{answered, planned, sampled, server::Server};

/// Characters of several bytes, which the tiny model's tokens are parts of.
fn body(pattern: &str) -> Value {
    let mut body = sampled(json!({"prompt": "one", "max_tokens": 40, "logprobs": 3}));
    body["response_format"] = json!({"type": "grammar", "syntax": "regex", "definition": pattern});
    body
}

/// The text and the lists of log-probabilities of a streamed completion.
fn streamed(server: &Server, body: &Value) -> (String, Value) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut events = server.post("/v1/completions", &body).events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let (mut text, mut lists) = (String::new(), json!({}));
    for event in &events {
        let choice = serde_json::from_str::<Value>(event).unwrap()["choices"][0].clone();
        text.push_str(choice["text"].as_str().unwrap());
        for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let more = choice["logprobs"][field].as_array().cloned().unwrap_or_default();
            let list = lists[field].as_array().cloned().unwrap_or_default();
            lists[field] = Value::from([list, more].concat());
        }
    }
    (text, lists)
}

#[test]
fn offsets_count_characters_of_the_answer_whole_and_streamed() {
    let server = planned();
    for (pattern, stop) in [
        ("[a\u{e9}\u{1f600}]{7}\u{1f600}", None),
        ("\u{e9}\u{1f600}bcd", Some("cd")),
        ("abc\u{e9}", Some("b")),
    ] {
        let mut body = body(pattern);
        if let Some(stop) = stop {
            body["stop"] = json!(stop);
        }
        let whole = answered(&server.post("/v1/completions", &body));
        let choice = &whole["choices"][0];
        let said: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
        let lists = &choice["logprobs"];
        assert_eq!(streamed(&server, &body), (said.iter().collect(), lists.clone()), "{pattern}");
        let tokens: Vec<&str> =
            lists["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
        let offsets: Vec<usize> =
            lists["text_offset"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap() as usize).collect();
        assert_eq!((offsets[0], offsets.is_sorted()), (0, true), "{lists}");
        assert!(stop.is_some() || tokens.iter().any(|token| token.starts_with("bytes:\\x")), "{tokens:?}");
        // A token that is text by itself stands where it says; the stop string after the answer.
        let whole: Vec<char> = said.iter().copied().chain(stop.unwrap_or_default().chars()).collect();
        for (token, at) in tokens.iter().zip(&offsets).filter(|(token, _)| !token.starts_with("bytes:")) {
            let rest: String = whole[*at..].iter().collect();
            assert!(
                rest.starts_with(token) || token.starts_with('<') || token.starts_with(&rest),
                "{token} at {at}: {rest}"
            );
        }
        for (top, token) in lists["top_logprobs"].as_array().unwrap().iter().zip(&tokens) {
            let top = top.as_object().unwrap();
            assert!(top.contains_key(*token) && (1..=4).contains(&top.len()), "{token}: {top:?}");
        }
    }
}

#[test]
fn tokens_are_told_by_id_where_that_is_asked_and_the_chosen_one_always() {
    let server = planned();
    let mut body = body("[ab]{4}");
    body["return_tokens_as_token_ids"] = json!(true);
    let lists = answered(&server.post("/v1/completions", &body))["choices"][0]["logprobs"].clone();
    let is_id = |token: &str| token.strip_prefix("token_id:").is_some_and(|id| id.parse::<u32>().is_ok());
    let tokens = lists["tokens"].as_array().unwrap();
    assert!(tokens.iter().all(|token| is_id(token.as_str().unwrap())), "{lists}");
    for top in lists["top_logprobs"].as_array().unwrap() {
        let top = top.as_object().unwrap();
        // No two tokens have one id: those that were asked for, and the chosen one if it is none of them.
        assert!((3..=4).contains(&top.len()) && top.keys().all(|token| is_id(token)), "{top:?}");
    }
    body["logprobs"] = json!(0);
    let lists = answered(&server.post("/v1/completions", &body))["choices"][0]["logprobs"].clone();
    for (place, top) in lists["top_logprobs"].as_array().unwrap().iter().enumerate() {
        let token = lists["tokens"][place].as_str().unwrap();
        assert_eq!(*top, json!({token: lists["token_logprobs"][place]}));
    }
    let chat = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "logprobs": true, "top_logprobs": 2,
        "return_tokens_as_token_ids": true});
    let content = answered(&server.chat(&chat))["choices"][0]["logprobs"]["content"].clone();
    for token in content.as_array().unwrap() {
        let others = token["top_logprobs"].as_array().unwrap();
        assert_eq!(others.len(), 2);
        for token in others.iter().chain([token]) {
            assert!(is_id(token["token"].as_str().unwrap()) && token["bytes"].is_array(), "{token}");
        }
    }
}
