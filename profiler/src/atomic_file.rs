//! Replacing a file so that a reader finds the old content or the new, never half of either.
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Writes `content` to a temporary file beside `path`, flushes it to the disk and renames it over `path`.
///
/// A process killed part way leaves `path` as it was and at most a stray `.NAME.PID.partial` beside it.
///
/// # Errors
/// If the folder cannot be written; the temporary file is then removed.
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
    written.and_then(|()| fs::rename(&partial, path)).inspect_err(|_| {
        // The first error is the one worth reporting; a leftover is harmless.
        let _ = fs::remove_file(&partial);
    })
}
