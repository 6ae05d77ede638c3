//! The thread that writes blocks to files, after the answers that they are of.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::{file::BlockFile, guarded_queue::GuardedQueue, memory::Block};

/// A block to be written.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Arc<BlockFile>,
    pub(super) block: Arc<Block>,
    /// Bytes that it takes in no level, but here alone.
    pub(super) bytes_here: u64,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Bytes of blocks that are in no level.
    bytes: u64,
    is_writing: bool,
    is_closed: bool,
}

impl GuardedQueue<Queue> {
    /// Writes job after job until the queue is closed and empty.
    fn work(&self) {
        let mut queue = self.queue();
        loop {
            let Some(job) = queue.jobs.pop_front() else {
                if queue.is_closed {
                    return;
                }
                queue = self.wait(queue);
                continue;
            };
            queue.is_writing = true;
            drop(queue);
            let Job { file, block, bytes_here } = job;
            file.write(&block);
            // Before it is told that it is done: who waits for that may count on its memory.
            drop(block);
            queue = self.queue();
            queue.is_writing = false;
            queue.bytes -= bytes_here;
            self.changed.notify_all();
        }
    }
}

/// The end of the thread, however it ends: nobody waits for it then.
struct Ended<'s>(&'s GuardedQueue<Queue>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        *queue = Queue { is_closed: true, ..Queue::default() };
        self.0.changed.notify_all();
    }
}

/// The thread, and what it has to write. When dropped it writes what is left.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<GuardedQueue<Queue>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// # Errors
    /// If the system refuses a thread.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(GuardedQueue::<Queue>::default());
        let of_thread = Arc::clone(&shared);
        let builder = thread::Builder::new().name("prefixes".to_owned());
        let thread = Some(builder.spawn(move || {
            let _ended = Ended(&of_thread);
            of_thread.work();
        })?);
        Ok(Self { shared, thread })
    }

    /// Has a block written, unless it waits for that already.
    pub(super) fn push(&self, job: Job) {
        let mut queue = self.shared.queue();
        if queue.is_closed || queue.jobs.iter().any(|other| other.block.key == job.block.key) {
            return;
        }
        queue.bytes += job.bytes_here;
        queue.jobs.push_back(job);
        self.shared.changed.notify_all();
    }

    /// Bytes of blocks that wait to be written and are in no level.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.queue().bytes
    }

    /// Waits until everything is written.
    pub(super) fn finish(&self) {
        let mut queue = self.shared.queue();
        while queue.is_writing || !queue.jobs.is_empty() {
            queue = self.shared.wait(queue);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A write that panicked has said so; what it had to write is lost, and no answer.
            let _ = thread.join();
        }
    }
}
