//! Settings of the service.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::ApiKey;

/// Settings of a running service.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Address to listen on; port 0 lets the system choose.
    pub(crate) address: SocketAddr,
    /// Name of the model in requests.
    pub(crate) model_name: String,
    /// Keys of which requests must send one; without any, all requests are answered.
    pub(crate) keys: Vec<ApiKey>,
    /// Origins of web pages that may use the service, in lower case; `*` is all.
    pub(crate) origins: Vec<String>,
    /// Whether browsers get a page at `/`.
    pub(crate) page: bool,
    /// Whether every request is a line on stderr.
    pub(crate) logs_requests: bool,
    /// Longest time of an export of spans; none are sent without.
    pub(crate) span_timeout: Option<Duration>,
    /// Drafter of requests that name none: `plan`, `none`, or a drafter.
    pub(crate) drafter: String,
    /// Folder of the texts of slots that clients save, if they may.
    pub(crate) slots: Option<PathBuf>,
    /// Limits on requests.
    pub(crate) limits: Limits,
}

/// Limits on requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most requests that wait while one is answered.
    pub(crate) queue: usize,
    /// Most open connections.
    pub(crate) connections: usize,
    /// Most bytes of a body.
    pub(crate) body_bytes: usize,
    /// Most tokens of a prompt, besides the bound of the context.
    pub(crate) prompt_tokens: usize,
    /// Most tokens of an answer, besides the bound of the context.
    pub(crate) output_tokens: usize,
    /// Longest time from the last byte of a request's head to the last of its answer.
    pub(crate) deadline: Duration,
    /// Longest time that a drain waits for answers.
    pub(crate) drain: Duration,
}
