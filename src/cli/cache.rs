//! The cache folder: fetched models, plans and packed weights; a model appears in it complete or not at all.
//!
//! ```text
//! <cache>/models/NAME.gguf          complete and verified, put there by one rename
//! <cache>/models/NAME.gguf.sha256   proof that it was verified, as `sha256sum -c` reads it
//! <cache>/partial/                  work in progress of the process that holds the lock
//! <cache>/lock
//! <cache>/plans/                    see plan_cache.rs
//! <cache>/chat_history              lines typed in chats
//! <cache>/sessions/                 see kept_chat.rs
//! <cache>/contents/                 see contents.rs
//! <cache>/hub/                      see fetch/hub.rs
//! <cache>/outlines/PID/             headers of models that `yggc doctor` looks at, removed when it is done
//! <cache>/packed/                   packed weights, one file per model, written by the library (`Model::kept_in`)
//! <cache>/prefixes/                 kept prefixes, one file per model and kernels, written by the library
//! <cache>/kernels/                  kernels compiled for a GPU
//! ```
//!
//! Invariants: a model is never written in place, only renamed. Its proof is written after it and compared as a whole,
//! so an incomplete proof is worthless. `partial/` is touched only under the lock, which the system releases when its
//! holder dies; so the next holder can remove everything in it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use yggc::{
    packed::KeptPlace,
    storage::{LockedFile, free_memory, install_file},
};

use crate::cli::args::Environment;

mod command;
mod entries;
#[cfg(test)]
mod tests;

pub(crate) use command::command;

/// Why the cache could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    /// The environment names no folder.
    #[error(
        "no cache folder: none of XDG_CACHE_HOME, LOCALAPPDATA and HOME names an absolute path; \
         give one with --cache-dir DIR"
    )]
    NoFolder,
    /// No space left for a file of the cache.
    #[error(
        "no room is left: {path} could not be written, as the disk, a quota or a limit of the shell is full; make \
         room, choose another place with --cache-dir DIR, or give a model file with -m PATH.gguf"
    )]
    DiskFull { path: PathBuf },
    /// The system refused an operation.
    #[error(
        "cannot {action} {path} in the cache: {error}; choose another place with --cache-dir DIR, or give a model file \
         with -m PATH.gguf"
    )]
    Io { action: &'static str, path: PathBuf, error: io::Error },
}

impl CacheError {
    /// Turns the system's error for `path` into ours; `action` completes "cannot ...".
    pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull { path: path.to_owned() }
            }
            _ => Self::Io { action, path: path.to_owned(), error },
        }
    }
}

/// Identity of a cached file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) file_name: &'static str,
    pub(crate) bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub(crate) sha256: &'static str,
}

impl FileIdentity {
    /// The one line of the file's proof.
    fn proof(&self) -> String {
        format!("{}  {}\n", self.sha256, self.file_name)
    }
}

/// The place of the cache, resolved only by commands that need one.
#[derive(Debug, Clone)]
pub(crate) struct CachePlace {
    pub(crate) flag: Option<PathBuf>,
    pub(crate) environment: Environment,
    /// Whether packed weights are kept.
    pub(crate) keeps_packed: bool,
    /// Bytes of them at most; `None`: as the library decides.
    pub(crate) packed_limit: Option<u64>,
}

impl CachePlace {
    /// The folder of packed weights, if they are kept.
    pub(crate) fn packed(&self) -> Option<KeptPlace> {
        let cache = self.keeps_packed.then(|| self.dir().ok()).flatten()?;
        let most_read_bytes = free_memory().map_or(0, |bytes| bytes / 2);
        Some(KeptPlace {
            most_bytes: self.packed_limit,
            most_read_bytes,
            ..KeptPlace::in_folder(cache.packed())
        })
    }

    /// The cache folder.
    ///
    /// # Errors
    /// [`CacheError::NoFolder`] if neither option nor environment names one.
    pub(crate) fn dir(&self) -> Result<CacheDir, CacheError> {
        CacheDir::resolve(self.flag.clone(), &self.environment)
    }

    /// Makes this process keep the GPU kernels that it compiles in the cache folder, if there is one.
    #[cfg(feature = "cuda")]
    pub(crate) fn keep_compiled_kernels(&self) {
        if let Ok(cache) = self.dir() {
            yggc::backend::keep_compiled_kernels(cache.root.join("kernels"));
        }
    }
}

/// A cache folder, which need not exist yet.
#[derive(Debug, Clone)]
pub(crate) struct CacheDir {
    root: PathBuf,
}

impl CacheDir {
    /// The folder of everything.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// `flag`, else `$XDG_CACHE_HOME/yggc`, else `%LOCALAPPDATA%\yggc`, else `$HOME/.cache/yggc`.
    pub(crate) fn resolve(flag: Option<PathBuf>, environment: &Environment) -> Result<Self, CacheError> {
        if let Some(flag) = flag {
            let root = std::path::absolute(&flag).map_err(CacheError::at("use", &flag))?;
            return Ok(Self { root });
        }
        environment.caches().map(|caches| Self { root: caches.join("yggc") }).ok_or(CacheError::NoFolder)
    }

    fn models(&self) -> PathBuf {
        self.root.join("models")
    }

    /// The folder of records of hub repositories (see `fetch/hub.rs`).
    pub(crate) fn hub(&self) -> PathBuf {
        self.root.join("hub")
    }

    /// A folder of this process for headers of models.
    pub(crate) fn outlines(&self) -> PathBuf {
        self.root.join("outlines").join(std::process::id().to_string())
    }

    /// The folder of plans, with a lock of its own (see `plan_cache.rs`).
    pub(crate) fn plans(&self) -> PathBuf {
        self.root.join("plans")
    }

    /// What models held when they were first opened (see `contents.rs`).
    pub(crate) fn contents(&self) -> PathBuf {
        self.root.join("contents")
    }

    /// Where the file of a known model is, once fetched.
    pub(crate) fn place_of(&self, identity: &FileIdentity) -> PathBuf {
        self.models().join(identity.file_name)
    }

    /// Lines typed in chats.
    pub(crate) fn chat_history(&self) -> PathBuf {
        self.root.join("chat_history")
    }

    /// The folder of conversations that go on (see `kept_chat.rs`), with a lock for each.
    pub(crate) fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    /// The folder of kept prefixes, with a lock of its own, which the library takes to write there.
    pub(crate) fn prefixes(&self) -> PathBuf {
        self.root.join("prefixes")
    }

    /// The folder of packed weights, with a lock of its own, which the library takes to write there.
    fn packed(&self) -> PathBuf {
        self.root.join("packed")
    }

    /// The cached file, if it exists with the right size and was verified; a file without a proof is hashed now.
    pub(crate) fn find(&self, identity: &FileIdentity) -> Result<Option<PathBuf>, CacheError> {
        let path = self.place_of(identity);
        match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() == identity.bytes => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CacheError::at("look at", &path)(error)),
        }
        let proof = proof_path(&path);
        if fs::read(&proof).is_ok_and(|text| text == identity.proof().as_bytes()) {
            return Ok(Some(path));
        }
        if sha256_of(&path)? != identity.sha256 {
            return Ok(None);
        }
        // Without a proof the next call hashes again, so a read-only cache still works.
        let _ = fs::write(proof, identity.proof());
        Ok(Some(path))
    }

    /// Takes the cache's lock, waiting for another process if need be (`on_wait` is called before waiting), and
    /// clears `partial/` of the remains of a dead process.
    pub(crate) fn lock(&self, on_wait: impl FnOnce()) -> Result<LockedCache<'_>, CacheError> {
        let models = self.models();
        fs::create_dir_all(&models).map_err(CacheError::at("create", &models))?;
        let lock = take_lock(&self.root.join("lock"), on_wait)?;
        let partial = self.root.join("partial");
        remove_folder(&partial)?;
        // A fresh name each time: a download client that outlived its killed parent must not write into ours.
        let work = partial.join(std::process::id().to_string());
        fs::create_dir_all(&work).map_err(CacheError::at("create", &work))?;
        Ok(LockedCache { cache: self, work, _lock: lock })
    }
}

/// The cache while this process holds its lock.
#[derive(Debug)]
pub(crate) struct LockedCache<'a> {
    cache: &'a CacheDir,
    work: PathBuf,
    _lock: LockedFile,
}

impl LockedCache<'_> {
    /// An empty folder on the cache's file system, removed when the lock is released.
    pub(crate) fn work(&self) -> &Path {
        &self.work
    }

    /// Moves a verified file from [`Self::work`] to its place. Until the rename the cache is as before, after it the
    /// file is complete.
    pub(crate) fn install(&self, verified: &Path, identity: &FileIdentity) -> Result<PathBuf, CacheError> {
        let path = self.cache.place_of(identity);
        install_file(verified, &path).map_err(CacheError::at("rename a file to", &path))?;
        let proof = proof_path(&path);
        fs::write(&proof, identity.proof()).map_err(CacheError::at("write", &proof))?;
        Ok(path)
    }
}

impl Drop for LockedCache<'_> {
    fn drop(&mut self) {
        // The next holder of the lock removes what cannot be removed now.
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// Locks a file; the system releases the lock when the process ends, however it ends. `on_wait` is called
/// before waiting for another process.
pub(crate) fn take_lock(path: &Path, on_wait: impl FnOnce()) -> Result<LockedFile, CacheError> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    LockedFile::wait(file.map_err(CacheError::at("open", path))?, on_wait)
        .map_err(CacheError::at("lock", path))
}

fn proof_path(path: &Path) -> PathBuf {
    path.with_added_extension("sha256")
}

fn remove_folder(path: &Path) -> Result<(), CacheError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CacheError::at("clear", path)(error)),
        _ => Ok(()),
    }
}

/// SHA-256 of a file in lower-case hexadecimal.
pub(crate) fn sha256_of(path: &Path) -> Result<String, CacheError> {
    let mut file = File::open(path).map_err(CacheError::at("open", path))?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(CacheError::at("read", path))? {
            0 => return Ok(hex(&hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
