//! Ending a request from another thread.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Ends the requests that it was given to. Clones are the same handle.
///
/// A request looks at it before every step and before every forward of its prompt, so it ends within one of them, with
/// [`FinishReason::Cancelled`](super::FinishReason) and the tokens it had. Cancelling is for good, and may come before
/// the request begins. Costs one atomic load a step; a clone is a reference count.
///
/// ```
/// use std::thread;
/// use yggc::engine::{CancelHandle, Engine, FinishReason, Options, Prompt, Request};
/// # let folder = tempfile::tempdir()?;
/// # let model = folder.path().join("tiny.gguf");
/// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
///
/// let mut engine = Engine::open(&Options::new(&model))?;
/// let cancel = CancelHandle::new();
/// let request =
///     Request { max_tokens: 500, cancel: cancel.clone(), ..Request::new(Prompt::Raw("ab".to_owned())) };
/// let answering = thread::spawn(move || engine.generate(&request)?.collect_answer());
/// cancel.cancel();
/// let answer = answering.join().unwrap()?;
/// assert!(answer.finish_reason == FinishReason::Cancelled || answer.token_ids.len() <= 500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelHandle(Arc<AtomicBool>);

impl CancelHandle {
    /// A handle that cancels nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the requests that have this handle, now or when they begin.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
