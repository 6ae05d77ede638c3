//! Ctrl-C at a terminal: ends the running answer, not the program.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use signal_hook::{
    consts::SIGINT,
    iterator::{Handle, Signals},
};
use yggc::engine::CancelHandle;

/// Waits for Ctrl-C on its own thread until it is dropped.
#[derive(Debug)]
pub(super) struct Interrupts {
    /// Handle of the running or last answer.
    current: Arc<Mutex<CancelHandle>>,
    signals: Handle,
    waiting: Option<JoinHandle<()>>,
}

impl Interrupts {
    /// # Errors
    /// If the system refuses a signal handler or a thread.
    pub(super) fn watch() -> io::Result<Self> {
        let current = Arc::new(Mutex::new(CancelHandle::new()));
        let mut signals = Signals::new([SIGINT])?;
        let handle = signals.handle();
        let of_thread = Arc::clone(&current);
        let waiting = thread::Builder::new().name("ctrl-c".to_owned()).spawn(move || {
            for _ in signals.forever() {
                of_thread.lock().unwrap_or_else(PoisonError::into_inner).cancel();
            }
        })?;
        Ok(Self { current, signals: handle, waiting: Some(waiting) })
    }

    /// A handle for the next answer, which Ctrl-C cancels from now on.
    pub(super) fn begin(&self) -> CancelHandle {
        let handle = CancelHandle::new();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = handle.clone();
        handle
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.signals.close();
        // The thread does nothing that could panic.
        let _ = self.waiting.take().map(JoinHandle::join);
    }
}
