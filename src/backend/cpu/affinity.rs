//! Which processors the workers and their caller run on.
//!
//! A worker that shares its processor with the caller makes every barrier wait for the scheduler. So workers are bound
//! to processors of their own and the calling thread is kept off those while it has sessions open.

use std::{num::NonZero, sync::OnceLock, thread::available_parallelism};

/// How many processors this process may use; threads that are bound since it was first asked, or since workers were
/// first bound, change nothing.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{cell::Cell, sync::OnceLock};

    /// Processors the process was allowed when it first asked, before any thread was bound.
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();

    thread_local! {
        /// Pools opened by this thread that keep it off their processors.
        static KEPT_OFF: Cell<usize> = const { Cell::new(0) };
    }

    fn allowed() -> Vec<usize> {
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

    /// Binds the calling thread to some processors. A refusal is no error: the thread then floats.
    fn bind(cpus: impl Iterator<Item = usize>) {
        // SAFETY: an all-zero `cpu_set_t` is a valid empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in cpus {
            // SAFETY: the index came from a set of this size.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: the set is ours and its size is passed with it.
        let _refused = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    }

    /// Processors for workers, and the promise that the calling thread keeps off them.
    #[derive(Debug)]
    pub(crate) struct Places {
        cpus: Vec<usize>,
        caller: std::thread::ThreadId,
    }

    impl Places {
        /// Places for `workers` threads in addition to the caller; `None` where the system has too few or does not say.
        pub(crate) fn beside_caller(workers: usize) -> Option<Self> {
            super::processors();
            let allowed = ALLOWED.get_or_init(allowed);
            // SAFETY: no preconditions.
            let here = usize::try_from(unsafe { libc::sched_getcpu() }).ok()?;
            let cpus: Vec<usize> = allowed.iter().copied().filter(|cpu| *cpu != here).take(workers).collect();
            if workers == 0 || cpus.len() < workers || !allowed.contains(&here) {
                return None;
            }
            bind(allowed.iter().copied().filter(|cpu| !cpus.contains(cpu)));
            KEPT_OFF.set(KEPT_OFF.get() + 1);
            Some(Self { cpus, caller: std::thread::current().id() })
        }

        /// Binds the calling thread, worker number `index`, to its processor.
        pub(crate) fn take(cpu: usize) {
            bind(std::iter::once(cpu));
        }

        /// The processor of each worker.
        pub(crate) fn cpus(&self) -> &[usize] {
            &self.cpus
        }
    }

    impl Drop for Places {
        fn drop(&mut self) {
            // Binding acts on the calling thread, so only the one that was kept off can be let back.
            if std::thread::current().id() != self.caller {
                return;
            }
            KEPT_OFF.set(KEPT_OFF.get() - 1);
            if let (0, Some(allowed)) = (KEPT_OFF.get(), ALLOWED.get()) {
                bind(allowed.iter().copied());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    /// Elsewhere threads float.
    #[derive(Debug)]
    pub(crate) struct Places;

    impl Places {
        pub(crate) fn beside_caller(_workers: usize) -> Option<Self> {
            None
        }

        pub(crate) fn take(_cpu: usize) {}

        pub(crate) fn cpus(&self) -> &[usize] {
            &[]
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::Places;
#[cfg(target_os = "linux")]
pub(crate) use linux::Places;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_kept_off_processors_still_counts_them() {
        let before = processors();
        let places = Places::beside_caller(1);
        assert_eq!(processors(), before);
        assert!(
            places.is_none() || available_parallelism().unwrap().get() < before,
            "it was not kept off any"
        );
    }
}
