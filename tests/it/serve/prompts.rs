//! Log-probabilities of prompts: `echo` with `logprobs` as OpenAI's completions have it, and vLLM's `prompt_logprobs`.

use std::fs;

use serde_json::{Value, json};

use super::{
    Server, answered,
    server::{Reply, chat},
};
use crate::tiny_commands::{json as printed, model, on_tiny};

const PATH: &str = "/v1/completions";
const PROMPT: &str = "one and two, \u{e9} and one";

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn cached(answer: &Value) -> f64 {
    number(&answer["usage"]["prompt_tokens_details"]["cached_tokens"])
}

/// The tokens of a prompt, and what `yggc score` says of all but the first.
fn scored(server: &Server, prompt: &Value) -> (Vec<Value>, Vec<Value>) {
    let tokens = answered(&server.post("/tokenize", prompt))["tokens"].clone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("ids.json");
    fs::write(&file, tokens.to_string()).expect("writable");
    let score = printed(on_tiny("score").arg("--token-ids").arg(&file).arg("--json"));
    (list(&tokens).to_vec(), list(&score["tokens"]).to_vec())
}

/// Whether a log-probability of an answer is the one that the score says, which has more digits.
fn is_scored(found: &Value, score: &Value) -> bool {
    (number(found) as f32).to_bits() == (-number(&score["nll"]) as f32).to_bits()
}

#[test]
fn an_echo_is_told_token_by_token() {
    let server = Server::start(model(), &["--no-spec"]);
    let (ids, score) = scored(&server, &json!({"prompt": PROMPT}));
    let plain = json!({"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "logprobs": 2});
    let answer = answered(&server.post(PATH, &plain))["choices"][0].clone();
    let body = |tokens: Value, prompt: Value| json!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 2, "echo": true});
    for tokens in [3, 1, 0] {
        let echoed = answered(&server.post(PATH, &body(json!(tokens), json!(PROMPT))));
        assert_eq!(cached(&echoed), 0.0, "what was read for this request was not there before it");
        assert_eq!(number(&echoed["usage"]["prompt_tokens"]) as usize, ids.len());
        assert_eq!(echoed["usage"]["completion_tokens"], tokens);
        let choice = &echoed["choices"][0];
        let text = choice["text"].as_str().expect("text");
        assert!(text.starts_with(PROMPT) && choice["finish_reason"] == "length", "{choice}");
        let lists = &choice["logprobs"];
        let of = |field: &str| list(&lists[field]);
        for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            assert_eq!(of(field).len(), ids.len() + tokens, "{field}: {lists}");
            let new = &list(&answer["logprobs"][field])[..tokens];
            if field != "text_offset" {
                assert_eq!(&of(field)[ids.len()..], new, "{field}");
            }
        }
        assert!(of("token_logprobs")[0].is_null() && of("top_logprobs")[0].is_null());
        for (place, score) in score.iter().enumerate() {
            let found = &of("token_logprobs")[place + 1];
            assert!(is_scored(found, score), "{place}: {found}, {score}");
            // As lm-evaluation-harness asks whether greedy decoding would say the same.
            let top = of("top_logprobs")[place + 1].as_object().expect("an object");
            let best = top.values().map(number).fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(number(found) == best, score["id"] == score["argmax"], "{place}: {top:?}");
        }
        let characters: Vec<char> = text.chars().collect();
        let mut before = 0;
        for (token, at) in of("tokens").iter().zip(of("text_offset")) {
            let (token, at) = (token.as_str().expect("text"), number(at) as usize);
            assert!(at >= before && at <= characters.len(), "{lists}");
            let rest: String = characters[at..].iter().collect();
            // Control tokens that the tokenizer adds are not in the text, and parts of characters are none by
            // themselves.
            let is_text = !token.starts_with("bytes:") && !token.starts_with('<');
            assert!(
                !is_text || rest.starts_with(token.trim_start()) || rest.starts_with(token),
                "{token:?} at {at}: {rest:?}"
            );
            before = at;
        }
        assert_eq!(
            cached(&answered(&server.post(PATH, &plain))) as usize,
            ids.len() - 1,
            "it stays in the cache"
        );
    }
    // Of several prompts and answers each begins with its own.
    let mut several = body(json!(2), json!([ids, [5, 6, 7]]));
    several["n"] = json!(2);
    let answer = answered(&server.post(PATH, &several));
    let choices = list(&answer["choices"]);
    let lens: Vec<usize> = choices.iter().map(|choice| list(&choice["logprobs"]["tokens"]).len()).collect();
    assert_eq!(lens, [ids.len() + 2, ids.len() + 2, 5, 5]);
    assert_eq!((&choices[0]["logprobs"], cached(&answer)), (&choices[1]["logprobs"], 0.0));
    let one = answered(&server.post(PATH, &body(json!(2), json!([5, 6, 7]))));
    assert_eq!(one["choices"][0]["logprobs"], choices[2]["logprobs"]);
}

#[test]
fn prompts_are_listed_where_vllm_lists_them() {
    let server = Server::start(model(), &["--no-spec"]);
    let mut of_chat = chat(PROMPT, 2);
    let mut of_completion = json!({"prompt": PROMPT, "max_tokens": 0, "temperature": 0});
    let mut hidden = of_completion.clone();
    hidden["max_tokens"] = json!(2);
    let expected = [answered(&server.chat(&of_chat))["choices"][0]["message"]["content"].clone(), json!("")];
    for body in [&mut of_chat, &mut of_completion] {
        body["prompt_logprobs"] = json!(3);
    }
    let completion = answered(&server.post(PATH, &of_completion));
    assert!(completion["choices"][0]["logprobs"].is_null() && completion.get("prompt_logprobs").is_none());
    let chat_answer = answered(&server.chat(&of_chat));
    let found = [&chat_answer["choices"][0]["message"]["content"], &completion["choices"][0]["text"]];
    assert_eq!(found, [&expected[0], &expected[1]]);
    let messages = json!({"messages": of_chat["messages"]});
    for (listed, prompt) in [
        (&chat_answer["prompt_logprobs"], &messages),
        (&completion["choices"][0]["prompt_logprobs"], &json!({"prompt": PROMPT})),
    ] {
        let (ids, score) = scored(&server, prompt);
        let listed = list(listed);
        assert!(listed.len() == ids.len() && listed[0].is_null(), "{listed:?}");
        for (place, score) in listed[1..].iter().zip(&score) {
            let tokens = place.as_object().expect("an object");
            let own = &tokens[&score["id"].to_string()];
            assert!(is_scored(&own["logprob"], score) && own["decoded_token"].is_string(), "{place}");
            assert_eq!(tokens[&score["argmax"].to_string()]["rank"], 1, "{place}");
            let ranked = tokens.values().filter(|token| !token["rank"].is_null()).count();
            assert!(ranked == 3 && tokens.len() - ranked == usize::from(own["rank"].is_null()), "{place}");
        }
    }
    let many = json!({"prompt": vec![vec![5; 240]; 64], "max_tokens": 1, "prompt_logprobs": 20});
    let refused = |path: &str, body: &Value| -> Reply { server.post(path, body) };
    for (path, body, field, value, part) in [
        (PATH, &of_completion, "stream", json!(true), "stream: expected false"),
        (PATH, &of_completion, "prompt_logprobs", json!(-1), "prompt_logprobs"),
        (PATH, &of_completion, "prompt_logprobs", json!(21), "prompt_logprobs"),
        (PATH, &of_completion, "suffix", json!("x"), "suffix: expected none"),
        (PATH, &many, "n", json!(4), "found 1290240; send fewer prompts"),
        (PATH, &hidden, "max_tokens", json!(0), "max_tokens"),
        ("/v1/chat/completions", &of_chat, "stream", json!(true), "stream: expected false"),
        ("/v1/chat/completions", &of_chat, "max_tokens", json!(0), "max_tokens"),
        ("/v1/responses", &json!({"input": "x"}), "prompt_logprobs", json!(1), "prompt_logprobs"),
    ] {
        let mut body = body.clone();
        body[field] = value;
        let refused = refused(path, &body);
        assert!(refused.status == 400 && refused.text.contains(part), "{path} {field}: {refused:?}");
    }
}
