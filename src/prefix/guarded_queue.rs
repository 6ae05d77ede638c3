//! What threads of a store share: a queue under a lock, and who waits for a change of it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A queue that threads share.
#[derive(Debug, Default)]
pub(super) struct GuardedQueue<Q> {
    queue: Mutex<Q>,
    pub(super) changed: Condvar,
}

impl<Q> GuardedQueue<Q> {
    /// The queue, locked.
    pub(super) fn queue(&self) -> MutexGuard<'_, Q> {
        // Whoever panicked left the queue as it was.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change.
    pub(super) fn wait<'q>(&self, queue: MutexGuard<'q, Q>) -> MutexGuard<'q, Q> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }
}
