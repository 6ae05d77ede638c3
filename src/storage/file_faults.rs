//! Signals for failing files: reports `SIGBUS` and `SIGXFSZ` instead of dying silently.
//!
//! A page of a mapped file that is no longer there, because the file was cut short or its disk failed, is `SIGBUS` when
//! it is touched; a write beyond a limit of the shell (`ulimit -f`) is `SIGXFSZ`. A program that calls
//! [`tell_file_faults`] names the file and ends, or sees the write fail. The library never does so by itself: signals
//! belong to the program.

#[cfg(unix)]
pub(super) use unix::NamedMap;
#[cfg(unix)]
pub use unix::tell_file_faults;

#[cfg(not(unix))]
pub(super) use elsewhere::NamedMap;
#[cfg(not(unix))]
pub use elsewhere::tell_file_faults;

#[cfg(not(unix))]
mod elsewhere {
    //! Where there are no such signals.

    use std::path::Path;

    #[derive(Debug)]
    pub(in crate::storage) struct NamedMap;

    impl NamedMap {
        pub(in crate::storage) fn new(_map: &[u8], _path: &Path) -> Self {
            Self
        }
    }

    /// Does nothing: this system has no such signals.
    pub fn tell_file_faults() {}
}

#[cfg(unix)]
mod unix {
    use std::{
        ffi::c_void,
        os::unix::ffi::OsStrExt,
        path::Path,
        ptr,
        sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
    };

    /// Maps that can be named at once; a fault in a further one is reported without a name.
    const MOST_NAMED: usize = 64;
    /// What is wrong with the input, as the program's exit codes have it.
    const BAD_INPUT: i32 = 3;

    /// A map, for the handler to find: `end` is 0 where there is none.
    struct Slot {
        start: AtomicUsize,
        end: AtomicUsize,
        name: AtomicPtr<u8>,
        name_len: AtomicUsize,
    }

    static SLOTS: [Slot; MOST_NAMED] = [const {
        Slot {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            name: AtomicPtr::new(ptr::null_mut()),
            name_len: AtomicUsize::new(0),
        }
    }; MOST_NAMED];

    /// Marks a slot that is being filled.
    const TAKEN: usize = 1;

    /// A map that the handler can name, for as long as this lives.
    #[derive(Debug)]
    pub(in crate::storage) struct NamedMap {
        slot: Option<usize>,
        /// What the slot points to.
        _name: Box<[u8]>,
    }

    impl NamedMap {
        pub(in crate::storage) fn new(map: &[u8], path: &Path) -> Self {
            let mut name: Box<[u8]> = path.as_os_str().as_bytes().into();
            let free = |slot: &Slot| {
                slot.end.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            let place = SLOTS.iter().position(free);
            if let Some(place) = place {
                let Slot { start, end, name: named, name_len } = &SLOTS[place];
                let first = map.as_ptr() as usize;
                start.store(first, Ordering::Relaxed);
                named.store(name.as_mut_ptr(), Ordering::Relaxed);
                name_len.store(name.len(), Ordering::Relaxed);
                end.store(first + map.len(), Ordering::Release);
            }
            Self { slot: place, _name: name }
        }
    }

    impl Drop for NamedMap {
        fn drop(&mut self) {
            if let Some(place) = self.slot {
                SLOTS[place].end.store(0, Ordering::Release);
            }
        }
    }

    /// The name of the map that has `address`.
    fn named(address: usize) -> Option<&'static [u8]> {
        // Faults come by pages: a map's last page is its own to the end.
        let inside = |slot: &&Slot| {
            let end = slot.end.load(Ordering::Acquire);
            end > TAKEN && (slot.start.load(Ordering::Relaxed)..end).contains(&address)
        };
        let slot = SLOTS.iter().find(inside)?;
        let (name, len) = (slot.name.load(Ordering::Relaxed), slot.name_len.load(Ordering::Relaxed));
        // SAFETY: the faulting code borrows the map, so the map and its name live until the handler has ended the
        // program.
        Some(unsafe { std::slice::from_raw_parts(name, len) })
    }

    /// Installs the handlers. A lost page of a mapped file is then reported on stderr with the file's name, and the
    /// program exits with code 3; a write beyond the shell's limit fails as on a full disk. Call it once, from `main`.
    pub fn tell_file_faults() {
        // SAFETY: an action of zeroes is a valid one, which is filled below; the handler only calls what POSIX allows
        // in handlers.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = lost_page as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
            libc::sigemptyset(&mut action.sa_mask);
            // A system that refuses this ends the program as it would have.
            libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
    }

    /// The handler: reports the file and exits. A fault elsewhere is raised again when this returns, and then kills the
    /// program, since the handler is installed for one signal.
    extern "C" fn lost_page(_signal: i32, info: *mut libc::siginfo_t, _context: *mut c_void) {
        // SAFETY: the system gives the handler the signal's information.
        let address = unsafe { (*info).si_addr() } as usize;
        let Some(name) = named(address) else { return };
        for part in [
            &b"error: a part of `"[..],
            name,
            b"` is gone: expected the file to stay as it was opened, found it cut short, or its disk failing, while it \
              was in use; start again with a whole file, and replace such files by renaming another over them\n",
        ] {
            // SAFETY: the bytes live; writing is allowed in handlers. A failure cannot be reported.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
        // SAFETY: ends the process without running anything of it.
        unsafe { libc::_exit(BAD_INPUT) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn maps_are_named_while_they_live() {
            let maps: Vec<Vec<u8>> = (0..MOST_NAMED + 8).map(|_| vec![0; 16]).collect();
            let name = |i: usize| format!("file {i}");
            let mut all: Vec<NamedMap> =
                maps.iter().enumerate().map(|(i, map)| NamedMap::new(map, Path::new(&name(i)))).collect();
            // Other tests may hold some.
            let is_named = |i: usize| named(maps[i].as_ptr() as usize + 15) == Some(name(i).as_bytes());
            assert!((0..4).all(is_named) && !is_named(MOST_NAMED + 7));
            drop(all.drain(..8));
            assert!(!is_named(0) && is_named(8));
            let again = NamedMap::new(&maps[0], Path::new("again"));
            assert_eq!(named(maps[0].as_ptr() as usize), Some(&b"again"[..]));
            drop((again, all));
            assert!(maps.iter().all(|map| named(map.as_ptr() as usize).is_none()));
        }
    }
}
