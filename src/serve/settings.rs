//! What the service was told when it was started.

use std::{net::SocketAddr, time::Duration};

use super::ApiKey;

/// How the service is run.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where it listens; port 0 lets the system choose.
    pub(crate) address: SocketAddr,
    /// The name that requests call the model by.
    pub(crate) model_name: String,
    /// What requests must bring, if anything.
    pub(crate) key: Option<ApiKey>,
    /// Drafter of requests that name none: `plan`, `none`, or a drafter.
    pub(crate) drafter: String,
    /// What requests may take.
    pub(crate) limits: Limits,
}

/// What requests may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Requests that wait while one is answered.
    pub(crate) queue: usize,
    /// Connections at once.
    pub(crate) connections: usize,
    /// Bytes of a body.
    pub(crate) body_bytes: usize,
    /// Tokens of a prompt; the context bounds them as well.
    pub(crate) prompt_tokens: usize,
    /// Tokens of an answer; the context bounds them as well.
    pub(crate) output_tokens: usize,
    /// From the last byte of a request's head to the last of its answer.
    pub(crate) deadline: Duration,
    /// What a drain waits for answers.
    pub(crate) drain: Duration,
}
