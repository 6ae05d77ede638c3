//! Streamed weights: threads that read the matrices of forward after forward into the staging buffer, ahead of the
//! workers that multiply by them.
//!
//! The matrices have one order, that of use, and their sequence never ends: after the last comes the first, for the
//! next forward. Readers take its chunks in order. Two counts tell how far both sides are: of every matrix, for how
//! many forwards it has been *delivered*, and how many matrices of the sequence are *released*, which only grows. Laws:
//! - A reader writes a matrix's place only when all that it overwrites is released.
//! - Workers read a matrix only between its delivery and its release. A forward releases every matrix in order; those
//!   that it leaves out before it waits for the next one, which may need their places.
//! - Forwards of one model take turns; a forward of which nothing is streamed takes none, and reading goes on meanwhile
//!   until the buffer is full.
//! - All workers agree whether a matrix came: its count becomes [`FAILED`] once and stays so.
//!
//! Nothing here allocates or takes a lock once reading has begun.

mod experts;
mod readers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use ygg_kernels::cpu;

use crate::{ir::Staging, packed::PackedFile};

use super::{BackendError, barrier::relax};
pub(super) use experts::{Called, Calls, Experts, PoolId, PoolSpec};
use readers::{Chunk, Readers, Reading, chunks};

/// Threads that read. Each has one request under way, and a disk needs several at a time to reach its bandwidth.
const READERS: usize = 4;

/// Turns of the spin loop before a worker that waits for a matrix sleeps, and leaves its processor to the readers.
const SPINS_BEFORE_SLEEP: u32 = 2_000;

/// How long it sleeps: little compared with a matrix's reading.
const NAP: Duration = Duration::from_micros(30);

/// The count of a matrix that did not come.
const FAILED: u64 = u64::MAX;

/// The number of a streamed matrix, in the order of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnitId(pub(super) usize);

/// A matrix and its bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// First byte, from the begin of the file's weights: both are pages'.
    pub(super) start: u64,
    /// Its bytes.
    pub(super) bytes: usize,
}

/// A reader that waits for releases.
#[derive(Debug)]
struct Waiting {
    /// How many have to be released; [`FAILED`] while it does not wait.
    needs: AtomicU64,
}

/// What readers and workers share.
#[derive(Debug)]
struct Shared {
    reading: Arc<Reading>,
    chunks: Vec<Chunk>,
    /// How many steps back in the sequence stands what each matrix overwrites.
    behind: Vec<u64>,
    /// Chunks that each matrix has.
    whole: Vec<usize>,
    /// Chunks of each matrix's present reading that are not there yet.
    left: Vec<AtomicUsize>,
    /// Forwards for which each matrix was delivered.
    delivered: Vec<AtomicU64>,
    /// Matrices of the sequence that are over.
    released: AtomicU64,
    /// The next chunk of the sequence to be read.
    next: AtomicU64,
    waiting: Vec<Waiting>,
}

/// The streamed matrices of a model, being read.
#[derive(Debug)]
pub(super) struct Streamer {
    shared: Arc<Shared>,
    /// Whether a forward has its turn.
    busy: AtomicBool,
    readers: Readers,
}

impl Streamer {
    /// Starts reading matrices, at least one, into places of `memory`.
    ///
    /// # Errors
    /// [`BackendError::Threads`] if the system refuses readers.
    pub(super) fn new(
        file: Arc<PackedFile>,
        units: &[Unit],
        staging: &Staging,
        memory: Arc<cpu::Staging>,
    ) -> Result<Self, BackendError> {
        assert!(!units.is_empty() && units.len() == staging.places.len(), "a place for every matrix");
        let chunks = chunks(units, staging);
        let mut whole = vec![0; units.len()];
        chunks.iter().for_each(|chunk| whole[chunk.unit.0] += 1);
        let shared = Arc::new(Shared {
            reading: Arc::new(Reading::new(file, memory)),
            chunks,
            behind: staging.places.iter().map(|place| place.behind as u64).collect(),
            left: whole.iter().map(|chunks| AtomicUsize::new(*chunks)).collect(),
            whole,
            delivered: units.iter().map(|_| AtomicU64::new(0)).collect(),
            released: AtomicU64::new(0),
            next: AtomicU64::new(0),
            waiting: (0..READERS).map(|_| Waiting { needs: AtomicU64::new(FAILED) }).collect(),
        });
        let read = Arc::clone(&shared);
        let readers = Readers::begin(&shared.reading, "read", move |reader| readers::read(&read, reader))?;
        Ok(Self { shared, busy: AtomicBool::new(false), readers })
    }

    /// Begins a forward; waits for the turn of any other.
    pub(super) fn begin(&self) -> Forward<'_> {
        let mut turns = 0;
        while self.busy.swap(true, Ordering::Acquire) {
            relax(&mut turns);
        }
        // A forward that ended in a panic has left some.
        if !self.released().is_multiple_of(self.count()) {
            self.release_until(self.forwards(), self.count());
        }
        Forward { streamer: self, forwards: self.forwards() }
    }

    /// What went wrong with reading, if something did: from then on nothing is delivered.
    pub(super) fn failure(&self) -> Option<&BackendError> {
        self.shared.reading.failure()
    }

    fn count(&self) -> u64 {
        self.shared.behind.len() as u64
    }

    fn released(&self) -> u64 {
        self.shared.released.load(Ordering::Relaxed)
    }

    /// Forwards that are over.
    fn forwards(&self) -> u64 {
        self.released() / self.count()
    }

    /// Declares `released` matrices of the sequence over, and wakes the readers that waited for that.
    fn release(&self, released: u64) {
        self.shared.released.store(released, Ordering::SeqCst);
        for (waiting, thread) in self.shared.waiting.iter().zip(&self.readers.threads) {
            if waiting.needs.load(Ordering::SeqCst) <= released {
                thread.unpark();
            }
        }
    }

    /// Waits for a matrix in the forward after so many; says whether it came.
    fn wait(&self, forwards: u64, unit: UnitId) -> bool {
        let delivered = &self.shared.delivered[unit.0];
        let mut turns = 0;
        loop {
            match delivered.load(Ordering::Acquire) {
                FAILED => return false,
                count if count > forwards => return true,
                count if self.shared.reading.has_failed() => {
                    // Whoever is first decides for all.
                    let _ = delivered.compare_exchange(count, FAILED, Ordering::AcqRel, Ordering::Acquire);
                }
                _ if turns < SPINS_BEFORE_SLEEP => {
                    turns += 1;
                    std::hint::spin_loop();
                }
                _ => thread::sleep(NAP),
            }
        }
    }

    /// Releases all matrices of the forward after `forwards` others that are before number `end` and are not released,
    /// each once it was delivered: a place that is still being written cannot be another's.
    fn release_until(&self, forwards: u64, end: u64) {
        let first = forwards * self.count();
        while self.released() < first + end {
            let unit = UnitId((self.released() - first) as usize);
            if !self.wait(forwards, unit) {
                return;
            }
            self.release(self.released() + 1);
        }
    }
}

/// The turn of a forward, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Forward<'a> {
    streamer: &'a Streamer,
    /// How many were before it.
    forwards: u64,
}

impl Forward<'_> {
    /// Waits for a matrix; says whether it came. All workers call it, and get the same answer.
    pub(super) fn wait(&self, unit: UnitId) -> bool {
        self.streamer.wait(self.forwards, unit)
    }

    /// Releases the matrices before this one that the forward leaves out: it may be read into their places. One worker
    /// calls it before it waits.
    pub(super) fn skip_to(&self, unit: UnitId) {
        self.streamer.release_until(self.forwards, unit.0 as u64);
    }

    /// Releases a matrix that came and that all workers have done with. One worker calls it.
    pub(super) fn release(&self, unit: UnitId) {
        self.streamer.release_until(self.forwards, unit.0 as u64 + 1);
    }
}

impl Drop for Forward<'_> {
    fn drop(&mut self) {
        // After a panic other workers may still read: the next forward releases what this one leaves.
        if !thread::panicking() {
            self.streamer.release_until(self.forwards, self.streamer.count());
        }
        self.streamer.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
