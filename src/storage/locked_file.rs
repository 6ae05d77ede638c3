//! Files that one process at a time has.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, SeekFrom},
    ops::{Deref, DerefMut},
};

/// A file with its lock, which ends with this value, or with the process however that ends.
///
/// The lock is given back, not left to the closing of the file: a process that another thread has just started has the
/// same open file until it is a program of its own, and would keep the lock for as long.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks a file; `None` if another has its lock.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Locks a file against [`take`](Self::take), and not against others that do the same; `None` if another took it.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn share(file: File) -> io::Result<Option<Self>> {
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Locks a file; `on_wait` is called before waiting for another that has its lock.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn wait(file: File, on_wait: impl FnOnce()) -> io::Result<Self> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                on_wait();
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
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
        let _ = self.0.unlock();
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
}
