//! Why the service cannot run.

use std::{io, net::SocketAddr};

/// Failures that end the service or prevent its start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The address is in use, or not one of this machine.
    #[error("cannot listen on {address}: {source}; choose another with --host and --port")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system refuses threads or the reactor's event queue.
    #[error("the system refuses what serving needs: {0}; close other programs or raise its limits")]
    Threads(io::Error),
    /// The system refuses signal handlers.
    #[error("the system refuses to report signals: {0}")]
    Signals(io::Error),
    /// A variable of OpenTelemetry is of no meaning.
    #[cfg(feature = "otel")]
    #[error("spans cannot be sent: {0}; correct the variable of OpenTelemetry, or unset it")]
    Spans(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The decoding thread panicked.
    #[error("the decoder ended before its time")]
    Decoder,
}
