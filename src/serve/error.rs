//! Why the service cannot run.

use std::{io, net::SocketAddr};

/// What ends the service, or keeps it from beginning.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The address is another's, or not this machine's.
    #[error("cannot listen on {address}: {source}; choose another with --host and --port")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses threads or what the reactor waits with.
    #[error("the system refuses what serving needs: {0}; close other programs or raise its limits")]
    Threads(io::Error),
    /// The system refuses to say when the program is to end.
    #[error("the system refuses to report signals: {0}")]
    Signals(io::Error),
    /// The thread that decodes panicked.
    #[error("the decoder ended before its time")]
    Decoder,
}
