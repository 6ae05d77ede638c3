//! Reads a request's body within limits of size and time, and says when it may be encoded.

use std::{error::Error, future::poll_fn, pin::Pin, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, StatusCode, header},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

use super::answers::Refused;

/// Longest time for a client to send a body: one that sends none holds a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// Deepest objects and arrays of a body, schemas within it included. Those that read JSON recurse.
const MOST_NESTED: usize = 100;

/// Bytes from which on a body is long: one of a mebibyte takes seconds to encode on a slow machine, one of these a
/// sixteenth of that.
const LONG: usize = 64 << 10;

/// One long body is encoded at a time: there are two threads for encoding, so a short one never waits for many long
/// ones.
static LONG_BODIES: Semaphore = Semaphore::const_new(1);

/// Waits until a body of so many bytes may be encoded, which it is while the turn is kept.
pub(super) async fn turn(bytes: usize) -> Option<SemaphorePermit<'static>> {
    match bytes {
        ..LONG => None,
        // It is never closed.
        LONG.. => LONG_BODIES.acquire().await.ok(),
    }
}

/// The bytes of a body, at most `most`, all received before `deadline` and within [`BODY_TIMEOUT`].
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    most: usize,
    deadline: Instant,
) -> Result<Vec<u8>, Refused> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > most as u64) {
        return Err(too_large(most));
    }
    match timeout_at(deadline.min(Instant::now() + BODY_TIMEOUT), whole(body, most)).await {
        Ok(read) => read.and_then(check_nesting),
        Err(_) => {
            let what = "the body did not come in time; send it faster";
            Err(Refused::new(StatusCode::REQUEST_TIMEOUT, what))
        }
    }
}

fn check_nesting(body: Vec<u8>) -> Result<Vec<u8>, Refused> {
    let found = nesting(&body);
    if found <= MOST_NESTED {
        return Ok(body);
    }
    let what = format!(
        "the body: expected objects and arrays nested at most {MOST_NESTED} deep, found {found}; flatten it"
    );
    Err(Refused::request(what))
}

/// How deep the objects and arrays of JSON are nested, those in strings not counted.
fn nesting(json: &[u8]) -> usize {
    let (mut level, mut deepest) = (0_usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => level += 1,
            b'}' | b']' => level = level.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next().filter(|byte| **byte != b'"') {
                    if *byte == b'\\' {
                        bytes.next();
                    }
                }
            }
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

async fn whole(mut body: Body, most: usize) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| ended_early(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > most {
            return Err(too_large(most));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

fn ended_early(error: &dyn Error) -> Refused {
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        // Errors that merely wrap another say the same words.
        let said = deeper.to_string();
        if !why.ends_with(&said) {
            why.push_str(&format!(": {said}"));
        }
        cause = deeper.source();
    }
    let what =
        "expected as many bytes as Content-Length says, or chunks that are well formed; send all of it";
    Refused::request(format!("the body ended early: {why}: {what}"))
}

fn too_large(most: usize) -> Refused {
    let what = format!("the body is too large: expected at most {most} bytes; send a shorter prompt");
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_of_strings() {
        for (json, expected) in [
            ("", 0),
            ("1", 0),
            ("[[{}]]", 3),
            (r#"{"a[[[": "{{\"[{", "b": [1]}"#, 2),
            (r#""\\" [["#, 2),
            ("]]][", 1),
        ] {
            assert_eq!(nesting(json.as_bytes()), expected, "{json}");
        }
        assert!(check_nesting("[".repeat(MOST_NESTED).into()).is_ok());
        let refused = check_nesting("[".repeat(100_000).into()).unwrap_err();
        assert!(
            refused.status == 400 && refused.message.contains("at most 100 deep, found 100000"),
            "{refused:?}"
        );
    }
}
