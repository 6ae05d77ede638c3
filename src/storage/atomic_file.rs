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
    let replaced = written.and_then(|()| rename_over(&partial, path));
    replaced.map_err(|error| {
        // The first error is the one worth reporting; a leftover is harmless.
        let _ = fs::remove_file(&partial);
        no_room(error, content.len())
    })
}

/// Gives a file another name, whose file it replaces, so that a reader finds the old content or the new. Maps of the
/// old file keep its bytes.
///
/// On Windows a file that is in use cannot be replaced, but can be renamed: the old file gets the name
/// `.NAME.PID-NUMBER.replaced` in the same folder, and a later call for the same `path` removes it once nobody uses it.
/// There a process killed between the two renames leaves no file at `path`.
///
/// # Errors
/// What the system says; then `path` is as it was.
pub fn rename_over(from: &Path, path: &Path) -> io::Result<()> {
    rename(from, path)
}

/// As [`rename_over`], with the bytes of the file on the disk before it gets the name, and the name when this returns.
///
/// # Errors
/// As `rename_over`.
pub fn install_file(from: &Path, path: &Path) -> io::Result<()> {
    // Windows flushes only what may be written.
    File::options().read(true).write(true).open(from)?.sync_all()?;
    rename(from, path)?;
    sync_folder_of(path)
}

#[cfg(unix)]
fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// There names are in the journal of the file system, and folders are not opened as files.
#[cfg(not(unix))]
fn sync_folder_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(not(windows))]
fn rename(from: &Path, path: &Path) -> io::Result<()> {
    fs::rename(from, path)
}

#[cfg(windows)]
fn rename(from: &Path, path: &Path) -> io::Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A name of its own for every file that this process puts aside.
    static PUT_ASIDE: AtomicUsize = AtomicUsize::new(0);

    let name = path.file_name().unwrap_or_default().to_string_lossy();
    remove_put_aside(path, &name);
    let Err(refused) = fs::rename(from, path) else { return Ok(()) };
    let number = PUT_ASIDE.fetch_add(1, Ordering::Relaxed);
    let aside = path.with_file_name(format!(".{name}.{}-{number}.replaced", std::process::id()));
    // What is not there, or no file, is not in the way.
    if !path.is_file() || fs::rename(path, &aside).is_err() {
        return Err(refused);
    }
    let renamed = fs::rename(from, path);
    let _ = if renamed.is_ok() { fs::remove_file(&aside) } else { fs::rename(&aside, path) };
    renamed
}

/// Removes what earlier calls put aside for a file of this name, unless somebody still uses it.
#[cfg(windows)]
fn remove_put_aside(path: &Path, name: &str) {
    for entry in fs::read_dir(folder_of(path)).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let is_aside = |found: &str| {
            found
                .strip_prefix('.')
                .and_then(|found| found.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".replaced"))
        };
        if found.to_str().is_some_and(is_aside) {
            let _ = fs::remove_file(entry.path());
        }
    }
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
    fn a_mapped_file_is_replaced_and_its_map_keeps_the_old_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace_file(&path, b"old").unwrap();
        let mapped = crate::storage::MappedFile::open(&path).unwrap();
        for new in [&b"new"[..], b"newer"] {
            replace_file(&path, new).unwrap();
            assert_eq!(fs::read(&path).unwrap(), new);
            assert_eq!(mapped.bytes(), b"old");
        }
        drop(mapped);
        let other = folder.path().join("other");
        fs::write(&other, b"newest").unwrap();
        install_file(&other, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newest");
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"], "what was put aside is gone");
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
