//! A running `yggc serve`, and a client to ask it with.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::tiny_commands::on_machine;

/// What a wait in these tests takes at most, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a port of its own; killed when it is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) url: String,
}

/// A response, whole.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) text: String,
}

impl Reply {
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The data of server-sent events.
    pub(super) fn events(&self) -> Vec<String> {
        let data = self.text.split("\n\n").filter(|event| !event.is_empty());
        data.map(|event| event.strip_prefix("data: ").expect("an event of data").to_owned()).collect()
    }
}

impl Server {
    /// Serves a model with these arguments, for one thread and portable kernels.
    pub(super) fn start(model: &Path, arguments: &[&str]) -> Self {
        Self::start_with(model, |command| {
            command.args(arguments);
        })
    }

    pub(super) fn start_with(model: &Path, set: impl FnOnce(&mut Command)) -> Self {
        Self::start_as(on_machine("serve", model), set)
    }

    /// The same, on another device.
    pub(super) fn start_as(mut command: Command, set: impl FnOnce(&mut Command)) -> Self {
        command.args(["--port", "0"]).env_remove("YGGC_API_KEY");
        set(&mut command);
        if !command.get_args().any(|argument| argument == "--model-name") {
            command.args(["--model-name", "tiny"]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("yggc starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("it says where it listens");
        let url = line.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{url:?}");
        Self { child, url }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.url.strip_prefix("http://").expect("a url").parse().expect("an address")
    }

    /// Asks with GET.
    #[track_caller]
    pub(super) fn get(&self, path: &str) -> Reply {
        reply(agent().get(format!("{}{path}", self.url)).call())
    }

    /// Asks with GET and headers.
    #[track_caller]
    pub(super) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let request = agent().get(format!("{}{path}", self.url));
        reply(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).call())
    }

    /// Asks with POST, with a key if there is one.
    #[track_caller]
    pub(super) fn post_with(&self, path: &str, body: &str, key: Option<&str>) -> Reply {
        let mut request = agent().post(format!("{}{path}", self.url)).content_type("application/json");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        reply(request.send(body))
    }

    /// Asks with POST and headers.
    #[cfg(feature = "otel")]
    #[track_caller]
    pub(super) fn post_as(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Reply {
        let request = agent().post(format!("{}{path}", self.url)).content_type("application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        reply(request.send(body.to_string().as_str()))
    }

    #[track_caller]
    pub(super) fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_with(path, &body.to_string(), None)
    }

    #[track_caller]
    pub(super) fn chat(&self, body: &Value) -> Reply {
        self.post("/v1/chat/completions", body)
    }

    /// A connection on which a request was sent whose answer nobody reads yet.
    pub(super) fn begin(&self, body: &Value) -> TcpStream {
        let body = body.to_string();
        let mut stream = self.connect();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()))
            .expect("it listens");
        stream
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time out");
        stream
    }

    /// The number of a metric with exactly these labels, 0 if it is not there yet.
    #[track_caller]
    pub(super) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |number| number.parse().expect("a number"))
    }

    /// Waits until a metric is a number.
    #[track_caller]
    pub(super) fn wait_for(&self, name: &str, number: f64) {
        wait(|| self.metric(name) == number, &format!("{name} to be {number}"));
    }

    /// Its memory.
    pub(super) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Sends a signal by name.
    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill starts");
        assert!(sent.success());
    }

    /// How it ended.
    #[track_caller]
    pub(super) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let mut status = None;
        wait(
            || {
                status = child.try_wait().expect("it can be asked");
                status.is_some()
            },
            "the server to end",
        );
        status.expect("it ended")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a wait ends some time")]
pub(super) fn wait(mut until: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
    config.build().into()
}

#[track_caller]
fn reply(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Reply {
    let mut response = response.expect("an answer");
    let text = |value: &ureq::http::HeaderValue| value.to_str().expect("text").to_owned();
    Reply {
        status: response.status().as_u16(),
        headers: response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        text: response.body_mut().read_to_string().expect("a whole body"),
    }
}

/// The status that a connection is answered with, or nothing if it is closed.
pub(super) fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..]).ok()?.parse().ok()
}

/// A chat request for the tiny models, greedy, of at most `tokens` tokens.
pub(super) fn chat(text: &str, tokens: u32) -> Value {
    json!({
        "model": "tiny",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
    })
}

/// A chat request that takes long: its end token is banned.
pub(super) fn endless() -> Value {
    let mut body = chat("go on", 15_000);
    body["logit_bias"] = json!({"2": -100});
    body
}
