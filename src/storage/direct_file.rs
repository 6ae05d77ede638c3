//! Files that are read past the system's cache: what is read again and again in one order, and is larger than memory,
//! is never found there.

use std::{fs::File, io, path::Path};

/// Opens a file for reading; the answer says whether reads pass the cache by. Then they begin and end at multiples of a
/// page, in the file and in memory. Where the file system does not offer it, reads go through the cache.
///
/// # Errors
/// What the system says if it refuses the file.
#[cfg(target_os = "linux")]
pub fn open_direct(path: &Path) -> io::Result<(File, bool)> {
    use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt};

    match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        // What file systems without it answer.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((File::open(path)?, false)),
        Err(error) => Err(error),
    }
}

/// Opens a file for reading; the answer says whether reads pass the cache by. Then they begin and end at multiples of a
/// page, in the file and in memory: disks have sectors of at most a page.
///
/// # Errors
/// What the system says if it refuses the file.
#[cfg(windows)]
pub fn open_direct(path: &Path) -> io::Result<(File, bool)> {
    use std::{fs::OpenOptions, os::windows::fs::OpenOptionsExt};

    use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_NO_BUFFERING;

    Ok((OpenOptions::new().read(true).custom_flags(FILE_FLAG_NO_BUFFERING).open(path)?, true))
}

/// Opens a file for reading; the answer says whether reads pass the cache by.
///
/// # Errors
/// What the system says if it refuses the file.
#[cfg(not(any(target_os = "linux", windows)))]
pub fn open_direct(path: &Path) -> io::Result<(File, bool)> {
    Ok((File::open(path)?, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_either_way_and_a_missing_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages");
        std::fs::write(&path, [7; 8192]).unwrap();
        let (file, _) = open_direct(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8192);
        assert_eq!(open_direct(&folder.path().join("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
