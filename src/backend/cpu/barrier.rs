//! A spinning barrier that can be poisoned, so that a panic on one thread frees the others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What turns of a spin loop are divided by. A turn that is not optimised takes several times as long, and where
/// assertions are on, many tests share few processors: there a thread that spins keeps the one it waits for from
/// running.
pub(super) const FEWER_SPINS: u32 = if cfg!(debug_assertions) { 16 } else { 1 };

/// Turns of the spin loop before a waiting thread offers its processor to others: only reached when there are more
/// runnable threads than processors.
const SPINS_BEFORE_YIELD: u32 = 4_000 / FEWER_SPINS;

/// One turn of waiting.
pub(crate) fn relax(turns: &mut u32) {
    *turns += 1;
    if *turns < SPINS_BEFORE_YIELD {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Processors bring lines in pairs: a write to one `Line` takes no other from a thread that spins on it.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

/// Threads wait here for one another. The last to arrive opens the next generation.
#[derive(Debug)]
pub(crate) struct Barrier {
    arrived: Line<AtomicUsize>,
    generation: Line<AtomicUsize>,
    poisoned: AtomicBool,
}

impl Barrier {
    pub(crate) fn new() -> Self {
        Self {
            arrived: Line(AtomicUsize::new(0)),
            generation: Line(AtomicUsize::new(0)),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Waits until `threads` threads have called it. All that the others wrote before is visible after.
    ///
    /// # Panics
    /// If the barrier is poisoned.
    pub(crate) fn wait(&self, threads: usize) {
        if threads == 1 {
            return;
        }
        let generation = self.generation.0.load(Ordering::Relaxed);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            // Nobody arrives again before the generation is opened, which orders this store.
            self.arrived.0.store(0, Ordering::Relaxed);
            self.generation.0.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut turns = 0;
        while self.generation.0.load(Ordering::Acquire) == generation {
            assert!(!self.is_poisoned(), "another thread of this forward panicked");
            relax(&mut turns);
        }
    }

    /// Makes all that wait, now or later, panic.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }
}
