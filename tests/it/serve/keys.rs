//! API keys: which requests they open the service to, and that what they leave is told to no other.

use std::{fs, process::Command};

use serde_json::json;

use super::{
    Server, answered,
    server::{Reply, chat},
};
use crate::{
    program::failure,
    tiny_commands::{model, on_tiny},
};

#[test]
fn a_key_is_asked_for_where_there_is_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("keys");
    fs::write(&file, "# ours\n\nsesame\r\n  linseed  \nsesame\n").expect("writable");
    let file_name = file.to_str().expect("UTF-8");
    let arguments = ["--no-spec", "--api-key-file", file_name, "--api-key", "poppy", "--api-key", "sesame"];
    let by_flags = Server::start(model(), &arguments);
    let by_environment = Server::start_with(model(), |command: &mut Command| {
        command.arg("--no-spec").env("YGGC_API_KEY", "sesame");
    });
    let body = chat("hello", 2).to_string();
    for (server, opening) in
        [(&by_flags, &["sesame", "linseed", "poppy"][..]), (&by_environment, &["sesame"])]
    {
        for key in [None, Some("sesam"), Some("sesame2"), Some("# ours"), Some("sesame poppy")] {
            let refused = server.post_with("/v1/chat/completions", &body, key);
            assert_eq!(
                (refused.status, refused.header("www-authenticate")),
                (401, Some("Bearer")),
                "{key:?}"
            );
            assert_eq!(refused.json()["error"]["code"], "invalid_api_key");
        }
        for key in opening {
            assert_eq!(server.post_with("/v1/chat/completions", &body, Some(key)).status, 200, "{key}");
        }
        assert_eq!((server.get("/v1/models").status, server.get("/health").status), (401, 200));
    }
    for nothing in ["", " \n", "# sesame\n"] {
        fs::write(&file, nothing).expect("writable");
        let mut command = on_tiny("serve");
        let output = command.args(["--api-key", "poppy", "--api-key-file"]).arg(&file).output();
        let said = failure(&output.expect("yggc starts"), 3);
        assert!(said.contains("has no key") && said.contains(file_name), "{nothing:?}: {said}");
    }
    let empty = on_tiny("serve").env("YGGC_API_KEY", " ").output().expect("yggc starts");
    assert!(failure(&empty, 3).contains("$YGGC_API_KEY is empty"));
}

/// The time of a hit tells what was asked before.
#[test]
fn what_a_key_leaves_in_the_cache_serves_no_other() {
    let server = Server::start(model(), &["--no-spec", "--api-key", "sesame", "--api-key", "poppy"]);
    let cached = |reply: &Reply| {
        let tokens = &answered(reply)["usage"]["prompt_tokens_details"]["cached_tokens"];
        tokens.as_u64().expect("a number")
    };
    for drafter in ["plan", "none"] {
        let mut body = chat("one and one and one and one", 4);
        body["drafter"] = json!(drafter);
        let ask = |key| server.post_with("/v1/chat/completions", &body.to_string(), Some(key));
        let first = ask("sesame");
        for (key, finds_it) in [("sesame", true), ("poppy", false), ("poppy", true), ("sesame", false)] {
            let reply = ask(key);
            assert_eq!(cached(&reply) > 0, finds_it, "{drafter}, {key}: {reply:?}");
            assert_eq!(reply.json()["choices"], first.json()["choices"], "{drafter}, {key}");
        }
        // Answers to one request share its prompt's.
        body["n"] = json!(2);
        body["drafter"] = json!(drafter);
        let reply = server.post_with("/v1/chat/completions", &body.to_string(), Some("poppy"));
        let [first, second] = [0, 1].map(|i: usize| answered(&reply)["choices"][i]["message"].clone());
        assert_eq!((cached(&reply), first), (0, second), "{drafter}");
    }
}
