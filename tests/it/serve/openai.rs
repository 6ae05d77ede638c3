//! The official Python client against the server: whatever it insists on is there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::server::Server;
use crate::{
    program::success,
    tiny_commands::{drafting_plan, json, model, on_tiny},
};

/// The client that is tested.
const CLIENT: &str = "openai==3.54.0";

/// The folder of the client below the target folder, for Python to find it; fetched once a checkout.
fn client() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(CLIENT);
    let done = folder.join("whole");
    if !done.exists() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"]).arg(&folder).arg(CLIENT);
        success(&pip.output().expect("python3 starts"));
        fs::write(&done, "").expect("the target folder is writable");
    }
    folder
}

const SCRIPT: &str = r#"
import json, sys
from openai import BadRequestError, NotFoundError, OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=0)
chat = dict(model="tiny", messages=[{"role": "user", "content": "one and one"}], max_tokens=40, temperature=0)
assert [model.id for model in client.models.list()] == ["tiny"]

whole = client.chat.completions.create(**chat, logprobs=True, top_logprobs=2)
assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens

text, usage, reason = "", None, None
for chunk in client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
assert (text, usage.total_tokens, reason) == (
    whole.choices[0].message.content, whole.usage.total_tokens, whole.choices[0].finish_reason)

drafted = client.chat.completions.create(**chat, extra_body={"drafter": "layer_skip"})
assert drafted.choices[0].message.content == text
hot = client.chat.completions.create(**(chat | dict(temperature=0.9, top_p=0.95, seed=7)))
raw = client.completions.create(model="tiny", prompt="one and one", max_tokens=40, temperature=0)
pieces = client.completions.create(model="tiny", prompt="one and one", max_tokens=40, temperature=0, stream=True)
assert "".join(piece.choices[0].text for piece in pieces) == raw.choices[0].text
several = client.completions.create(model="tiny", prompt=["one and one", "two"], max_tokens=4, temperature=0, n=2, echo=True)
assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
assert several.choices[1].text.startswith("one and one") and several.choices[2].text.startswith("two")
begun = [dict(role="developer", content="Add."), dict(role="user", content=[dict(type="text", text="one and one")]),
         dict(role="assistant", content="It is")]
client.chat.completions.create(
    model="tiny", messages=begun, max_completion_tokens=4, extra_body={"continue_final_message": True})
steps = client.chat.completions.create(**chat, stream=True, stream_options={"include_steps": True})
assert sum("step" in (chunk.yggc or {}) for chunk in steps if hasattr(chunk, "yggc")) > 0
asked = dict(model="tiny", input="one and one", instructions="Add.", max_output_tokens=40, temperature=0)
response = client.responses.create(**asked)
with client.responses.stream(**asked) as stream:
    pieces = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
assert response.output_text and pieces == response.output_text, (pieces, response)
assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
again = response.output + [dict(role="user", content="two")]
client.responses.create(model="tiny", input=again, max_output_tokens=4)
try:
    client.embeddings.create(model="tiny", input="one")
    raise SystemExit("embeddings were given")
except NotFoundError as refused:
    assert refused.code == "embeddings_not_supported", refused
for error, asked in [(NotFoundError, dict(model="other")), (BadRequestError, dict(n=5))]:
    try:
        client.chat.completions.create(**(chat | asked))
        raise SystemExit(f"{asked} was answered")
    except error as refused:
        assert refused.body["message"], refused
print(json.dumps({"greedy": text, "hot": hot.choices[0].message.content, "raw": raw.choices[0].text}))
"#;

#[test]
fn the_official_client_is_served_and_hears_what_run_says() {
    let server = Server::start(model(), &["--plan", drafting_plan().to_str().expect("UTF-8")]);
    let mut python = Command::new("python3");
    let heard = json(python.env("PYTHONPATH", client()).args(["-c", SCRIPT, &server.url]));
    let run = |arguments: &[&str]| {
        let mut command = on_tiny("run");
        json(command.args(["-p", "one and one", "-n", "40", "--json", "--no-spec"]).args(arguments))
    };
    assert_eq!(heard["greedy"], run(&[])["text"]);
    assert_eq!(heard["hot"], run(&["--temperature", "0.9", "--top-p", "0.95", "--seed", "7"])["text"]);
    assert_eq!(heard["raw"], run(&["--raw"])["text"]);
}

/// The `curl` commands of `docs/serving.md`, as they are written there but for the address and the model's name.
fn curl_commands(server: &Server) -> Vec<String> {
    let document = include_str!("../../../docs/serving.md").replace("\n  ", " ");
    let commands = document.lines().filter(|line| line.starts_with("curl "));
    let here = |line: &str| {
        line.replace("http://127.0.0.1:8080", &server.url).replace("smollm2-135m-instruct", "tiny")
    };
    commands.map(here).collect()
}

#[test]
fn the_documented_curl_commands_are_answered() {
    let slots = tempfile::tempdir().expect("a temporary folder");
    let folder = slots.path().to_str().expect("UTF-8");
    let server = Server::start(model(), &["--no-spec", "--slot-save-path", folder]);
    let commands = curl_commands(&server);
    let parts = [
        "\"chat.completion\"",
        "data: [DONE]",
        "\"text_completion\"",
        "yggc_requests_total",
        "\"probability\"",
        "\"text_completion\"",
        "\"n_saved\"",
        "\"n_restored\"",
        "\"n_erased\"",
    ];
    assert_eq!(commands.len(), parts.len(), "{commands:?}");
    for (command, part) in commands.iter().zip(parts) {
        let mut shell = Command::new("sh");
        let said =
            success(&shell.args(["-c", &format!("{command} --silent --fail")]).output().expect("sh starts"));
        assert!(said.contains(part), "{command}: {said}");
    }
}
