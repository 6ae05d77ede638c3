//! Spans of OpenTelemetry: one for each generating request, and in it the prefill and the decoding of each answer.
//!
//! They are recorded beside the metrics, a few times a request and never within a step, and sent by [`span_export`](super::span_export). A request
//! that carries a W3C `traceparent` continues that trace. Attributes follow the semantic conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>) and, for latencies, vLLM.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError, mpsc::SyncSender},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;
use yggc::engine::{FinishReason, Report, Request};

use super::{
    answers::{Endpoint, Frame},
    span_export::{Message, Sampler},
};

/// Kinds of spans in OTLP.
const INTERNAL: u32 = 1;
const SERVER: u32 = 2;
/// The status of a span that failed, in OTLP.
const FAILED: u32 = 2;

/// Where spans of requests begin.
#[derive(Debug)]
pub(super) struct Spans {
    pub(super) sampler: Sampler,
    pub(super) sender: SyncSender<Message>,
}

/// The span of a request, shared by whoever knows more of it.
#[derive(Debug, Clone)]
pub(super) struct Span(Arc<Mutex<Recorded>>);

#[derive(Debug)]
struct Recorded {
    trace: Trace,
    id: u64,
    name: String,
    route: &'static str,
    arrived: Instant,
    /// Nanoseconds since 1970 at the arrival.
    arrived_ns: u64,
    attributes: Vec<(&'static str, Value)>,
    reasons: Vec<&'static str>,
    tokens: usize,
    /// When the answer that runs began.
    began: Option<Instant>,
    parts: Vec<Part>,
    sender: SyncSender<Message>,
}

/// A part of a request: a span within its own.
#[derive(Debug)]
struct Part {
    name: &'static str,
    from: Instant,
    to: Instant,
    attributes: Vec<(&'static str, Value)>,
}

/// Where a span belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trace {
    id: u128,
    /// The span of the caller.
    parent: Option<u64>,
    state: String,
}

impl Trace {
    /// The caller's trace, or a new one; and whether the caller records it, if there is a caller.
    fn of(headers: &HeaderMap) -> (Self, Option<bool>) {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match parent(text("traceparent")) {
            Some((id, parent, is_recorded)) => {
                (Self { id, parent: Some(parent), state: text("tracestate").to_owned() }, Some(is_recorded))
            }
            None => {
                let id = u128::from(random()) << 64 | u128::from(random());
                (Self { id, parent: None, state: String::new() }, None)
            }
        }
    }
}

/// Trace, span and whether it is recorded, of a `traceparent` (<https://www.w3.org/TR/trace-context/>).
fn parent(header: &str) -> Option<(u128, u64, bool)> {
    let mut fields = header.trim().split('-');
    let mut field = |digits: usize| {
        let field = fields.next()?;
        let is_hex = field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (field.len() == digits && is_hex).then_some(field)
    };
    let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    let is_over = fields.next().is_none();
    if version == "ff" || (version == "00" && !is_over) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
    let span = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some((trace, span, flags & 1 == 1))
}

/// An id that no other has.
fn random() -> u64 {
    RandomState::new().hash_one(()).max(1)
}

impl Spans {
    /// The span of a request that arrived, if it is to be recorded.
    pub(super) fn begin(&self, endpoint: Endpoint, headers: &HeaderMap, arrived: Instant) -> Option<Span> {
        let (trace, is_recorded) = Trace::of(headers);
        if !self.sampler.takes(trace.id, is_recorded) {
            return None;
        }
        let operation = match endpoint {
            Endpoint::Chat | Endpoint::Responses => "chat",
            Endpoint::Completions => "text_completion",
        };
        let attributes = vec![
            ("gen_ai.operation.name", json!(operation)),
            ("gen_ai.provider.name", json!("yggc")),
            ("http.request.method", json!("POST")),
            ("http.route", json!(endpoint.route())),
        ];
        Some(Span(Arc::new(Mutex::new(Recorded {
            trace,
            id: random(),
            name: operation.to_owned(),
            route: endpoint.route(),
            arrived,
            arrived_ns: nanoseconds_since_1970().saturating_sub(nanoseconds(arrived.elapsed())),
            attributes,
            reasons: Vec::new(),
            tokens: 0,
            began: None,
            parts: Vec::new(),
            sender: self.sender.clone(),
        }))))
    }
}

impl Span {
    fn record(&self, what: impl FnOnce(&mut Recorded)) {
        // A panic cannot leave a half-made change under the lock.
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What was asked: the requests that answer it, and the tokens of their prompts.
    pub(super) fn asked(&self, frame: &Frame, requests: &[Request], prompt_tokens: usize) {
        self.record(|span| {
            span.name = format!("{} {}", span.name, frame.model);
            span.attributes.extend([
                ("gen_ai.request.model", json!(frame.model)),
                ("gen_ai.response.model", json!(frame.model)),
                ("gen_ai.response.id", json!(frame.id)),
                ("gen_ai.request.choice.count", json!(requests.len())),
                ("gen_ai.usage.input_tokens", json!(prompt_tokens)),
            ]);
            if let [request, ..] = requests {
                let sampling = &request.sampling;
                span.attributes.extend([
                    ("gen_ai.request.max_tokens", json!(request.max_tokens)),
                    ("gen_ai.request.temperature", json!(sampling.temperature)),
                    ("gen_ai.request.top_p", json!(sampling.top_p)),
                    ("gen_ai.request.top_k", json!(sampling.top_k)),
                    // A seed of more bits is none of OTLP's numbers.
                    ("gen_ai.request.seed", json!(sampling.seed.cast_signed())),
                ]);
            }
        });
    }

    /// The decoder begins with its first answer.
    pub(super) fn began(&self) {
        self.record(|span| {
            let now = Instant::now();
            span.began = Some(now);
            span.attributes.push(("gen_ai.latency.time_in_queue", seconds(now.duration_since(span.arrived))));
        });
    }

    /// The first token is there.
    pub(super) fn first_token(&self) {
        self.record(|span| {
            span.attributes.push(("gen_ai.latency.time_to_first_token", seconds(span.arrived.elapsed())));
        });
    }

    /// An answer is over; the next begins.
    pub(super) fn finished(&self, reason: FinishReason, report: &Report) {
        self.record(|span| {
            let now = Instant::now();
            let from = span.began.replace(now).unwrap_or(now);
            let prefilled = (from + Duration::from_secs_f64(report.ttft_ms.max(0.0) / 1e3)).min(now);
            let prefill = vec![("yggc.prompt.reused_tokens", json!(report.reused_tokens))];
            let decoding = vec![
                ("gen_ai.usage.output_tokens", json!(report.tokens)),
                ("yggc.drafter", json!(report.drafter)),
                ("yggc.steps", json!(report.steps)),
                ("yggc.drafted_tokens", json!(report.drafted)),
                ("yggc.accepted_tokens", json!(report.accepted)),
            ];
            span.parts.push(Part { name: "prefill", from, to: prefilled, attributes: prefill });
            span.parts.push(Part { name: "decoding", from: prefilled, to: now, attributes: decoding });
            span.reasons.push(reason.name());
            span.tokens += report.tokens;
        });
    }

    /// The request is over with a status, and its spans are sent.
    pub(super) fn end(&self, status: u16) {
        self.record(|span| {
            let spans = span.as_json(status, span.arrived.elapsed());
            // A collector that does not keep up loses spans, and requests no time.
            let _lost = span.sender.try_send(Message::Spans(spans));
        });
    }
}

impl Recorded {
    /// The spans as OTLP writes them.
    fn as_json(&mut self, status: u16, took: Duration) -> Vec<Value> {
        let mut attributes = std::mem::take(&mut self.attributes);
        attributes.push(("http.response.status_code", json!(status)));
        attributes.push(("gen_ai.latency.e2e", seconds(took)));
        if !self.reasons.is_empty() {
            attributes.push(("gen_ai.response.finish_reasons", json!(self.reasons)));
            attributes.push(("gen_ai.usage.output_tokens", json!(self.tokens)));
        }
        let is_error = status >= StatusCode::BAD_REQUEST.as_u16();
        if is_error {
            attributes.push(("error.type", json!(status.to_string())));
        }
        let own = Written {
            id: self.id,
            parent: self.trace.parent,
            name: &self.name,
            kind: SERVER,
            from: self.arrived,
            to: self.arrived + took,
        };
        let mut spans = vec![self.written(&own, &attributes)];
        // A server's span fails by what is the server's fault.
        if status >= StatusCode::INTERNAL_SERVER_ERROR.as_u16() {
            spans[0]["status"] =
                json!({"code": FAILED, "message": format!("{} ended with {status}", self.route)});
        }
        for Part { name, from, to, attributes } in &self.parts {
            let part =
                Written { id: random(), parent: Some(self.id), name, kind: INTERNAL, from: *from, to: *to };
            spans.push(self.written(&part, attributes));
        }
        spans
    }

    fn written(&self, span: &Written<'_>, attributes: &[(&'static str, Value)]) -> Value {
        let Written { id, parent, name, kind, from, to } = span;
        let at = |instant: &Instant| {
            (self.arrived_ns + nanoseconds(instant.duration_since(self.arrived))).to_string()
        };
        let attributes = attributes.iter().map(|(name, value)| attribute(name, value));
        json!({
            "traceId": format!("{:032x}", self.trace.id),
            "spanId": format!("{id:016x}"),
            "parentSpanId": parent.map_or_else(String::new, |id| format!("{id:016x}")),
            "traceState": self.trace.state,
            "flags": 1,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": at(from),
            "endTimeUnixNano": at(to),
            "attributes": attributes.collect::<Vec<_>>(),
        })
    }
}

/// A span's own fields.
struct Written<'a> {
    id: u64,
    parent: Option<u64>,
    name: &'a str,
    kind: u32,
    from: Instant,
    to: Instant,
}

/// An attribute as OTLP writes it: integers are texts.
pub(super) fn attribute(key: &str, value: &Value) -> Value {
    json!({"key": key, "value": any_value(value)})
}

fn any_value(value: &Value) -> Value {
    match value {
        Value::Null | Value::Object(_) => json!({"stringValue": value.to_string()}),
        Value::Bool(value) => json!({"boolValue": value}),
        Value::String(text) => json!({"stringValue": text}),
        Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::Array(values) => {
            json!({"arrayValue": {"values": values.iter().map(any_value).collect::<Vec<_>>()}})
        }
    }
}

fn seconds(time: Duration) -> Value {
    json!(time.as_secs_f64())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "spans say when they began; nothing depends on it")]
fn nanoseconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_trace_is_continued_and_nonsense_begins_a_new_one() {
        let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let (trace, span) = (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, 0xb7ad_6b71_6920_3331);
        assert_eq!(parent(given), Some((trace, span, true)));
        assert_eq!(parent(&given.replace("-01", "-02")), Some((trace, span, false)));
        assert_eq!(
            parent(&given.replace("00-", "cc-").replace("-01", "-01-more")),
            Some((trace, span, true))
        );
        for bad in [
            String::new(),
            given.replace("00-", "ff-"),
            given.replace("-01", "-01-more"),
            given.replace("-01", "-1"),
            given.replace("0af7", "0AF7"),
            given.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            given.replace("b7ad6b7169203331", &"0".repeat(16)),
        ] {
            assert_eq!(parent(&bad), None, "{bad}");
        }
        let mut headers = HeaderMap::new();
        let (new, is_recorded) = Trace::of(&headers);
        assert_eq!((new.parent, is_recorded), (None, None));
        assert_ne!(Trace::of(&headers).0.id, new.id);
        headers.insert("traceparent", given.parse().unwrap());
        headers.insert("tracestate", "a=b".parse().unwrap());
        let continued = Trace { id: trace, parent: Some(span), state: "a=b".to_owned() };
        assert_eq!(Trace::of(&headers), (continued, Some(true)));
    }

    #[test]
    fn attributes_have_otlps_types() {
        for (value, written) in [
            (json!("a"), json!({"stringValue": "a"})),
            (json!(3), json!({"intValue": "3"})),
            (json!(0.5), json!({"doubleValue": 0.5})),
            (json!(true), json!({"boolValue": true})),
            (json!(["a"]), json!({"arrayValue": {"values": [{"stringValue": "a"}]}})),
        ] {
            assert_eq!(attribute("k", &value), json!({"key": "k", "value": written}));
        }
    }
}
