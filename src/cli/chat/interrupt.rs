//! Ctrl-C at a terminal: ends the running answer, not the program.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use yggc::{
    engine::CancelHandle,
    storage::{EndSignal, SignalWatch},
};

/// Waits for Ctrl-C until it is dropped.
#[derive(Debug)]
pub(super) struct Interrupts {
    /// Handle of the running or last answer.
    current: Arc<Mutex<CancelHandle>>,
    _watch: SignalWatch,
}

impl Interrupts {
    /// # Errors
    /// If the system refuses a signal handler or a thread.
    pub(super) fn watch() -> io::Result<Self> {
        let current = Arc::new(Mutex::new(CancelHandle::new()));
        let of_watch = Arc::clone(&current);
        let watch = SignalWatch::start(&[EndSignal::Interrupt], move || {
            of_watch.lock().unwrap_or_else(PoisonError::into_inner).cancel();
        })?;
        Ok(Self { current, _watch: watch })
    }

    /// A handle for the next answer, which Ctrl-C cancels from now on.
    pub(super) fn begin(&self) -> CancelHandle {
        let handle = CancelHandle::new();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = handle.clone();
        handle
    }
}
