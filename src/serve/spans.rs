//! Spans of OpenTelemetry: one for each generating request, and in it the prefill and the decoding of each answer.
//!
//! They are recorded along with the metrics, a few times a request and never within a step, and sent by the SDK's own
//! thread to where its variables say. A request that carries a W3C `traceparent` continues that trace. Attributes
//! follow the semantic conventions for generative AI (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>) and, for
//! latencies, vLLM. Without the feature `otel`, `no_spans.rs` stands here.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::http::{HeaderMap, StatusCode};
use opentelemetry::{
    Array, Context, InstrumentationScope, KeyValue, StringValue, Value,
    propagation::TextMapPropagator,
    trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider},
};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request as Post, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{SdkTracer, SdkTracerProvider, Span as SdkSpan},
};
use tokio::time::Instant;
use tracing_subscriber::filter::LevelFilter;
use yggc::engine::{FinishReason, Report, Request};

use super::{
    ServeError,
    answers::{Endpoint, Frame},
};

/// Where spans of requests begin, if they are sent anywhere.
#[derive(Debug)]
pub(super) struct Spans(Option<(SdkTracerProvider, SdkTracer)>);

/// The span of a request, if it is recorded; shared by whoever knows more of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Span(Option<Arc<Mutex<Recorded>>>);

#[derive(Debug)]
struct Recorded {
    tracer: SdkTracer,
    span: SdkSpan,
    /// Prefill or decoding, whichever runs.
    part: Option<SdkSpan>,
    endpoint: Endpoint,
    arrived: Instant,
    reasons: Vec<StringValue>,
    tokens: usize,
}

impl Spans {
    /// Begins to send spans, if an export may take a time; its other settings are the SDK's variables.
    ///
    /// # Errors
    /// [`ServeError::Spans`] when a variable means nothing.
    pub(super) fn start(timeout: Option<Duration>) -> Result<Self, ServeError> {
        let Some(timeout) = timeout else { return Ok(Self(None)) };
        // What the SDK makes of its variables, and spans that are lost, are its warnings.
        let warnings = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::stderr);
        warnings.without_time().init();
        let agent = ureq::Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
        let client = Client(agent.build().into());
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build()?;
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
        let scope = InstrumentationScope::builder("yggc").with_version(env!("CARGO_PKG_VERSION"));
        let tracer = provider.tracer_with_scope(scope.build());
        Ok(Self(Some((provider, tracer))))
    }

    /// The span of a request that arrived.
    pub(super) fn begin(&self, endpoint: Endpoint, headers: &HeaderMap, arrived: Instant) -> Span {
        let Some((_, tracer)) = &self.0 else { return Span(None) };
        let caller = TraceContextPropagator::new();
        let caller = caller.extract_with_context(&Context::new(), &HeaderExtractor(headers));
        let builder = SpanBuilder::from_name(operation(endpoint)).with_kind(SpanKind::Server);
        let builder = builder.with_attributes([
            KeyValue::new("gen_ai.operation.name", operation(endpoint)),
            KeyValue::new("gen_ai.provider.name", "yggc"),
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", endpoint.route()),
        ]);
        let span = tracer.build_with_context(builder, &caller);
        let (tracer, reasons) = (tracer.clone(), Vec::new());
        let recorded = Recorded { tracer, span, part: None, endpoint, arrived, reasons, tokens: 0 };
        Span(recorded.span.is_recording().then(|| Arc::new(Mutex::new(recorded))))
    }

    /// Sends what is left.
    pub(super) fn end(&self) {
        if let Some((provider, _)) = &self.0 {
            // Its failure is one of the SDK's warnings.
            let _ = provider.shutdown();
        }
    }
}

fn operation(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Chat | Endpoint::Responses => "chat",
        Endpoint::Completions => "text_completion",
    }
}

impl Span {
    fn record(&self, what: impl FnOnce(&mut Recorded)) {
        if let Some(recorded) = &self.0 {
            // A panic cannot leave a half-made change under the lock.
            what(&mut recorded.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// What was asked: the requests that answer it, and the tokens of their prompts.
    pub(super) fn asked(&self, frame: &Frame, requests: &[Request], prompt_tokens: usize) {
        self.record(|Recorded { span, endpoint, .. }| {
            span.update_name(format!("{} {}", operation(*endpoint), frame.model));
            span.set_attributes([
                KeyValue::new("gen_ai.request.model", frame.model.clone()),
                KeyValue::new("gen_ai.response.model", frame.model.clone()),
                KeyValue::new("gen_ai.response.id", frame.id.clone()),
                KeyValue::new("gen_ai.request.choice.count", integer(requests.len())),
                KeyValue::new("gen_ai.usage.input_tokens", integer(prompt_tokens)),
            ]);
            if let [request, ..] = requests {
                let sampling = &request.sampling;
                span.set_attributes([
                    KeyValue::new("gen_ai.request.max_tokens", integer(request.max_tokens)),
                    KeyValue::new("gen_ai.request.temperature", f64::from(sampling.temperature)),
                    KeyValue::new("gen_ai.request.top_p", f64::from(sampling.top_p)),
                    KeyValue::new("gen_ai.request.top_k", integer(sampling.top_k)),
                    // A seed of more bits is none of OTLP's numbers.
                    KeyValue::new("gen_ai.request.seed", sampling.seed.cast_signed()),
                ]);
            }
        });
    }

    /// The decoder begins with an answer.
    pub(super) fn began(&self) {
        self.record(|span| {
            if span.reasons.is_empty() {
                span.took("gen_ai.latency.time_in_queue");
            }
            span.begin("prefill");
        });
    }

    /// The first token of an answer is there.
    pub(super) fn first_token(&self) {
        self.record(|span| {
            if span.reasons.is_empty() {
                span.took("gen_ai.latency.time_to_first_token");
            }
            span.begin("decoding");
        });
    }

    /// An answer is over.
    pub(super) fn finished(&self, reason: FinishReason, report: &Report) {
        self.record(|span| {
            span.reasons.push(reason.name().into());
            span.tokens += report.tokens;
            if let Some(mut part) = span.part.take() {
                part.set_attributes([
                    KeyValue::new("gen_ai.usage.output_tokens", integer(report.tokens)),
                    KeyValue::new("yggc.prompt.reused_tokens", integer(report.reused_tokens)),
                    KeyValue::new("yggc.drafter", report.drafter.clone()),
                    KeyValue::new("yggc.steps", integer(report.steps)),
                    KeyValue::new("yggc.drafted_tokens", integer(report.drafted)),
                    KeyValue::new("yggc.accepted_tokens", integer(report.accepted)),
                ]);
            }
        });
    }

    /// The request is over with a status.
    pub(super) fn end(&self, status: u16) {
        self.record(|recorded| {
            recorded.took("gen_ai.latency.e2e");
            let Recorded { span, endpoint, reasons, tokens, .. } = recorded;
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
            if !reasons.is_empty() {
                let reasons = Value::Array(Array::String(std::mem::take(reasons)));
                span.set_attribute(KeyValue::new("gen_ai.response.finish_reasons", reasons));
                span.set_attribute(KeyValue::new("gen_ai.usage.output_tokens", integer(*tokens)));
            }
            if status >= StatusCode::BAD_REQUEST.as_u16() {
                span.set_attribute(KeyValue::new("error.type", status.to_string()));
            }
            // A server's span fails by what is the server's fault.
            if status >= StatusCode::INTERNAL_SERVER_ERROR.as_u16() {
                span.set_status(Status::error(format!("{} ended with {status}", endpoint.route())));
            }
            span.end();
        });
    }
}

impl Recorded {
    /// Begins a part of the request, which ends the one before.
    fn begin(&mut self, name: &'static str) {
        let own = Context::new().with_remote_span_context(self.span.span_context().clone());
        self.part = Some(self.tracer.build_with_context(SpanBuilder::from_name(name), &own));
    }

    /// The time since the request arrived, as an attribute.
    fn took(&mut self, attribute: &'static str) {
        self.span.set_attribute(KeyValue::new(attribute, self.arrived.elapsed().as_secs_f64()));
    }
}

/// A count as OpenTelemetry's integer.
fn integer(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// What sends spans, on the SDK's thread: the program's own HTTP client.
#[derive(Debug)]
struct Client(ureq::Agent);

impl HttpClient for Client {
    fn send_bytes<'client, 'sent>(
        &'client self,
        request: Post<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'sent>>
    where
        'client: 'sent,
        Self: 'sent,
    {
        Box::pin(async move {
            let (head, mut body) = self.0.run(request.map(Vec::from))?.into_parts();
            Ok(Response::from_parts(head, body.read_to_vec()?.into()))
        })
    }
}
