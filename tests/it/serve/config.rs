//! `yggc serve --config FILE`, and what `packaging/` has.

use std::{fs, path::Path};

use serde_json::json;

use super::{answered, server::Server};
use crate::{
    program::failure,
    tiny_commands::{model, on_tiny},
};

#[test]
fn a_file_sets_what_flags_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("serve.toml");
    fs::write(&file, "no-spec = true\nmax-output = 3\nmodel-name = 'filed'\nport = 1\n").expect("writable");
    // The port and the name are flags of `start` too, which win.
    let server = Server::start(model(), &["--config", file.to_str().expect("UTF-8")]);
    assert_eq!(answered(&server.get("/"))["model"], "tiny");
    let body = json!({"prompt": "one", "max_tokens": 4});
    assert_eq!(server.post("/v1/completions", &body).status, 400, "more output than the file allows");

    fs::write(&file, "max_output = 3\n").expect("writable");
    let output = on_tiny("serve").arg("--config").arg(&file).output().expect("yggc starts");
    let said = failure(&output, 3);
    assert!(said.contains("\"max_output\"") && said.contains("`max-output`"), "{said}");
}

#[test]
fn the_packaged_file_is_accepted_but_for_a_bad_flag() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/serve.toml");
    let mut command = on_tiny("serve");
    // It ends before it serves: the key's file is not there.
    let output = command.arg("--config").arg(&file).args(["--api-key-file", "/nowhere/key"]).output();
    let said = failure(&output.expect("yggc starts"), 3);
    assert!(said.contains("/nowhere/key"), "{said}");
}
