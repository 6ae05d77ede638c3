//! Spans of OpenTelemetry in a build without the feature `otel`: there are none. `spans.rs` says what each call
//! records.

use std::{
    io::{self, Write},
    time::Duration,
};

use axum::http::HeaderMap;
use tokio::time::Instant;
use yggc::engine::{FinishReason, Report, Request};

use super::{
    ServeError,
    answers::{Endpoint, Frame},
};

#[derive(Debug)]
pub(super) struct Spans;

#[derive(Debug, Clone, Default)]
pub(super) struct Span {}

impl Spans {
    pub(super) fn start(timeout: Option<Duration>) -> Result<Self, ServeError> {
        if timeout.is_some() {
            // A closed stderr is no reason to end.
            let _ = writeln!(
                io::stderr(),
                "$OTEL_EXPORTER_OTLP_ENDPOINT asks for spans, which this build cannot send; build it with --features \
                 otel, or unset the variable"
            );
        }
        Ok(Self)
    }

    pub(super) fn begin(&self, _: Endpoint, _: &HeaderMap, _: Instant) -> Span {
        Span {}
    }

    pub(super) fn end(&self) {}
}

impl Span {
    pub(super) fn asked(&self, _: &Frame, _: &[Request], _: usize) {}
    pub(super) fn began(&self) {}
    pub(super) fn first_token(&self) {}
    pub(super) fn finished(&self, _: FinishReason, _: &Report) {}
    pub(super) fn end(&self, _: u16) {}
}
