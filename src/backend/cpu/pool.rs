//! Worker threads that replay a program together: the caller is worker 0, the others spin for a job, then park.
//!
//! Law: a job runs once on every worker; `run` returns when all have finished it; a panic on one worker becomes a panic
//! of `run`, never a hang. Nothing here allocates after creation.

use std::{
    cell::UnsafeCell,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
};

use super::barrier::{Barrier, FEWER_SPINS};
use crate::storage::WorkerPlaces;

/// Turns of the spin loop before an idle worker parks: some hundred microseconds, longer than the host's part of a
/// step.
const SPINS_BEFORE_PARK: u32 = 20_000 / FEWER_SPINS;

/// Room in memory that a thread is started with: two mebibytes of stack, and what the system and the standard library
/// add.
const THREAD_BYTES: usize = 3 << 20;

/// Whether workers are bound to processors of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pinning {
    /// Each worker gets a processor of its own and the calling thread keeps off those: for an engine that owns the
    /// machine.
    #[default]
    Pinned,
    /// The system places them: for several engines on one machine.
    Floating,
}

/// A job: `call(data, worker)`.
#[derive(Clone, Copy)]
struct Job {
    data: *const (),
    call: unsafe fn(*const (), Worker<'_>),
}

/// Processors bring lines in pairs: a write to one `Line` takes no other from a thread that spins on it.
#[repr(align(128))]
struct Line<T>(T);

struct Shared {
    /// Number of the job published last; written by the caller only.
    epoch: Line<AtomicUsize>,
    /// Workers that have finished the current job; before the first, those that have begun.
    finished: Line<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    parked: Vec<Line<AtomicBool>>,
    stop: AtomicBool,
    barrier: Barrier,
}

// SAFETY: `job` is written by the caller before it raises `epoch` (release) and read by workers after they have seen it
// (acquire); the caller writes again only after every worker has raised `finished`. The pointers in it stay valid for
// that time because `run` borrows what they point to until then.
unsafe impl Sync for Shared {}
// SAFETY: see `Sync`: the raw pointers are only used under the protocol above.
unsafe impl Send for Shared {}

/// One worker's view of a running job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker<'a> {
    /// Number of this worker, `0..threads`.
    pub(crate) index: usize,
    /// Number of workers.
    pub(crate) threads: usize,
    barrier: &'a Barrier,
}

impl Worker<'_> {
    /// Waits until every worker of the job has arrived.
    pub(crate) fn wait(&self) {
        self.barrier.wait(self.threads);
    }

    /// This worker's share of `units`, contiguous and as even as can be.
    pub(crate) fn share(&self, units: usize) -> std::ops::Range<usize> {
        let (base, extra) = (units / self.threads, units % self.threads);
        let start = self.index * base + self.index.min(extra);
        start..start + base + usize::from(self.index < extra)
    }
}

/// The threads of one session, or of several that take turns.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Whether a job is running.
    busy: AtomicBool,
    handles: Vec<JoinHandle<()>>,
    threads: Vec<Thread>,
    places: Option<WorkerPlaces>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Pool {
    /// A pool of `threads` workers, the caller included.
    ///
    /// # Errors
    /// What the system says when it refuses a thread.
    pub(crate) fn new(threads: usize, pinning: Pinning) -> io::Result<Self> {
        assert!(threads >= 1, "the caller itself is a worker");
        let shared = Arc::new(Shared {
            epoch: Line(AtomicUsize::new(0)),
            finished: Line(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            parked: (1..threads).map(|_| Line(AtomicBool::new(false))).collect(),
            stop: AtomicBool::new(false),
            barrier: Barrier::new(),
        });
        let places = match pinning {
            Pinning::Pinned => WorkerPlaces::beside_caller(threads - 1),
            Pinning::Floating => None,
        };
        let busy = AtomicBool::new(false);
        let mut pool = Self { shared, busy, handles: Vec::new(), threads: Vec::new(), places };
        for index in 1..threads {
            // A thread whose stack is all that there was room for ends the process when it begins.
            Vec::<u8>::new().try_reserve_exact(THREAD_BYTES).map_err(io::Error::other)?;
            let shared = Arc::clone(&pool.shared);
            let place = pool.places.as_ref().map(|p| p.processors()[index - 1]);
            let handle = thread::Builder::new().name(format!("yggc-{index}")).spawn(move || {
                shared.finished.0.store(index, Ordering::Release);
                if let Some(processor) = place {
                    WorkerPlaces::take(processor);
                }
                work(&shared, index, threads);
            })?;
            pool.threads.push(handle.thread().clone());
            pool.handles.push(handle);
            // It has what it needs before the next one takes of the room.
            let mut turns = 0;
            while pool.shared.finished.0.load(Ordering::Acquire) < index {
                super::barrier::relax(&mut turns);
            }
        }
        Ok(pool)
    }

    /// Number of workers, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `job` once on every worker and returns when all have finished. Callers take turns: a caller that
    /// arrives while another's job runs spins until it has ended.
    ///
    /// # Panics
    /// If the job panicked on any worker.
    pub(crate) fn run<F: Fn(Worker<'_>) + Sync>(&self, job: &F) {
        unsafe fn call<F: Fn(Worker<'_>) + Sync>(data: *const (), worker: Worker<'_>) {
            // SAFETY: `run` published a pointer to an `F` that it borrows until every worker has finished.
            let job = unsafe { &*data.cast::<F>() };
            job(worker);
        }
        let _turn = Turn::take(&self.busy);
        let threads = self.threads();
        let shared = &*self.shared;
        if threads > 1 {
            shared.finished.0.store(0, Ordering::Relaxed);
            // SAFETY: no worker reads `job` now: all finished the last one before the last `run` returned; and no other
            // caller writes it, since the turn is ours.
            unsafe {
                *shared.job.get() = Some(Job { data: std::ptr::from_ref(job).cast(), call: call::<F> })
            };
            // Raised before the look at who has parked; a worker does both in the other order, so one sees the other.
            shared.epoch.0.fetch_add(1, Ordering::SeqCst);
            for (parked, thread) in shared.parked.iter().zip(&self.threads) {
                if parked.0.swap(false, Ordering::SeqCst) {
                    thread.unpark();
                }
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(|| {
            job(Worker { index: 0, threads, barrier: &shared.barrier });
        }));
        if mine.is_err() {
            shared.barrier.poison();
        }
        let mut turns = 0;
        while threads > 1 && shared.finished.0.load(Ordering::Acquire) < threads - 1 {
            super::barrier::relax(&mut turns);
        }
        match mine {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => assert!(!shared.barrier.is_poisoned(), "a worker thread panicked during a forward"),
        }
    }
}

/// The workers of a replay, to be lent to others that run when it does not.
#[derive(Clone, Debug)]
pub struct Workers(pub(super) Arc<Pool>);

impl Workers {
    /// How many there are, the caller included.
    pub fn threads(&self) -> usize {
        self.0.threads()
    }
}

/// The right to publish a job, given back when it is dropped.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(busy: &'a AtomicBool) -> Self {
        let mut turns = 0;
        while busy.swap(true, Ordering::Acquire) {
            super::barrier::relax(&mut turns);
        }
        Self(busy)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for thread in &self.threads {
            thread.unpark();
        }
        for handle in self.handles.drain(..) {
            // A worker catches its panics, so joining cannot fail.
            let _ = handle.join();
        }
    }
}

fn work(shared: &Shared, index: usize, threads: usize) {
    let mut seen = 0;
    loop {
        seen = next_epoch(shared, index, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: `epoch` was raised (seen with acquire), so the caller has written `job` and will not touch it until
        // this worker raises `finished`.
        let job = unsafe { *shared.job.get() }.expect("a job is written before the epoch is raised");
        let worker = Worker { index, threads, barrier: &shared.barrier };
        // SAFETY: `data` points to the job that `run` borrows until this worker raises `finished`.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (job.call)(job.data, worker) }));
        if outcome.is_err() {
            shared.barrier.poison();
        }
        shared.finished.0.fetch_add(1, Ordering::Release);
    }
}

fn next_epoch(shared: &Shared, index: usize, seen: usize) -> usize {
    let parked = &shared.parked[index - 1].0;
    loop {
        for _ in 0..SPINS_BEFORE_PARK {
            let epoch = shared.epoch.0.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            std::hint::spin_loop();
        }
        parked.store(true, Ordering::SeqCst);
        if shared.epoch.0.load(Ordering::SeqCst) == seen {
            thread::park();
        }
        parked.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn every_worker_runs_every_job_and_barriers_hold() {
        for threads in 1..=4 {
            let pool = Pool::new(threads, Pinning::Floating).unwrap();
            let counters: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
            for round in 1..=50 {
                pool.run(&|worker: Worker<'_>| {
                    for counter in &counters {
                        counter.fetch_add(1, Ordering::Relaxed);
                        worker.wait();
                        assert_eq!(counter.load(Ordering::Relaxed), round * worker.threads);
                        worker.wait();
                    }
                });
            }
        }
    }

    #[test]
    fn a_parked_pool_wakes_up() {
        let pool = Pool::new(3, Pinning::Floating).unwrap();
        let ran = AtomicUsize::new(0);
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(30));
            pool.run(&|_: Worker<'_>| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(ran.into_inner(), 9);
    }

    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(2, Pinning::Floating).unwrap();
        let (running, ran) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let job = |worker: Worker<'_>| {
            if worker.index == 0 {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one job at a time");
            }
            worker.wait();
            ran.fetch_add(1, Ordering::Relaxed);
            worker.wait();
            if worker.index == 0 {
                running.fetch_sub(1, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..100).for_each(|_| pool.run(&job)));
            }
        });
        assert_eq!(ran.into_inner(), 600);
    }

    #[test]
    fn a_panic_on_one_worker_is_a_panic_of_run_not_a_hang() {
        for bad in 0..3 {
            let pool = Pool::new(3, Pinning::Floating).unwrap();
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|worker: Worker<'_>| {
                    assert_ne!(worker.index, bad, "planted");
                    worker.wait();
                });
            }));
            assert!(outcome.is_err());
        }
    }

    #[test]
    fn shares_cover_all_units_once() {
        let barrier = Barrier::new();
        for units in 0..20 {
            for threads in 1..6 {
                let all: Vec<usize> = (0..threads)
                    .flat_map(|index| Worker { index, threads, barrier: &barrier }.share(units))
                    .collect();
                assert_eq!(all, (0..units).collect::<Vec<_>>());
            }
        }
    }
}
