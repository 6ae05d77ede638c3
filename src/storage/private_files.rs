//! Folders and files that only their user may read.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    path::Path,
};

/// Makes a folder for this user alone, and those above it; one that exists stays as it is. On Windows it inherits who
/// may read it: nobody else, below a user's profile, which is where caches are.
///
/// # Errors
/// What the system says.
pub fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Opens a file to read and write, or makes it for this user alone; on Windows as in [`create_private_folder`].
///
/// # Errors
/// What the system says.
pub fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_stays_and_others_may_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        create_private_folder(&inner).unwrap();
        create_private_folder(&inner).unwrap();
        let path = inner.join("file");
        open_private(&path).unwrap().set_len(5).unwrap();
        assert_eq!(open_private(&path).unwrap().metadata().unwrap().len(), 5);
        #[cfg(unix)]
        for (path, mode) in [(&inner, 0o700), (&path, 0o600)] {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        assert!(open_private(&inner).is_err(), "a folder is no file");
    }
}
