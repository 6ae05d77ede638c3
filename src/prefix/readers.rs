//! Threads that help to read files.
//!
//! They are started with the store: threads that a caller starts later would inherit the processors that it is bound
//! to, which may be one, where it leaves the others to the workers of a session.

use std::{
    collections::VecDeque,
    fmt,
    num::NonZero,
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::guarded_queue::GuardedQueue;

/// Most threads: reading and hashing keep up with a fast disk, and with its cache, by two or three.
const MOST: usize = 3;

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    is_closed: bool,
}

impl GuardedQueue<Queue> {
    /// Does what is given until the queue is closed and empty.
    fn work(&self) {
        let mut queue = self.queue();
        loop {
            match queue.work.pop_front() {
                Some(work) => {
                    drop(queue);
                    work();
                    queue = self.queue();
                }
                None if queue.is_closed => return,
                None => queue = self.wait(queue),
            }
        }
    }
}

/// The threads, which wait for work until this is dropped.
pub(super) struct Readers {
    shared: Arc<GuardedQueue<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readers({})", self.threads.len())
    }
}

impl Readers {
    /// As many as there are processors for beside the caller's, or as the system grants: callers read too.
    pub(super) fn start() -> Self {
        let shared = Arc::new(GuardedQueue::<Queue>::default());
        let count = thread::available_parallelism().map_or(0, |count| NonZero::get(count) - 1).min(MOST);
        let start = |_| {
            let of_thread = Arc::clone(&shared);
            thread::Builder::new().name("prefixes".to_owned()).spawn(move || of_thread.work()).ok()
        };
        let threads = (0..count).map_while(start).collect();
        Self { shared, threads }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Has one of them do something, sooner or later.
    pub(super) fn give(&self, work: impl FnOnce() + Send + 'static) {
        self.shared.queue().work.push_back(Box::new(work));
        self.shared.changed.notify_one();
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so, and whoever waited for it has read by itself.
            let _ = thread.join();
        }
    }
}
