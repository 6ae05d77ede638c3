//! Slots as clients of llama.cpp's server know them: a text is saved under a name, restored later, and erased.

use std::fs;

use serde_json::{Value, json};

use super::{Server, answered, server::Reply};
use crate::tiny_commands::{model, other_model};

/// A prompt of more than a block.
fn body(last: u32) -> Value {
    let prompt: Vec<u32> = (0..150).map(|place| 5 + place % 60).chain([last]).collect();
    json!({"prompt": prompt, "max_tokens": 4, "temperature": 0})
}

fn cached(reply: &Reply) -> u64 {
    answered(reply)["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
}

/// A server that saves slots in a folder, and keeps no prefixes.
fn start(folder: &str, further: &[&str]) -> Server {
    let kept = ["--prefix-memory", "0", "--prefix-disk", "0"];
    Server::start(model(), &[&["--no-spec", "--slot-save-path", folder], &kept[..], further].concat())
}

#[test]
fn a_saved_slot_is_restored_in_another_server_and_erased() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let act = |server: &Server, action: &str, body: Value| {
        answered(&server.post(&format!("/slots/0?action={action}"), &body))
    };
    let name = json!({"filename": "rivers.bin"});
    let expected = {
        let server = start(path, &[]);
        assert_eq!(act(&server, "erase", json!({})), json!({"id_slot": 0, "n_erased": 0}));
        let answer = answered(&server.post("/v1/completions", &body(9)));
        let saved = act(&server, "save", name.clone());
        // The answer's last token was not run.
        assert_eq!((&saved["n_saved"], &saved["filename"]), (&json!(154), &json!("rivers.bin")));
        let written = fs::metadata(folder.path().join("rivers.bin")).expect("it was written").len();
        assert_eq!(saved["n_written"], json!(written));
        // Two thirds of a text more.
        assert!(cached(&server.post("/v1/completions", &body(9))) >= 150);
        answer["choices"][0]["text"].clone()
    };
    let server = start(path, &[]);
    assert_eq!(server.get("/slots").json(), json!([{"id": 0, "n_ctx": 256, "is_processing": false}]));
    assert_eq!(act(&server, "restore", name.clone())["n_restored"], json!(154));
    let reply = server.post("/v1/completions", &body(9));
    assert!(cached(&reply) >= 150, "the restored text was there");
    assert_eq!(answered(&reply)["choices"][0]["text"], expected);
    assert!(act(&server, "erase", json!({}))["n_erased"].as_u64().is_some_and(|erased| erased > 150));
    assert_eq!(cached(&server.post("/v1/completions", &body(9))), 0, "it was erased");
}

/// With kept prefixes a slot is not read again when it is restored.
#[test]
fn a_slot_comes_back_from_kept_prefixes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let server = Server::start(model(), &["--no-spec", "--slot-save-path", path, "--prefix-disk", "0"]);
    let name = json!({"filename": "a"});
    answered(&server.post("/v1/completions", &body(9)));
    answered(&server.post("/slots/0?action=save", &name));
    answered(&server.post("/v1/completions", &json!({"prompt": "something else", "max_tokens": 1})));
    let restored = answered(&server.post("/slots/0?action=restore", &name));
    assert_eq!((&restored["n_restored"], &restored["n_kept"]), (&json!(154), &json!(128)));
}

#[test]
fn what_cannot_be_done_with_slots_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let server = start(path, &[]);
    fs::write(folder.path().join("broken"), "{").expect("it can be written");
    fs::write(folder.path().join("empty"), r#"{"model":"x","tokens":[]}"#).expect("it can be written");
    fs::write(folder.path().join("other"), r#"{"model":"x","tokens":[5]}"#).expect("it can be written");
    let name = |name: &str| json!({"filename": name});
    for (path, body, status, expected) in [
        ("/slots/1?action=erase", json!({}), 404, "expected 0"),
        ("/slots/0", json!({}), 400, "`save`, `restore` or `erase`"),
        ("/slots/0?action=keep", json!({}), 400, "found"),
        ("/slots/0?action=save", json!({}), 400, "filename"),
        ("/slots/0?action=save", name("../a"), 400, "letters, digits"),
        ("/slots/0?action=save", name(""), 400, "letters, digits"),
        ("/slots/0?action=save", name(".a"), 400, "letters, digits"),
        ("/slots/0?action=save", name("ours"), 400, "no text to save"),
        ("/slots/0?action=restore", name("none"), 404, "no slot was saved"),
        ("/slots/0?action=restore", name("broken"), 400, "breaks off"),
        ("/slots/0?action=restore", name("other"), 400, "of another model"),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.text);
        assert!(reply.text.contains(expected), "{path} {body}: {}", reply.text);
    }
    answered(&server.post("/v1/completions", &body(9)));
    answered(&server.post("/slots/0?action=save", &name("ours")));
    let kept = ["--no-spec", "--slot-save-path", path];
    let other = Server::start(other_model(), &kept).post("/slots/0?action=restore", &name("ours"));
    assert_eq!(other.status, 400, "{}", other.text);
    let without = Server::start(model(), &["--no-spec"]).post("/slots/0?action=save", &name("a"));
    assert_eq!((without.status, without.text.contains("--slot-save-path")), (501, true), "{}", without.text);
}

/// Names are each key's own.
#[test]
fn slots_of_a_key_are_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let server = start(path, &["--api-key", "sesame", "--api-key", "poppy"]);
    let post = |path: &str, body: &Value, key| server.post_with(path, &body.to_string(), Some(key));
    answered(&post("/v1/completions", &body(9), "sesame"));
    let name = json!({"filename": "a"});
    assert_eq!(answered(&post("/slots/0?action=erase", &json!({}), "poppy"))["n_erased"], json!(0));
    assert_eq!(answered(&post("/slots/0?action=save", &name, "sesame"))["n_saved"], json!(154));
    assert_eq!(post("/slots/0?action=restore", &name, "poppy").status, 404);
    assert_eq!(answered(&post("/slots/0?action=restore", &name, "sesame"))["n_restored"], json!(154));
    assert_eq!((server.get("/slots").status, post("/slots/0?action=save", &name, "none").status), (401, 401));
}
