//! A whole file mapped read-only, shared by cheap clones.

use std::{
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use memmap2::Mmap;

use super::{file_faults::NamedMap, file_stamp::FileStamp};

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
    /// Somebody wrote into the file.
    #[error(
        "`{}` was changed while it was read: expected the {expected} bytes that were there at first, found {found} \
         bytes written since; start again when its writer is done, and replace such files by renaming another over \
         them",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its bytes when it was mapped.
        expected: u64,
        /// Its bytes now.
        found: u64,
    },
}

/// Length and time of modification, which differ between versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    bytes: u64,
    /// `None` where the file system does not say.
    modified: Option<SystemTime>,
}

impl FileState {
    fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { bytes: found.len(), modified: found.modified().ok() })
    }
}

struct Inner {
    path: PathBuf,
    file: File,
    state: FileState,
    /// Dropped before the map.
    _named: NamedMap,
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
        let state = FileState::of(&file).map_err(refuse)?;
        if state.bytes == 0 {
            return Err(StorageError::Empty { path: path.to_owned() });
        }
        // SAFETY: the map is read-only and private to `Inner`, which owns it as long as any borrow of its bytes. That
        // nobody changes the file meanwhile is the user's side of the contract stated in this room's documentation.
        let map = unsafe { Mmap::map(&file) }
            .map_err(|source| StorageError::Map { path: path.to_owned(), source })?;
        let named = NamedMap::new(&map, path);
        Ok(Self { inner: Arc::new(Inner { path: path.to_owned(), file, state, _named: named, map }) })
    }

    /// Checks that the file has not changed since it was mapped. Call it after reading bytes that must be consistent.
    /// Costs a system call. A change that keeps the length within one tick of the file system's clock goes unnoticed.
    ///
    /// # Errors
    /// [`StorageError::Changed`] if somebody wrote into it, [`StorageError::Open`] if the system does not say.
    pub fn check_unchanged(&self) -> Result<(), StorageError> {
        let Inner { path, file, state, .. } = &*self.inner;
        let found =
            FileState::of(file).map_err(|source| StorageError::Open { path: path.clone(), source })?;
        if found == *state {
            return Ok(());
        }
        Err(StorageError::Changed { path: path.clone(), expected: state.bytes, found: found.bytes })
    }

    /// Asks the system to map the file in huge pages, as far as its file system can: for files that are read again and
    /// again. Advice only: the bytes are the same if it is not followed.
    pub fn ask_for_huge_pages(&self) {
        // Large pages of Windows are never those of a mapped file.
        #[cfg(target_os = "linux")]
        let _ = self.inner.map.advise(memmap2::Advice::HugePage);
    }

    /// Gives back the memory of what was read of the file; reading it again brings it back. For files that are read
    /// seldom where memory is short.
    pub fn let_pages_go(&self) {
        #[cfg(unix)]
        // SAFETY: the map is of a file, shared and never written through, so its bytes are the same when they are read
        // again.
        let _ = unsafe { self.inner.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }

    /// The file's stamp now; `None` on systems that note no changes. Costs a system call.
    ///
    /// # Errors
    /// [`StorageError::Open`] if the system does not say.
    pub fn stamp(&self) -> Result<Option<FileStamp>, StorageError> {
        let Inner { path, file, .. } = &*self.inner;
        FileStamp::of(file).map_err(|source| StorageError::Open { path: path.clone(), source })
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

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
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
    use crate::storage::rename_over;

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
        rename_over(&other, &path).unwrap();
        assert_eq!(mapped.bytes(), b"old");
    }

    #[test]
    fn a_file_that_is_written_into_is_told_from_one_that_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("data.bin"), folder.path().join("new.bin"));
        for [length, seconds] in [[10, 5], [9, 0], [11, 0]] {
            fs::write(&path, [1; 10]).unwrap();
            let mapped = MappedFile::open(&path).unwrap();
            mapped.check_unchanged().unwrap();
            fs::write(&other, [2; 10]).unwrap();
            rename_over(&other, &path).unwrap();
            mapped.check_unchanged().unwrap();

            let mapped = MappedFile::open(&path).unwrap();
            let written = File::options().write(true).open(&path).unwrap();
            let is_cut = written.set_len(length);
            if cfg!(windows) && length < 10 {
                is_cut.expect_err("nobody shortens a mapped file");
                continue;
            }
            is_cut.unwrap();
            let time = fs::metadata(&path).unwrap().modified().unwrap();
            written.set_modified(time + std::time::Duration::from_secs(seconds)).unwrap();
            let error = mapped.check_unchanged().unwrap_err();
            assert!(matches!(error, StorageError::Changed { expected: 10, found, .. } if found == length));
            assert!(
                error.to_string().contains("data.bin") && error.to_string().contains("renaming"),
                "{error}"
            );
        }
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
