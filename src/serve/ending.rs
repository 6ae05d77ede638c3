//! The end of a request: its status is counted exactly once, and its decoding is cancelled if it still runs.

use std::{
    io::{self, Write},
    sync::Arc,
};

use axum::{
    Json,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tokio::time::Instant;
use yggc::engine::CancelHandle;

use super::{
    answers::{Endpoint, Refused},
    routes::Service,
    spans::Span,
};

/// Status counted for a client that left before its answer was complete, as reverse proxies do.
const CLIENT_LEFT: u16 = 499;

/// A running request. Dropping it without [`end`](Self::end) means that its client left.
#[derive(Debug)]
pub(super) struct Ending {
    service: Arc<Service>,
    route: &'static str,
    arrived: Instant,
    cancel: CancelHandle,
    span: Span,
    has_ended: bool,
}

impl Ending {
    /// For a request to `endpoint` that arrived with these headers.
    pub(super) fn new(
        service: Arc<Service>,
        endpoint: Endpoint,
        headers: &HeaderMap,
        arrived: Instant,
    ) -> Self {
        let span = service.spans.begin(endpoint, headers, arrived);
        Self::of_route(service, endpoint.route(), span, arrived)
    }

    /// For a request to a path that arrived then.
    pub(super) fn of_route(service: Arc<Service>, route: &'static str, span: Span, arrived: Instant) -> Self {
        Self { service, route, arrived, cancel: CancelHandle::new(), span, has_ended: false }
    }

    /// The span of the request.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// A handle that cancels the request.
    pub(super) fn cancel(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Ends the request with a status.
    pub(super) fn end(&mut self, status: StatusCode) {
        self.end_with(status.as_u16());
    }

    /// Ends the request with what it is answered.
    pub(super) fn with(mut self, answer: Result<Value, Refused>) -> Response {
        match answer {
            Ok(answer) => {
                self.end(StatusCode::OK);
                Json(answer).into_response()
            }
            Err(refused) => {
                self.end(refused.status);
                refused.into_response()
            }
        }
    }

    fn end_with(&mut self, status: u16) {
        if !self.has_ended {
            self.has_ended = true;
            self.cancel.cancel();
            let took = self.arrived.elapsed();
            self.service.metrics.request(self.route, status, took);
            self.span.end(status);
            if self.service.settings.logs_requests {
                // A closed stderr is no reason to fail a request.
                let _ = writeln!(io::stderr(), "{} {status} {:.3} s", self.route, took.as_secs_f64());
            }
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end_with(CLIENT_LEFT);
    }
}
