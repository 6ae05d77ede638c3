//! Stamps of files: identity, length and time of change as the system records them.

use std::{
    fs::Metadata,
    time::{Duration, SystemTime},
};

use super::{MappedFile, StorageError};

/// Longest time that a file system gives two changes the same time.
const CLOCK_TICK: Duration = Duration::from_secs(2);

/// Which file it is, its length, and when the system saw it change. The time of the change is the system's own
/// (`st_ctime`): no program sets it, so a file that was written into, replaced or cut has another stamp even if its
/// length and its time of modification were put back. What a stamp cannot tell: a change in the same tick of the clock
/// as the one before ([`is_settled`](Self::is_settled)), and one through a shared map that the system has not written
/// back yet.
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
    pub(super) fn of(found: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: [found.mtime(), found.mtime_nsec()],
            changed: [found.ctime(), found.ctime_nsec()],
        })
    }

    /// `None` on systems that note no changes.
    #[cfg(not(unix))]
    pub(super) fn of(_: &Metadata) -> Option<Self> {
        None
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
