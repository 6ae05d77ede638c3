//! Clients that mean harm: requests that are none, bodies that never end, connections that ask nothing, and those who
//! leave without a word.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    answered,
    load::{RUNNING, WAITING, long_model, requests, start, streamed},
    server::{PATIENCE, Server, chat, endless, status, wait},
    text,
};
use crate::tiny_commands::{model, on_machine, on_quick, on_tiny};

const CHAT: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n";

/// Sends bytes as they are; returns all that comes back, and how sending ended.
fn told(server: &Server, bytes: &[u8]) -> (String, io::Result<()>) {
    let mut stream = server.connect();
    let sent = stream.write_all(bytes);
    let mut said = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut said);
    (String::from_utf8_lossy(&said).into_owned(), sent)
}

fn statuses(said: &str) -> Vec<&str> {
    let heads = said.match_indices("HTTP/1.").filter_map(|(at, _)| said.get(at + 9..at + 12));
    heads.collect()
}

fn good() -> String {
    chat("hello", 2).to_string()
}

fn chunks(body: &str, size: usize) -> String {
    let pieces = body.as_bytes().chunks(size);
    let chunk = |piece: &[u8]| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece));
    pieces.map(chunk).chain(["0\r\n\r\n".to_owned()]).collect()
}

#[test]
fn requests_in_many_pieces_are_answered_and_malformed_ones_are_refused() {
    let server = Server::start(model(), &["--no-spec"]);
    let body = good();
    let length = body.len();
    let close = "connection: close\r\n";
    let chunked = "transfer-encoding: chunked\r\n";
    let get = "GET /health HTTP/1.1\r\nhost: localhost\r\n";
    let flood = "a: b\r\n".repeat(10_000);
    let (long, longer) = ("y".repeat(40_000), "y".repeat(100_000));
    for (expected, sent) in [
        (&["200", "200"][..], format!("{get}\r\n{get}{close}\r\n")),
        (&["200"; 2], format!("{CHAT}content-length: {length}\r\n\r\n{body}{get}{close}\r\n")),
        (&["200"], format!("{CHAT}{close}{chunked}\r\n{}", chunks(&body, 1))),
        (&["200"], format!("POST /v1/chat/completions HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}")),
        (
            &["200"],
            format!("{CHAT}{close}content-length: {length}\r\ncontent-length: {length}\r\n\r\n{body}"),
        ),
        // The length is that of the chunks, whatever else is said of it.
        (&["200"], format!("{CHAT}{close}content-length: 3\r\n{chunked}\r\n{}", chunks(&body, 7))),
        (&["200"], format!("{CHAT}{close}{chunked}content-length: 3\r\n\r\n{}", chunks(&body, 7))),
        (&["400"], format!("{CHAT}content-length: {length}\r\ncontent-length: {}\r\n\r\n{body}", length + 1)),
        (&["400"], format!("{CHAT}content-length: -1\r\n\r\n{body}")),
        (&["400"], format!("{CHAT}content-length: 18446744073709551616\r\n\r\n{body}")),
        (&["400"], format!("{CHAT}{chunked}\r\nzz\r\n{body}")),
        (&["400"], format!("{CHAT}{chunked}\r\nfffffffffffffffff\r\n{body}")),
        (&["400"], format!("{CHAT}{chunked}\r\n-1\r\n{body}")),
        (&["400"], format!("{CHAT}{chunked}\r\n5;{longer}\r\nhello\r\n0\r\n\r\n")),
        (&["400"], format!("{CHAT}{chunked}\r\n1\r\n{{\r\n0\r\n{flood}\r\n")),
        (&["400"], format!("{CHAT}transfer-encoding: chunked, gzip\r\n\r\n{body}")),
        (&["431"], format!("{get}{flood}\r\n")),
        (&["431"], format!("{get}a: {longer}\r\n\r\n")),
        (&["404"], format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n{close}\r\n")),
        (&["404"], format!("GET /v1/models/%ff HTTP/1.1\r\nhost: localhost\r\n{close}\r\n")),
        (&["403"], format!("{get}host: evil.org\r\n{close}\r\n")),
        (&["403"], format!("GET http://evil.org/health HTTP/1.1\r\nhost: localhost\r\n{close}\r\n")),
        (&["400"], "GET /\r\n\r\n".to_owned()),
        (&["400"], "\u{16}\u{3}\u{1}\u{2} hello\r\n\r\n".to_owned()),
    ] {
        let (said, _) = told(&server, sent.as_bytes());
        let sent = &sent[..sent.len().min(200)];
        assert_eq!(statuses(&said), expected, "{sent:?}: {}", &said[..said.len().min(600)]);
        let (head, answer) = said.rsplit_once("\r\n\r\n").expect("a head");
        if !answer.is_empty() {
            assert!(head.contains("application/json"), "{sent:?}: {said}");
            serde_json::from_str::<Value>(answer).unwrap_or_else(|error| panic!("{sent:?}: {error}: {said}"));
        }
    }
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "\u{7f}"]
    {
        let sent = format!("{CHAT}{close}content-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}");
        let expected = if kind == "\u{7f}" { "400" } else { "200" };
        assert_eq!(
            statuses(&told(&server, sent.as_bytes()).0),
            [expected],
            "{kind}: bodies are JSON, whatever is said"
        );
    }
    // A stream to a client that knows no chunks has none.
    let body = streamed(chat("hello", 2)).to_string();
    let sent = format!("POST /v1/chat/completions HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (said, _) = told(&server, sent.as_bytes());
    let events = said.split_once("\r\n\r\n").expect("a head").1;
    assert!(events.starts_with("data: {") && events.ends_with("data: [DONE]\n\n"), "{said}");
}

#[test]
fn a_client_that_sends_too_much_can_send_it_and_reads_why_it_is_refused() {
    let server = Server::start(model(), &["--no-spec"]);
    let large = format!("{{\"messages\": \"{}\"}}", "x".repeat(10 << 20));
    let length = format!("content-length: {}\r\n", large.len());
    for (expected, sent) in [
        ("413", format!("{CHAT}{length}\r\n{large}")),
        ("413", format!("{CHAT}transfer-encoding: chunked\r\n\r\n{}", chunks(&large, 1 << 16))),
        ("404", format!("POST /nowhere HTTP/1.1\r\nhost: localhost\r\n{length}\r\n{large}")),
        ("200", format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{length}\r\n{large}")),
        ("431", format!("GET /health HTTP/1.1\r\nhost: localhost\r\na: {large}\r\n\r\n")),
    ] {
        let (said, sent) = told(&server, sent.as_bytes());
        assert_eq!((statuses(&said), sent.is_ok()), (vec![expected], true), "{sent:?}: {said}");
    }
    // A body without an end is given up.
    let mut unending = server.connect();
    unending.write_all(format!("{CHAT}transfer-encoding: chunked\r\n\r\n").as_bytes()).expect("it listens");
    let piece = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
    let mut sent = 0_usize;
    let error = loop {
        match unending.write_all(piece.as_bytes()) {
            Ok(()) => sent += piece.len(),
            Err(error) => break error,
        }
        assert!(sent < 1 << 30, "a body of {sent} bytes is still read");
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    // A client that asks first is refused before it sends.
    let (said, _) = told(&server, format!("{CHAT}expect: 100-continue\r\n{length}\r\n").as_bytes());
    assert_eq!(statuses(&said), ["413"]);
    answered(&server.chat(&chat("hello", 2)));
}

#[test]
fn what_is_sent_behind_a_request_does_not_hide_that_its_client_has_left() {
    let server = start(&[]);
    for (count, behind) in ["x", "\r\n", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"].iter().enumerate()
    {
        let mut leaving = server.begin(&endless());
        leaving.write_all(behind.as_bytes()).expect("it is open");
        server.wait_for(RUNNING, 1.0);
        drop(leaving);
        server.wait_for(RUNNING, 0.0);
        assert_eq!(server.metric(&requests(499)), (count + 1) as f64, "{behind:?} kept the decoder busy");
    }
    // Whoever ends its sending side while its answer is awaited has left too.
    let half = server.begin(&endless());
    server.wait_for(RUNNING, 1.0);
    half.shutdown(Shutdown::Write).expect("it is open");
    server.wait_for(RUNNING, 0.0);
    assert_eq!(server.metric(&requests(499)), 4.0);
    // What can be answered at once still is.
    let mut stream = server.connect();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it listens");
    stream.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(status(&mut stream), Some(200));
}

/// Connections that begin a request and go on with it for ever, a byte at a time; they come again when they are closed.
fn dawdle(server: &Server, streams: &mut Vec<TcpStream>, count: usize) {
    streams.retain_mut(|stream| stream.write_all(b"y").is_ok());
    while streams.len() < count {
        let mut stream = server.connect();
        let begin = if streams.len().is_multiple_of(2) {
            "GET /health HTTP/1.1\r\nhost: localhost\r\nx: ".to_owned()
        } else {
            format!("{CHAT}content-length: 1000\r\n\r\n{{")
        };
        stream.write_all(begin.as_bytes()).expect("it listens");
        streams.push(stream);
    }
}

/// In turn good requests together with as many that dawdle as there are places, or open files. Each would wait for the
/// time limit of a head, ten seconds, all of them for longer than this test may take.
#[expect(clippy::disallowed_methods, reason = "minutes of waiting are told from moments")]
fn asks_beside_dawdlers(server: &Server, count: usize) {
    let mut streams = Vec::new();
    let begun = std::time::Instant::now();
    for _ in 0..8 {
        dawdle(server, &mut streams, count);
        answered(&server.chat(&chat("hello", 2)));
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn who_asks_gets_a_place_of_those_who_do_not() {
    let server = Server::start(model(), &["--no-spec", "--connections", "3"]);
    asks_beside_dawdlers(&server, 3);
    // One that is answered keeps its place, however many wait for one.
    let server = start(&["--connections", "2"]);
    let answered = server.begin(&streamed(endless()));
    server.wait_for(RUNNING, 1.0);
    let mut streams = Vec::new();
    for _ in 0..3 {
        dawdle(&server, &mut streams, 4);
        assert_eq!(server.metric(RUNNING), 1.0);
    }
    drop(answered);
}

#[test]
fn without_open_files_left_it_goes_on() {
    // The server alone has so few: the shell gives way to it.
    let whole = on_tiny("serve");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).arg(whole.get_program()).args(whole.get_args());
    let server = Server::start_as(limited, |command| {
        command.arg("--no-spec");
    });
    asks_beside_dawdlers(&server, 100);
}

#[test]
fn a_signal_while_one_streams_and_fifty_wait_ends_all_of_them() {
    for signals in [1, 2] {
        let drain = if signals == 1 { "1" } else { "3600" };
        let mut server = start(&["--queue", "50", "--drain", drain]);
        let mut streaming = server.begin(&streamed(endless()));
        server.wait_for(RUNNING, 1.0);
        let mut waiting: Vec<_> = (0..50).map(|_| server.begin(&endless())).collect();
        server.wait_for(WAITING, 50.0);
        server.signal("TERM");
        wait(|| server.get("/health").status == 503, "the drain");
        if signals == 2 {
            server.signal("TERM");
        }
        assert!(waiting.iter_mut().all(|stream| status(stream) == Some(503)));
        let mut said = String::new();
        streaming.read_to_string(&mut said).expect("it ends whole");
        let end = said.find("shutting_down").expect("it says why it ends");
        assert!(said[end..].contains("data: [DONE]"), "{}", &said[end..]);
        drop((streaming, waiting));
        assert!(server.ended().success());
    }
}

#[test]
fn a_field_that_is_there_twice_is_refused_and_within_passed_on_json_the_last_one_counts() {
    let server = Server::start(model(), &["--no-spec"]);
    let body = |fields: &str| {
        format!("{{\"messages\": [{{\"role\": \"user\", \"content\": \"a\"}}], \"max_tokens\": 2, {fields}}}")
    };
    let post = |body: &str| server.post_with("/v1/chat/completions", body, None);
    for (twice, name) in [
        (body("\"max_tokens\": 3"), "max_tokens"),
        (body("\"messages\": []"), "messages"),
        (body("\"seed\": 1, \"seed\": 1"), "seed"),
        (body("\"response_format\": {\"type\": \"text\", \"type\": \"json_object\"}"), "type"),
        (body("\"stream_options\": {\"include_usage\": true, \"include_usage\": false}"), "include_usage"),
        (
            "{\"messages\": [{\"role\": \"user\", \"role\": \"system\", \"content\": \"a\"}]}".to_owned(),
            "role",
        ),
    ] {
        let reply = post(&twice);
        let said = reply.json()["error"]["message"].as_str().expect("a message").to_owned();
        assert_eq!(reply.status, 400, "{said}");
        assert!(said.contains(&format!("`{name}` twice")), "{said}");
    }
    let twice = body(
        "\"user\": 1, \"user\": 2, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", \
         \"schema\": {\"const\": 1, \"const\": 2}}}",
    );
    let answer = answered(&post(&twice));
    assert_eq!(answer["choices"][0]["message"]["content"], "2", "{answer}");
}

#[test]
fn half_a_surrogate_pair_is_refused_in_every_text_that_is_read() {
    let server = Server::start(model(), &["--no-spec"]);
    // Built as values, so that no field is written by hand, with a mark in the place of the text.
    let mark = "MARK";
    let user = json!({"role": "user", "content": "a"});
    let with = |name: &str, value: Value| {
        let mut body = json!({"messages": [user], "max_tokens": 1});
        body[name] = value;
        ("/v1/chat/completions", body)
    };
    let function = |name: &str, about: &str| json!([{"type": "function", "function": {"name": name, "description": about}}]);
    for (path, body) in [
        with("messages", json!([{"role": "user", "content": mark}])),
        with("messages", json!([{"role": mark, "content": "a"}])),
        with("messages", json!([{"role": "user", "content": [{"type": "text", "text": mark}]}])),
        with("model", json!(mark)),
        with("drafter", json!(mark)),
        with("stop", json!(mark)),
        with("stop", json!([mark])),
        with("logit_bias", json!({mark: 1})),
        with("chat_template_kwargs", json!({"x": mark})),
        with("tools", function(mark, "a")),
        with("tools", function("a", mark)),
        with(
            "response_format",
            json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": mark}}}),
        ),
        with("response_format", json!({"type": "grammar", "syntax": "regex", "definition": mark})),
        ("/v1/completions", json!({"prompt": mark})),
        ("/v1/completions", json!({"prompt": [mark]})),
        ("/v1/completions", json!({"prompt": "a", "suffix": mark})),
        ("/v1/responses", json!({"input": mark})),
        ("/v1/responses", json!({"input": "a", "instructions": mark})),
        ("/tokenize", json!({"prompt": mark})),
    ] {
        for half in ["\\ud800", "\\udc00", "a\\ud83dz", "\\udc00\\ud800"] {
            let body = body.to_string().replace(mark, half);
            let reply = server.post_with(path, &body, None);
            assert_eq!(reply.status, 400, "{body}: {reply:?}");
            assert!(reply.json()["error"]["message"].is_string(), "{body}: {reply:?}");
        }
    }
}

#[test]
fn a_short_request_does_not_wait_for_many_long_ones() {
    let server = Server::start(model(), &["--no-spec"]);
    let words = "a long text of many words, ".repeat(4_000);
    let long = json!({"prompt": words}).to_string();
    let head =
        format!("POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", long.len());
    let mut encoded: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = server.connect();
            stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(long.as_bytes()))
                .expect("it listens");
            stream
        })
        .collect();
    // The first may come before the long ones were read.
    (0..3).for_each(|_| drop(answered(&server.chat(&chat("hello", 2)))));
    let is_done = |stream: &&TcpStream| {
        stream.set_nonblocking(true).expect("a socket");
        let is_done = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).expect("a socket");
        is_done
    };
    let done = encoded.iter().filter(is_done).count();
    assert!(done < 12, "a short request was answered behind {done} long ones");
    assert!(encoded.iter_mut().all(|stream| status(stream) == Some(200)));
}

#[test]
fn thousands_of_requests_leave_nothing_in_memory() {
    let server = Server::start(model(), &["--no-spec"]);
    let ask = |count: usize| {
        for i in 0..count {
            let mut body = chat(&format!("hello {i}"), 1);
            body["stream"] = json!(i % 3 == 0);
            assert_eq!(server.chat(&body).status, 200);
            // A client that leaves, and a refusal.
            drop(server.begin(&chat("hello", 4)));
            assert_eq!(server.get("/nowhere").status, 404);
        }
    };
    ask(200);
    let before = server.resident_kib();
    ask(1_000);
    let after = server.resident_kib();
    assert!(after < before + 1024, "{before} KiB, {after} KiB after 3,000 requests");
}

#[test]
fn two_servers_that_begin_on_one_empty_cache_share_one_plan() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let begin = || {
        Server::start_as(on_quick("serve"), |command| {
            command.arg("--cache-dir").arg(folder.path());
        })
    };
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(begin);
        (begin(), one.join().expect("it starts"))
    });
    let body = chat("one and one", 20);
    let said = |server: &Server| text(&answered(&server.chat(&body))).to_owned();
    assert_eq!(said(&one), said(&other));
    let entries = std::fs::read_dir(folder.path().join("plans")).expect("it exists");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("listed").path()).collect();
    names.sort();
    let ends: Vec<_> = names.iter().map(|path| path.extension().and_then(|end| end.to_str())).collect();
    assert_eq!(ends, [Some("plan"), Some("profile"), None], "{names:?}");
    for mut server in [one, other] {
        server.signal("TERM");
        assert!(server.ended().success());
    }
}

#[test]
fn what_others_than_this_machine_can_reach_is_said_at_the_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "sesame").expect("writable");
    let key = key.to_str().expect("UTF-8");
    for (arguments, expected) in [
        (
            &["--host", "0.0.0.0"][..],
            &["warning: all machines", "(0.0.0.0)", "no key is asked for", "--api-key-file"][..],
        ),
        (&["--host", "0.0.0.0", "--api-key-file", key], &["with a key", "/metrics", "nothing is encrypted"]),
        (
            &["--cors-origin", "*"],
            &["warning: programs of this machine and pages of all sites", "no key is asked for"],
        ),
        (&["--host", "::ffff:127.0.0.1"], &[]),
        (&[], &[]),
    ] {
        let mut command = on_machine("serve", long_model());
        command.args(["--no-spec", "--context", "64", "--port", "0", "--model-name", "tiny"]).args(arguments);
        command.env_remove("YGGC_API_KEY").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("yggc starts");
        let mut lines =
            BufReader::new(child.stderr.take().expect("piped")).lines().map(|line| line.expect("UTF-8"));
        let said: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("serving tiny")).collect();
        child.kill().expect("it serves");
        child.wait().expect("it ends");
        let said = said.join("\n");
        assert!(expected.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
        assert_eq!(expected.is_empty(), !said.contains("may use this service"), "{arguments:?}: {said}");
    }
}
