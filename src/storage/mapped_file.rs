//! A whole file mapped read-only, shared by cheap clones.

use std::{
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use memmap2::Mmap;

/// Why a file could not be mapped. All of them are the fault of the path or of the machine, none of the content.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file does not exist or may not be read.
    #[error("cannot open `{}`: {source}; check the path and its permissions", path.display())]
    Open {
        /// File asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory, device or pipe.
    #[error("`{}`: expected a regular file, found {found}", path.display())]
    NotAFile {
        /// Path asked for.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// A file without bytes.
    #[error("`{}`: expected content, found an empty file; it may be an unfinished download", path.display())]
    Empty {
        /// File asked for.
        path: PathBuf,
    },
    /// The system refused the mapping.
    #[error("cannot map `{}` into memory: {source}", path.display())]
    Map {
        /// File asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

struct Inner {
    path: PathBuf,
    map: Mmap,
}

/// A file's bytes, mapped read-only. Clones share the map, which is released with the last of them.
///
/// ```no_run
/// # use yggc::storage::MappedFile;
/// let file = MappedFile::open("model.gguf".as_ref())?;
/// assert_eq!(&file.bytes()[..4], b"GGUF");
/// # Ok::<(), yggc::storage::StorageError>(())
/// ```
#[derive(Clone)]
pub struct MappedFile {
    inner: Arc<Inner>,
}

impl MappedFile {
    /// Maps a regular, non-empty file.
    ///
    /// # Errors
    /// [`StorageError`], which names the path.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let refuse = |source| StorageError::Open { path: path.to_owned(), source };
        // Asked before opening: opening a pipe would wait for its writer.
        let kind = fs::metadata(path).map_err(refuse)?;
        if !kind.is_file() {
            let found = if kind.is_dir() { "a directory" } else { "a device, pipe or socket" };
            return Err(StorageError::NotAFile { path: path.to_owned(), found });
        }
        let file = File::open(path).map_err(refuse)?;
        if file.metadata().map_err(refuse)?.len() == 0 {
            return Err(StorageError::Empty { path: path.to_owned() });
        }
        // SAFETY: the map is read-only and private to `Inner`, which owns it as long as any borrow of its bytes. That
        // nobody changes the file meanwhile is the user's side of the contract stated in this room's documentation.
        let map = unsafe { Mmap::map(&file) }
            .map_err(|source| StorageError::Map { path: path.to_owned(), source })?;
        Ok(Self { inner: Arc::new(Inner { path: path.to_owned(), map }) })
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.inner.map
    }

    /// Number of bytes; never 0.
    pub fn len(&self) -> usize {
        self.inner.map.len()
    }

    /// Always false: an empty file cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.inner.map.is_empty()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedFile").field("path", &self.inner.path).field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lends_the_bytes_after_the_first_owner_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.bin");
        fs::write(&path, b"0123456789").unwrap();
        let first = MappedFile::open(&path).unwrap();
        let second = first.clone();
        assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
        drop(first);
        assert_eq!((second.bytes(), second.len(), second.path()), (&b"0123456789"[..], 10, path.as_path()));
    }

    #[test]
    fn survives_replacement_by_rename() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("data.bin"), folder.path().join("new.bin"));
        fs::write(&path, b"old").unwrap();
        let mapped = MappedFile::open(&path).unwrap();
        fs::write(&other, b"").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(mapped.bytes(), b"old");
    }

    #[test]
    fn refuses_what_is_not_a_file_with_content() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        fs::write(&empty, b"").unwrap();
        assert!(matches!(MappedFile::open(&empty), Err(StorageError::Empty { path }) if path == empty));
        let missing = folder.path().join("missing");
        assert!(
            matches!(MappedFile::open(&missing), Err(StorageError::Open { path, .. }) if path == missing)
        );
        let error = MappedFile::open(folder.path()).unwrap_err();
        assert!(matches!(error, StorageError::NotAFile { found: "a directory", .. }));
        assert!(error.to_string().contains(folder.path().to_str().unwrap()));
    }
}
