//! When a file was last used, where reading a file changes it nowhere: its time of modification says so.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
    time::SystemTime,
};

/// Marks a file as used at `now`, without writing into it.
///
/// # Errors
/// What the system says, such as that the folder is read-only.
pub fn mark_used(path: &Path, now: SystemTime) -> io::Result<()> {
    open_for_times(path)?.set_modified(now)
}

#[cfg(not(windows))]
fn open_for_times(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// There a file that is open for reading refuses new times.
#[cfg(windows)]
fn open_for_times(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;

    use windows_sys::Win32::Storage::FileSystem::FILE_WRITE_ATTRIBUTES;

    OpenOptions::new().access_mode(FILE_WRITE_ATTRIBUTES).open(path)
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::storage::MappedFile;

    #[test]
    fn a_file_that_is_mapped_is_marked_and_a_missing_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"bytes").unwrap();
        let _mapped = MappedFile::open(&path).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        mark_used(&path, time).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.modified().unwrap(), found.len()), (time, 5));
        assert!(mark_used(&folder.path().join("missing"), time).is_err());
    }
}
