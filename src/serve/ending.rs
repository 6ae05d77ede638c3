//! The end of a request: its status is counted exactly once, and its decoding is cancelled if it still runs.

use std::sync::Arc;

use axum::http::StatusCode;
use yggc::engine::CancelHandle;

use super::metrics::Metrics;

/// Status counted for a client that left before its answer was complete, as reverse proxies do.
const CLIENT_LEFT: u16 = 499;

/// A running request. Dropping it without [`end`](Self::end) means that its client left.
#[derive(Debug)]
pub(super) struct Ending {
    metrics: Arc<Metrics>,
    route: &'static str,
    cancel: CancelHandle,
    has_ended: bool,
}

impl Ending {
    pub(super) fn new(metrics: Arc<Metrics>, route: &'static str) -> Self {
        Self { metrics, route, cancel: CancelHandle::new(), has_ended: false }
    }

    /// A handle that cancels the request.
    pub(super) fn cancel(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Ends the request with a status.
    pub(super) fn end(&mut self, status: StatusCode) {
        self.end_with(status.as_u16());
    }

    fn end_with(&mut self, status: u16) {
        if !self.has_ended {
            self.has_ended = true;
            self.cancel.cancel();
            self.metrics.request(self.route, status);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end_with(CLIENT_LEFT);
    }
}
