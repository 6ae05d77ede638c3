//! Which processors the workers and their caller run on.
//!
//! A worker that shares its processor with the caller makes every barrier wait for the scheduler. So workers are bound
//! to processors of their own and the calling thread is kept off those while it has sessions open.

use std::{
    cell::Cell,
    num::NonZero,
    sync::OnceLock,
    thread::{self, ThreadId, available_parallelism},
};

/// How many processors this process may use; threads that are bound since it was first asked, or since workers were
/// first bound, change nothing.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

/// Processors the process was allowed when it first asked, before any thread was bound.
static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();

thread_local! {
    /// Pools opened by this thread that keep it off their processors.
    static KEPT_OFF: Cell<usize> = const { Cell::new(0) };
}

/// Processors for workers, and the promise that the calling thread keeps off them.
#[derive(Debug)]
pub(crate) struct WorkerPlaces {
    processors: Vec<usize>,
    caller: ThreadId,
}

impl WorkerPlaces {
    /// Places for `workers` threads in addition to the caller; `None` where the system has too few, or does not say, or
    /// binds no threads.
    pub(crate) fn beside_caller(workers: usize) -> Option<Self> {
        processors();
        let allowed = ALLOWED.get_or_init(system::allowed);
        let here = system::current()?;
        let own: Vec<usize> = allowed.iter().copied().filter(|place| *place != here).take(workers).collect();
        if workers == 0 || own.len() < workers || !allowed.contains(&here) {
            return None;
        }
        system::bind(allowed.iter().copied().filter(|place| !own.contains(place)));
        KEPT_OFF.set(KEPT_OFF.get() + 1);
        Some(Self { processors: own, caller: thread::current().id() })
    }

    /// Binds the calling thread, a worker, to its processor. A refusal is no error: the thread then floats.
    pub(crate) fn take(processor: usize) {
        system::bind(std::iter::once(processor));
    }

    /// The processor of each worker.
    pub(crate) fn processors(&self) -> &[usize] {
        &self.processors
    }
}

impl Drop for WorkerPlaces {
    fn drop(&mut self) {
        // Binding acts on the calling thread, so only the one that was kept off can be let back.
        if thread::current().id() != self.caller {
            return;
        }
        KEPT_OFF.set(KEPT_OFF.get() - 1);
        if let (0, Some(allowed)) = (KEPT_OFF.get(), ALLOWED.get()) {
            system::bind(allowed.iter().copied());
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    /// Processors that the calling thread may run on; none where the system does not say.
    pub(super) fn allowed() -> Vec<usize> {
        // SAFETY: an all-zero `cpu_set_t` is a valid empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is ours and its size is passed with it.
        let refused = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        if refused != 0 {
            return Vec::new();
        }
        let limit = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
        // SAFETY: the index is below CPU_SETSIZE.
        (0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
    }

    /// The processor that the calling thread runs on.
    pub(super) fn current() -> Option<usize> {
        // SAFETY: no preconditions.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Binds the calling thread to some processors. A refusal is no error: the thread then floats.
    pub(super) fn bind(cpus: impl Iterator<Item = usize>) {
        // SAFETY: an all-zero `cpu_set_t` is a valid empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in cpus {
            // SAFETY: the index came from a set of this size.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: the set is ours and its size is passed with it.
        let _refused = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    }
}

#[cfg(windows)]
mod system {
    //! Masks of Windows are of one group of at most 64 processors, that in which the process started.

    use windows_sys::Win32::System::Threading::{
        GetCurrentProcess, GetCurrentProcessorNumber, GetCurrentThread, GetProcessAffinityMask,
        SetThreadAffinityMask,
    };

    /// Processors that the process may run on; none where it runs in several groups, whose masks are zero.
    pub(super) fn allowed() -> Vec<usize> {
        let (mut own, mut all) = (0, 0);
        // SAFETY: the handle stands for this process, and the masks are ours.
        let is_known =
            unsafe { GetProcessAffinityMask(GetCurrentProcess(), &raw mut own, &raw mut all) } != 0;
        let own = if is_known { own } else { 0 };
        (0..usize::BITS as usize).filter(|place| own >> place & 1 == 1).collect()
    }

    /// The processor that the calling thread runs on.
    pub(super) fn current() -> Option<usize> {
        // SAFETY: no preconditions.
        usize::try_from(unsafe { GetCurrentProcessorNumber() }).ok()
    }

    /// Binds the calling thread to some processors. A refusal is no error: the thread then floats.
    pub(super) fn bind(places: impl Iterator<Item = usize>) {
        let mask = places.fold(0, |mask, place| mask | 1 << place);
        // SAFETY: the handle stands for the calling thread, and is not to be closed.
        let _before = unsafe { SetThreadAffinityMask(GetCurrentThread(), mask) };
    }
}

#[cfg(not(any(target_os = "linux", windows)))]
mod system {
    //! Elsewhere threads float: macOS binds none.

    pub(super) fn allowed() -> Vec<usize> {
        Vec::new()
    }

    pub(super) fn current() -> Option<usize> {
        None
    }

    pub(super) fn bind(_: impl Iterator<Item = usize>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_kept_off_processors_still_counts_them() {
        let before = processors();
        let places = WorkerPlaces::beside_caller(1);
        assert_eq!(processors(), before);
        let Some(places) = places else {
            assert!(system::allowed().len() < 2, "there is a processor for a worker");
            return;
        };
        let [own] = places.processors() else { panic!("one worker has one processor") };
        // The system moves a thread that is kept off where it runs.
        thread::yield_now();
        assert_ne!(system::current(), Some(*own));
        let of_worker = *own;
        let seen = thread::spawn(move || {
            WorkerPlaces::take(of_worker);
            thread::yield_now();
            system::current()
        });
        assert_eq!(seen.join().unwrap(), Some(of_worker));
    }
}
