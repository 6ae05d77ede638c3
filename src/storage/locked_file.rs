//! Files that one process at a time has.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::{Deref, DerefMut},
};

/// Whom a lock keeps away: all others that ask for one, or those that ask for it alone.
enum Kind {
    Alone,
    Shared,
}

enum Wait {
    Never,
    UntilFree,
}

/// A file with its lock, which ends with this value, or with the process however that ends.
///
/// The lock is given back, not left to the closing of the file: a process that another thread has just started has the
/// same open file until it is a program of its own, and would keep the lock for as long. Locks concern only those who
/// ask for them: others read and write the file all the same.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks a file; `None` if another has its lock.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn take(file: File) -> io::Result<Option<Self>> {
        let is_ours = system::lock(&file, Kind::Alone, Wait::Never)?;
        Ok(is_ours.then_some(Self(file)))
    }

    /// Locks a file against [`take`](Self::take), and not against others that do the same; `None` if another took it.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn share(file: File) -> io::Result<Option<Self>> {
        let is_ours = system::lock(&file, Kind::Shared, Wait::Never)?;
        Ok(is_ours.then_some(Self(file)))
    }

    /// Locks a file; `on_wait` is called before waiting for another that has its lock.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn wait(file: File, on_wait: impl FnOnce()) -> io::Result<Self> {
        if !system::lock(&file, Kind::Alone, Wait::Never)? {
            on_wait();
            system::lock(&file, Kind::Alone, Wait::UntilFree)?;
        }
        Ok(Self(file))
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Read for LockedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Seek for LockedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing does what failed here.
        let _ = system::unlock(&self.0);
    }
}

#[cfg(not(windows))]
mod system {
    //! Locks of the standard library, which are advice here.

    use std::{
        fs::{File, TryLockError},
        io,
    };

    use super::{Kind, Wait};

    /// Whether the lock is ours now.
    pub(super) fn lock(file: &File, kind: Kind, wait: Wait) -> io::Result<bool> {
        let tried = match (kind, wait) {
            (Kind::Alone, Wait::UntilFree) => return file.lock().map(|()| true),
            (Kind::Shared, Wait::UntilFree) => return file.lock_shared().map(|()| true),
            (Kind::Alone, Wait::Never) => file.try_lock(),
            (Kind::Shared, Wait::Never) => file.try_lock_shared(),
        };
        match tried {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn unlock(file: &File) -> io::Result<()> {
        file.unlock()
    }
}

#[cfg(windows)]
mod system {
    //! Locks of Windows keep others from reading and writing the bytes that are locked, and those of the standard
    //! library are of all bytes. So here a single byte is locked, which no file is long enough to have.

    use std::{fs::File, io, os::windows::io::AsRawHandle};

    use windows_sys::Win32::{
        Foundation::{ERROR_IO_PENDING, ERROR_LOCK_VIOLATION},
        Storage::FileSystem::{LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, UnlockFileEx},
        System::IO::OVERLAPPED,
    };

    use super::{Kind, Wait};

    /// The upper half of the offset of the locked byte, 2^62. NTFS ends files at 2^53 bytes.
    const OFFSET_HIGH: u32 = 1 << 30;

    fn place() -> OVERLAPPED {
        let mut place = OVERLAPPED::default();
        place.Anonymous.Anonymous.OffsetHigh = OFFSET_HIGH;
        place
    }

    /// Whether the lock is ours now.
    pub(super) fn lock(file: &File, kind: Kind, wait: Wait) -> io::Result<bool> {
        let alone = match kind {
            Kind::Alone => LOCKFILE_EXCLUSIVE_LOCK,
            Kind::Shared => 0,
        };
        let at_once = match wait {
            Wait::Never => LOCKFILE_FAIL_IMMEDIATELY,
            Wait::UntilFree => 0,
        };
        let mut place = place();
        // SAFETY: the handle is open and synchronous, so the structure is not used after the call.
        let is_locked =
            unsafe { LockFileEx(file.as_raw_handle(), alone | at_once, 0, 1, 0, &raw mut place) } != 0;
        if is_locked {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        let taken = [ERROR_LOCK_VIOLATION, ERROR_IO_PENDING].map(|code| Some(code.cast_signed()));
        if taken.contains(&error.raw_os_error()) { Ok(false) } else { Err(error) }
    }

    pub(super) fn unlock(file: &File) -> io::Result<()> {
        let mut place = place();
        // SAFETY: the handle is open and synchronous, so the structure is not used after the call.
        let is_unlocked = unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &raw mut place) } != 0;
        if is_unlocked { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_another_process_still_has_the_open_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).unwrap();
        let locked = LockedFile::take(open()).unwrap().expect("nobody has it");
        assert!(LockedFile::take(open()).unwrap().is_none() && LockedFile::share(open()).unwrap().is_none());
        // What a started process has until it is a program of its own.
        let of_child = locked.try_clone().unwrap();
        drop(locked);
        let shared = LockedFile::share(open()).unwrap().expect("given back");
        assert!(LockedFile::share(open()).unwrap().is_some() && LockedFile::take(open()).unwrap().is_none());
        drop(shared);
        let mut has_waited = false;
        drop(LockedFile::wait(open(), || has_waited = true).unwrap());
        assert!(!has_waited);
        drop(of_child);
    }

    #[test]
    fn whoever_asks_for_no_lock_reads_and_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"old").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let locked = LockedFile::take(open()).unwrap().expect("nobody has it");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        std::fs::write(&path, b"new").unwrap();
        drop(locked);
        let mut shared = LockedFile::share(open()).unwrap().expect("given back");
        // Who shares a lock may write, too.
        std::io::Write::write_all(&mut *shared, b"own").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"own");
    }
}
