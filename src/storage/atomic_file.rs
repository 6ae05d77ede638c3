//! Replacing a file so that a reader finds the old content or the new, never half of either.
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Writes `content` to a temporary file in the folder of `path`, flushes it to the disk and renames it over `path`.
///
/// A process killed part way leaves `path` as it was and at most a stray `.NAME.PID.partial` next to it.
///
/// # Errors
/// If the folder cannot be written; the temporary file is then removed. Where there is no room, the error says how much
/// was needed and that `path` is as it was.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` names no file", path.display()))
    })?;
    let mut partial_name = OsString::from(".");
    partial_name.push(name);
    partial_name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(partial_name);

    let written = File::create(&partial).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&partial, path));
    replaced.map_err(|error| {
        // The first error is the one worth reporting; a leftover is harmless.
        let _ = fs::remove_file(&partial);
        no_room(error, content.len())
    })
}

/// The system's word with what it means to the user, where a disk, a quota or a limit of the shell is full.
fn no_room(error: io::Error, needed: usize) -> io::Error {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    if !full.contains(&error.kind()) {
        return error;
    }
    let what = format!(
        "no room for its {needed} bytes ({error}); make room or choose another place; what was there before is \
         unchanged"
    );
    io::Error::new(error.kind(), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace_file(&path, b"old").unwrap();
        replace_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace_file(Path::new("/"), b"").unwrap_err().to_string().contains("names no file"));
        assert!(replace_file(&folder.path().join("missing/file"), b"").is_err());
    }

    #[test]
    fn a_full_disk_says_what_it_means_and_other_errors_stay() {
        let full = no_room(io::ErrorKind::StorageFull.into(), 77);
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        for part in ["77 bytes", "make room", "unchanged"] {
            assert!(full.to_string().contains(part), "{full}");
        }
        let other = no_room(io::ErrorKind::PermissionDenied.into(), 77);
        assert!(!other.to_string().contains("room"), "{other}");
    }
}
