//! A server under load and signals: queues, clients that leave or dawdle, deadlines, drains.

use std::{
    io::{Read, Write},
    path::Path,
    sync::OnceLock,
};

use serde_json::{Value, json};
use yggc::model::synthetic::SyntheticSpec;

use super::server::{Server, chat, endless, status, wait};
use crate::tiny_commands;

/// A model that may speak for long.
pub(super) fn long_model() -> &'static Path {
    static MODEL: OnceLock<std::path::PathBuf> = OnceLock::new();
    let spec = SyntheticSpec { context: 20_000, ..tiny_commands::spec() };
    MODEL.get_or_init(|| tiny_commands::write("served_for_long.gguf", &spec))
}

pub(super) fn start(arguments: &[&str]) -> Server {
    Server::start(long_model(), &[&["--no-spec", "--context", "20000"], arguments].concat())
}

pub(super) const RUNNING: &str = "yggc_requests_running";
pub(super) const WAITING: &str = "yggc_queue_length";

pub(super) fn requests(status: u16) -> String {
    format!("yggc_requests_total{{route=\"/v1/chat/completions\",status=\"{status}\"}}")
}

pub(super) fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

#[test]
fn a_full_queue_refuses_and_clients_that_leave_make_room_within_a_step() {
    let server = start(&["--queue", "1"]);
    let answered = server.begin(&streamed(endless()));
    server.wait_for(RUNNING, 1.0);
    let waiting = server.begin(&endless());
    server.wait_for(WAITING, 1.0);
    let refused = server.chat(&chat("hello", 2));
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "queue_full");
    assert!(refused.header("retry-after").expect("said").parse::<u64>().expect("seconds") >= 1);

    // The one that waits leaves, then the one that is answered.
    drop(waiting);
    server.wait_for(WAITING, 0.0);
    drop(answered);
    server.wait_for(RUNNING, 0.0);
    assert_eq!(server.metric(&requests(499)), 2.0);
    assert_eq!(server.metric(&requests(429)), 1.0);
    let tokens = server.metric("yggc_output_tokens_total");
    assert!(tokens < 15_000.0, "{tokens} tokens were decoded for nobody");
    let next = server.chat(&chat("hello", 2));
    assert_eq!(next.status, 200, "{next:?}");
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let server = start(&[]);
    let mut body = streamed(endless());
    body["max_tokens"] = json!(3_000);
    let dawdling = server.begin(&body);
    server.wait_for(RUNNING, 1.0);
    // Its answer is decoded to the end, and the next one is answered while nobody reads it.
    assert_eq!(server.chat(&chat("hello", 2)).status, 200);
    assert!(server.metric("yggc_output_tokens_total") >= 3_000.0);
    let mut whole = String::new();
    let mut reading = dawdling;
    let mut bytes = [0; 4096];
    while !whole.contains("[DONE]") {
        let read = reading.read(&mut bytes).expect("it goes on");
        assert!(read > 0, "it ended early: {whole}");
        whole.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    assert!(whole.contains("\"finish_reason\":\"length\""), "{whole}");
}

#[test]
fn a_deadline_ends_what_takes_too_long() {
    let server = start(&["--timeout", "1"]);
    let late = server.chat(&endless());
    assert_eq!((late.status, late.json()["error"]["code"].as_str()), (504, Some("deadline_exceeded")));
    let late = server.chat(&streamed(endless()));
    let events = late.events();
    assert_eq!((late.status, events.last().map(String::as_str)), (200, Some("[DONE]")));
    assert!(events[events.len() - 2].contains("deadline_exceeded"), "{:?}", events[events.len() - 2]);
    server.wait_for(RUNNING, 0.0);
    assert_eq!(server.metric(&requests(504)), 2.0);

    // A body that does not come.
    let mut slow = server.connect();
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{\"model\"";
    slow.write_all(head.as_bytes()).expect("it listens");
    assert_eq!(status(&mut slow), Some(408));
    assert_eq!(server.chat(&chat("hello", 2)).status, 200);
}

#[test]
fn a_head_that_does_not_come_and_too_many_connections_hold_nobody_up_for_good() {
    let server = start(&["--connections", "3"]);
    let mut slow = [0, 1, 2].map(|_| server.connect());
    for stream in &mut slow {
        stream.write_all(b"POST /v1/chat/completions HTT").expect("it listens");
    }
    // All places are taken; the next client is served when the others' time is over.
    assert_eq!(server.chat(&chat("hello", 2)).status, 200);
    for stream in &mut slow {
        assert!(matches!(status(stream), None | Some(408)), "a head that never came was answered");
    }
}

#[test]
fn a_signal_lets_answers_end_and_begins_none() {
    for name in ["TERM", "INT"] {
        let mut server = start(&["--drain", "300"]);
        let mut body = endless();
        body["max_tokens"] = json!(2_000);
        let mut answered = server.begin(&body);
        server.wait_for(RUNNING, 1.0);
        let mut waiting = server.begin(&chat("hello", 2));
        server.wait_for(WAITING, 1.0);
        server.signal(name);
        wait(|| server.get("/health").json()["status"] == "draining", "the drain");
        let refused = server.chat(&chat("hello", 2));
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("shutting_down")));
        assert_eq!(status(&mut answered), Some(200), "{name}: what was begun is answered");
        assert_eq!(status(&mut waiting), Some(200), "{name}: what waited too");
        let mut rest = String::new();
        answered.read_to_string(&mut rest).expect("whole");
        assert!(rest.contains("\"completion_tokens\":2000"), "{name}: {rest}");
        drop((answered, waiting));
        assert!(server.ended().success(), "{name}");
    }
}

#[test]
fn a_request_that_comes_after_the_drain_began_is_answered_on_a_connection_from_before() {
    let mut server = start(&["--drain", "3600"]);
    let mut answered = server.begin(&endless());
    server.wait_for(RUNNING, 1.0);
    let [mut early, silent] = [(); 2].map(|()| server.connect());
    // Connections are accepted in order, so both were.
    assert_eq!(server.get("/health").status, 200);
    server.signal("TERM");
    wait(|| server.get("/health").status == 503, "the drain");
    early.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it is open");
    assert_eq!(status(&mut early), Some(503));
    server.signal("TERM");
    assert_eq!(status(&mut answered), Some(503));
    drop(answered);
    assert!(server.ended().success(), "a connection without a request held the end up");
    drop((early, silent));
}

#[test]
fn bodies_that_do_not_come_hold_neither_places_nor_the_end_up_for_good() {
    let mut server = start(&["--connections", "4", "--drain", "3600"]);
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{\"model\"";
    let begin = || {
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).expect("it listens");
        stream
    };
    let mut slow = [(); 3].map(|()| begin());
    assert_eq!(server.get("/health").status, 200);
    assert!(slow.iter_mut().all(|stream| status(stream) == Some(408)));
    let mut last = begin();
    // Answered after the head of that request.
    assert_eq!(server.get("/health").status, 200);
    server.signal("TERM");
    assert_eq!(status(&mut last), Some(503));
    drop((slow, last));
    assert!(server.ended().success());
}

#[test]
fn a_drain_ends_some_time() {
    let mut server = start(&["--drain", "1"]);
    let mut answered = server.begin(&endless());
    let mut waiting = server.begin(&endless());
    server.wait_for(WAITING, 1.0);
    server.signal("TERM");
    assert_eq!([status(&mut answered), status(&mut waiting)], [Some(503), Some(503)]);
    drop((answered, waiting));
    assert!(server.ended().success());

    // A second signal does not wait for the drain.
    let mut server = start(&["--drain", "3600"]);
    let mut answered = server.begin(&endless());
    server.wait_for(RUNNING, 1.0);
    server.signal("INT");
    wait(|| server.get("/health").status == 503, "the drain");
    server.signal("INT");
    assert_eq!(status(&mut answered), Some(503));
    drop(answered);
    assert!(server.ended().success());
}
