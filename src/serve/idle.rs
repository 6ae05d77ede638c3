//! Work for times in which no request comes.

use std::{fmt, time::Duration};

/// Work that ends at once when a request comes.
pub(crate) trait IdleWork: fmt::Debug + Send {
    /// No request came for a while.
    fn begin(&mut self);

    /// A request came: whatever was begun ends before this returns.
    fn end(&mut self);
}

/// What is done without requests, and after which time.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) after: Duration,
    pub(crate) work: Box<dyn IdleWork>,
}
