//! Writes bytes to a file, for targets that read from a path.

use std::{fs, path::Path};

thread_local! {
    static FILE: tempfile::TempPath =
        tempfile::NamedTempFile::new().expect("the temporary folder is writable").into_temp_path();
}

/// Calls `read` with the path of a file of these bytes. The file is this thread's, and is written anew each time.
pub(super) fn in_file<T>(bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    FILE.with(|path| {
        fs::write(path, bytes).expect("the temporary folder is writable");
        read(path)
    })
}
