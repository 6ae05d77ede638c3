//! `/v1/choose`: what the command says, over HTTP.

use std::{fs, io::Write};

use serde_json::{Value, json};

use super::{Server, answered, load, server::chat};
use crate::tiny_commands::{json as printed, model, on_tiny};

const PATH: &str = "/v1/choose";

fn cached(answer: &Value) -> u64 {
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
}

#[test]
fn options_have_the_probabilities_of_the_command() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let schema = folder.path().join("schema.json");
    fs::write(&schema, r#"{"enum": [1, 12]}"#).expect("writable");
    let format = json!({"type": "json_schema", "json_schema": {"schema": {"enum": [1, 12]}}});
    let server = Server::start(model(), &["--no-spec"]);
    let options = ["1", "12", "13", " one"];
    for (arguments, mut body) in [
        (vec!["--raw"], json!({"prompt": "one and one"})),
        (vec![], json!({"model": "tiny", "messages": [{"role": "user", "content": "one and one"}]})),
        (
            vec!["--normalize", "length"],
            json!({"messages": [{"role": "user", "content": "one and one"}], "normalize": "length"}),
        ),
        (
            vec!["--raw", "--json-schema", schema.to_str().expect("UTF-8")],
            json!({"prompt": "one and one", "response_format": format, "normalize": null, "user": "x"}),
        ),
    ] {
        let options_given = options.iter().flat_map(|option| ["--option", option]);
        let mut command = on_tiny("choose");
        let expected =
            printed(command.args(["-p", "one and one", "--json"]).args(&arguments).args(options_given));
        body["options"] = json!(options);
        let first = answered(&server.post(PATH, &body));
        assert_eq!(first["options"], expected["options"], "{arguments:?}");
        assert_eq!((&first["object"], &first["model"]), (&json!("choose"), &json!("tiny")));
        let prompt = expected["prompt_token_ids"].as_array().expect("a list").len() as u64;
        assert_eq!(
            (&first["usage"]["prompt_tokens"], &first["usage"]["completion_tokens"]),
            (&json!(prompt), &json!(0))
        );
        // Options by their token ids are the same, and the prompt is there.
        let ids = |option: &Value| option["token_ids"].clone();
        body["options"] = first["options"].as_array().expect("a list").iter().map(ids).collect();
        if body.get("prompt").is_some() {
            body["prompt"] = expected["prompt_token_ids"].clone();
        }
        let again = answered(&server.post(PATH, &body));
        assert_eq!((&again["options"], cached(&again)), (&first["options"], prompt - 1), "{arguments:?}");
    }
    // An answer finds the prompt of a question, and a question that of an answer.
    let question = json!({"messages": chat("two and one", 2)["messages"], "options": ["a"]});
    answered(&server.post(PATH, &question));
    let answer = answered(&server.chat(&chat("two and one", 2)));
    assert!(cached(&answer) > 0 && cached(&answered(&server.post(PATH, &question))) > 0);
    assert!(server.metric("yggc_prompt_tokens_reused_total") > 0.0);
    assert_eq!(server.metric(&format!("yggc_requests_total{{route=\"{PATH}\",status=\"200\"}}")), 10.0);
}

#[test]
fn what_is_no_question_is_refused_by_its_field() {
    let server = Server::start(
        model(),
        &["--no-spec", "--api-key", "sesame", "--api-key", "poppy", "--max-prompt", "40"],
    );
    let ask = |body: &Value, key| server.post_with(PATH, &body.to_string(), Some(key));
    let good = json!({"prompt": "one and one and one", "options": ["a", "b"]});
    assert_eq!(server.post(PATH, &good).status, 401);
    for (key, finds_it) in [("sesame", false), ("sesame", true), ("poppy", false)] {
        assert_eq!(cached(&answered(&ask(&good, key))) > 0, finds_it, "{key}");
    }
    let many: Vec<Vec<u32>> = (600..1050).map(|len| vec![5; len]).collect();
    for (field, value, part) in [
        ("options", json!([]), "0 options"),
        ("options", json!("a"), "options"),
        ("options", json!([1]), "neither a text nor a list of token ids"),
        ("options", json!(["a", ""]), "option 2 is empty"),
        ("options", json!(["a", "a"]), "options 1 and 2"),
        ("options", json!([[5, 100_000]]), "100000"),
        ("options", json!(["a ".repeat(300)]), "option 1 has"),
        ("options", json!(many), "expected at most 262144 tokens together, found 371025"),
        ("options", Value::Null, "options"),
        ("prompt", json!(["a", "b"]), "prompt: expected one prompt"),
        ("prompt", json!("one ".repeat(60)), "maximum context length"),
        ("prompt", json!([]), "prompt: expected a prompt of at least one token"),
        ("prompt", Value::Null, "found no field `prompt`"),
        (
            "messages",
            json!([{"role": "user", "content": "x"}]),
            "messages: expected either these or a prompt",
        ),
        ("normalize", json!("bytes"), "normalize"),
        ("stream", json!(true), "stream: it is no field of /v1/choose"),
        ("temperature", json!(0.5), "temperature: it is no field of /v1/choose"),
        ("model", json!("other"), "not served here"),
        (
            "response_format",
            json!({"type": "grammar", "syntax": "regex", "definition": "[0-9]"}),
            "takes none",
        ),
        (
            "response_format",
            json!({"type": "grammar", "syntax": "regex", "definition": "("}),
            "response_format",
        ),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let refused = ask(&body, "sesame");
        let status = if field == "model" { 404 } else { 400 };
        assert!(refused.status == status && refused.text.contains(part), "{field} {part}: {refused:?}");
    }
    assert_eq!(ask(&good, "sesame").status, 200, "it works as before");
}

#[test]
fn a_client_that_leaves_ends_its_question() {
    let server = load::start(&[]);
    let options: Vec<Vec<u32>> =
        (0..900).map(|first| [vec![5 + first % 50, 5 + first / 50], vec![7; 200]].concat()).collect();
    let body = json!({"prompt": "one", "options": options}).to_string();
    let mut stream = server.connect();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("it listens");
    server.wait_for(load::RUNNING, 1.0);
    drop(stream);
    server.wait_for(&format!("yggc_requests_total{{route=\"{PATH}\",status=\"499\"}}"), 1.0);
    server.wait_for(load::RUNNING, 0.0);
    assert_eq!(server.chat(&chat("hello", 2)).status, 200);
}
