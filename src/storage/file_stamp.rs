//! Stamps of files: identity, length and time of change as the system records them.

use std::{
    fs::File,
    io,
    time::{Duration, SystemTime},
};

use super::{MappedFile, StorageError};

/// Longest time that a file system gives two changes the same time.
const CLOCK_TICK: Duration = Duration::from_secs(2);

/// Which file it is, its length, and when the system saw it change. The time of the change is the system's own
/// (`st_ctime`, which no program sets; `ChangeTime` of Windows, which few do): a file that was written into, replaced
/// or cut has another stamp even if its length and its time of modification were put back. What a stamp cannot tell: a
/// change in the same tick of the clock as the one before ([`is_settled`](Self::is_settled)), and one through a shared
/// map that the system has not written back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: [i64; 2],
    /// Seconds and nanoseconds.
    changed: [i64; 2],
}

impl FileStamp {
    /// `None` on systems that note no changes.
    #[cfg(unix)]
    pub(super) fn of(file: &File) -> io::Result<Option<Self>> {
        use std::os::unix::fs::MetadataExt;
        let found = file.metadata()?;
        Ok(Some(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: [found.mtime(), found.mtime_nsec()],
            changed: [found.ctime(), found.ctime_nsec()],
        }))
    }

    /// `None` on file systems that note no changes, such as FAT.
    #[cfg(windows)]
    pub(super) fn of(file: &File) -> io::Result<Option<Self>> {
        use std::os::windows::io::AsRawHandle;

        use windows_sys::Win32::Storage::FileSystem::{
            BY_HANDLE_FILE_INFORMATION, FILE_BASIC_INFO, FileBasicInfo, GetFileInformationByHandle,
            GetFileInformationByHandleEx,
        };

        let handle = file.as_raw_handle();
        let (mut found, mut times) = (BY_HANDLE_FILE_INFORMATION::default(), FILE_BASIC_INFO::default());
        let size = size_of::<FILE_BASIC_INFO>() as u32;
        // SAFETY: the handle is open, and the system writes to structures of ours, whose size it is given or knows.
        let is_known = unsafe {
            GetFileInformationByHandle(handle, &raw mut found) != 0
                && GetFileInformationByHandleEx(handle, FileBasicInfo, (&raw mut times).cast(), size) != 0
        };
        if !is_known {
            return Err(io::Error::last_os_error());
        }
        let halves = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Ok((times.ChangeTime != 0).then(|| Self {
            device: found.dwVolumeSerialNumber.into(),
            inode: halves(found.nFileIndexHigh, found.nFileIndexLow),
            bytes: halves(found.nFileSizeHigh, found.nFileSizeLow),
            modified: since_1970(times.LastWriteTime),
            changed: since_1970(times.ChangeTime),
        }))
    }

    /// `None` on systems that note no changes.
    #[cfg(not(any(unix, windows)))]
    pub(super) fn of(_: &File) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Stamps of files as they are now; `None` on systems that note no changes.
    ///
    /// # Errors
    /// [`StorageError`] if the system does not give them.
    pub fn of_all(files: &[MappedFile]) -> Result<Option<Vec<Self>>, StorageError> {
        files.iter().map(|file| file.stamp().transpose()).collect::<Option<Result<_, _>>>().transpose()
    }

    /// The stamp as bytes, equal for equal stamps.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { device, inode, bytes, modified: [m, m_ns], changed: [c, c_ns] } = *self;
        let signed = [m, m_ns, c, c_ns].map(i64::cast_unsigned);
        [device, inode, bytes].into_iter().chain(signed).flat_map(u64::to_le_bytes).collect()
    }

    /// Whether the last change is so long ago that any later one has another time.
    #[expect(
        clippy::disallowed_methods,
        reason = "the age of a file decides whether its changes can be told"
    )]
    pub fn is_settled(&self) -> bool {
        let [seconds, nanoseconds] = self.changed.map(|n| u64::try_from(n).unwrap_or(0));
        let changed = Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.checked_sub(changed).is_some_and(|age| age >= CLOCK_TICK)
    }
}

/// Seconds and nanoseconds since 1970 of a time of Windows: units of 100 ns since 1601.
#[cfg(windows)]
fn since_1970(time: i64) -> [i64; 2] {
    const UNITS: i64 = 10_000_000;
    const SECONDS_BETWEEN: i64 = 11_644_473_600;
    [time.div_euclid(UNITS) - SECONDS_BETWEEN, time.rem_euclid(UNITS) * 100]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What systems note that this is tested on.
    #[cfg(any(unix, windows))]
    #[test]
    fn a_file_that_was_written_into_has_another_stamp_whatever_its_length_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let stamp = || MappedFile::open(&path).unwrap().stamp().unwrap().expect("changes are noted");
        fs::write(&path, b"one").unwrap();
        let first = stamp();
        assert!(!first.is_settled(), "it was written just now");
        assert_eq!(first, stamp());
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        // Two changes within a tick have the same time.
        std::thread::sleep(Duration::from_millis(50));
        let file = File::options().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut &file, b"two").unwrap();
        file.set_modified(modified).unwrap();
        drop(file);
        let second = stamp();
        assert_ne!(first, second);
        assert_ne!(first.to_bytes(), second.to_bytes());
        assert_eq!((first.bytes, first.modified, first.inode), (second.bytes, second.modified, second.inode));
        let other = folder.path().join("other");
        fs::write(&other, b"one").unwrap();
        assert_ne!(MappedFile::open(&other).unwrap().stamp().unwrap().unwrap().inode, second.inode);
    }
}
