//! The cache of packed weights: a folder with one file per model, which a later start reads into memory or maps if
//! memory is short.
//!
//! ```text
//! <folder>/DIGEST.packed            the digest is of the model's path; `file` has the format
//! <folder>/.DIGEST.packed.partial   being written, under the lock
//! <folder>/lock
//! ```
//!
//! Invariants:
//! - A file appears by one rename, after its weights were read back and their digest compared.
//! - A file is used only if the digest of its header is right, its length is the header's, 64 evenly spaced sample
//!   pages are unchanged, and code layout, model fingerprint and file stamps are the present ones. Otherwise the model
//!   is packed again.
//! - Opening does not read the weights between the samples. Only [`KeptFile::check`], which reads the whole file, finds
//!   damage there.
//! - The folder stays within its limit. Storing another model first removes the weights of models that no longer exist,
//!   then the least recently used ones.

use std::{
    borrow::Cow,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Model, ModelError, ModelFingerprint};
use crate::{
    ir::{KEPT_ALIGNMENT, KeptBytes, PackedDigest, PackedFile, PackedParts, WeightId, WeightSource},
    storage::{CopiedBytes, FileStamp, MappedFile, StorageError, open_direct},
};
use file::{DIGEST, Fault, Header, samples};
pub use folder::{KeptFile, kept_files};

mod file;
mod folder;

const EXTENSION: &str = "packed";
/// Writes have this size and alignment, so that file systems which cache in huge pages use one page for each.
const WINDOW: usize = 2 << 20;

/// Where packed weights are kept.
#[derive(Clone, Debug)]
pub struct KeptPlace {
    /// The folder, which need not exist.
    pub folder: PathBuf,
    /// Packed weights of fewer bytes are not stored.
    pub least_bytes: usize,
    /// Limit of the folder in bytes. `None`: 32 GiB, but at most half of what the disk would have free without the
    /// folder.
    pub most_bytes: Option<u64>,
    /// Weights of at most this many bytes are read into memory, where kernels read them faster; larger ones are mapped.
    pub most_read_bytes: usize,
}

impl KeptPlace {
    /// A folder with the usual limits.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            // Packing fewer takes less time than opening a file of them.
            least_bytes: 16 << 20,
            most_bytes: None,
            most_read_bytes: 4 << 30,
        }
    }
}

/// What happened to the packed weights of a model. Each variant displays as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackedNote {
    /// They were read from the folder into memory.
    Read(PathBuf),
    /// The stored file is mapped: it is too large to read, or the system refused the memory.
    Mapped(PathBuf),
    /// They were packed and stored.
    Kept(PathBuf),
    /// The stored ones belong to another version of the model or of the code layout; the weights are packed again.
    Outdated(PathBuf),
    /// They were not stored this time, for this reason; a later start may store them.
    Later(&'static str),
    /// They are not stored because their file exceeds the limit of the folder.
    TooLarge {
        /// Bytes of their file.
        needed: u64,
        /// Limit of the folder in bytes.
        limit: u64,
    },
    /// The stored file is damaged in this way; the weights are packed again.
    Damaged(PathBuf, String),
    /// They cannot be stored, for this reason; the model works without.
    Refused(PathBuf, String),
}

impl PackedNote {
    /// Whether the user should act on it.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Read(_) | Self::Mapped(_) | Self::Kept(_) | Self::Outdated(_) | Self::Later(_) => false,
            Self::Damaged(..) | Self::Refused(..) | Self::TooLarge { .. } => true,
        }
    }
}

impl fmt::Display for PackedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path) => write!(f, "packed weights are read from `{}`", path.display()),
            Self::Mapped(path) => write!(f, "packed weights are mapped from `{}`", path.display()),
            Self::Kept(path) => write!(f, "packed weights are kept in `{}`", path.display()),
            Self::Outdated(path) => {
                write!(
                    f,
                    "the packed weights in `{}` are of another state of the model or of yggc",
                    path.display()
                )
            }
            Self::Later(why) => write!(f, "packed weights are not kept this time: {why}"),
            Self::TooLarge { needed, limit } => write!(
                f,
                "packed weights are not kept: expected at most the folder's {} MB, found {} MB; the model runs, and \
                 is packed again next time unless the limit is raised",
                limit / 1_000_000,
                needed.div_ceil(1_000_000)
            ),
            Self::Damaged(path, how) => write!(
                f,
                "the packed weights in `{}` are damaged: {how}; the model is packed again; if this comes back, check \
                 the disk",
                path.display()
            ),
            Self::Refused(path, why) => write!(
                f,
                "packed weights cannot be kept in `{}`: {why}; the model runs, and is packed again next time",
                path.display()
            ),
        }
    }
}

type Notify = Box<dyn Fn(PackedNote) + Send + Sync>;

/// The weights of a model, of which packed copies are kept.
pub(super) struct KeptWeights {
    weights: Arc<dyn WeightSource>,
    files: Vec<MappedFile>,
    place: KeptPlace,
    /// Where the model is.
    model: PathBuf,
    fingerprint: ModelFingerprint,
    /// As the files were when they were opened.
    stamps: Vec<FileStamp>,
    is_settled: bool,
    notify: Notify,
}

impl KeptWeights {
    /// `None` where the system does not report changes of files.
    pub(super) fn new(
        model: &Model,
        place: KeptPlace,
        notify: impl Fn(PackedNote) + Send + Sync + 'static,
    ) -> Result<Option<Self>, ModelError> {
        let Some(stamps) = stamps_of(model.files())? else { return Ok(None) };
        let path = fs::canonicalize(&model.path)
            .map_err(|source| ModelError::Read { path: model.path.clone(), source })?;
        Ok(Some(Self {
            weights: Arc::clone(&model.weights),
            files: model.files().to_vec(),
            place,
            model: path,
            fingerprint: model.fingerprint(),
            is_settled: stamps.iter().all(FileStamp::is_settled),
            stamps,
            notify: Box::new(notify),
        }))
    }

    fn path(&self) -> PathBuf {
        let digest = blake3::hash(self.model.as_os_str().as_encoded_bytes()).to_hex();
        self.place.folder.join(&digest[..32]).with_extension(EXTENSION)
    }

    fn stamp_digest(&self) -> [u8; DIGEST] {
        let bytes: Vec<u8> = self.stamps.iter().flat_map(FileStamp::to_bytes).collect();
        *blake3::hash(&bytes).as_bytes()
    }

    /// The stored file, its map and where its weights begin, or a note on why there is none.
    fn find(&self, packing: &PackedDigest) -> Result<(PathBuf, MappedFile, usize), Option<PackedNote>> {
        let path = self.path();
        let damaged = |how: String| Some(PackedNote::Damaged(path.clone(), how));
        let map = match MappedFile::open(&path) {
            Ok(map) => map,
            Err(StorageError::Open { source, .. })
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Err(None);
            }
            Err(error) => return Err(damaged(error.to_string())),
        };
        let (header, weights) = match Header::read(map.bytes()) {
            Ok(read) => read,
            Err(Fault::OtherVersion) => return Err(Some(PackedNote::Outdated(path))),
            Err(Fault::Damaged(how)) => return Err(damaged(how)),
        };
        let is_same = header.packing == *packing
            && header.fingerprint == *self.fingerprint.as_bytes()
            && header.stamps == self.stamp_digest();
        if !is_same {
            return Err(Some(PackedNote::Outdated(path)));
        }
        if samples(weights) != header.samples {
            return Err(damaged(
                "expected the samples of its weights as they were written, found others".to_owned(),
            ));
        }
        folder::touch(&path);
        let start = map.len() - weights.len();
        Ok((path, map, start))
    }

    /// The stored weights, in memory if they fit there.
    fn lend(&self, path: PathBuf, map: MappedFile, start: usize) -> (KeptBytes, PackedNote) {
        let weights = &map.bytes()[start..];
        if weights.len() <= self.place.most_read_bytes
            && let Ok(copied) = CopiedBytes::of(weights)
        {
            return (Arc::new(copied), PackedNote::Read(path));
        }
        map.ask_for_huge_pages();
        (Arc::new(Lent { map, start }), PackedNote::Mapped(path))
    }

    /// The lock of the folder, not yet taken.
    fn lock(&self) -> io::Result<File> {
        fs::create_dir_all(&self.place.folder)?;
        OpenOptions::new().create(true).truncate(false).write(true).open(self.place.folder.join("lock"))
    }

    /// Stores the weights unless another process is storing some.
    fn keep(&self, packing: &PackedDigest, parts: &mut dyn PackedParts) -> io::Result<PackedNote> {
        let lock = self.lock()?;
        match lock.try_lock() {
            Ok(()) => self.keep_alone(packing, parts),
            Err(TryLockError::WouldBlock) => {
                Ok(PackedNote::Later("another process is keeping packed weights"))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Stores the weights. The caller holds the lock.
    fn keep_alone(&self, packing: &PackedDigest, parts: &mut dyn PackedParts) -> io::Result<PackedNote> {
        if !self.is_settled {
            return Ok(PackedNote::Later("the model was changed less than two seconds before it was opened"));
        }
        self.remove_leftovers()?;
        let path = self.path();
        let mut header = self.header(packing, parts.sizes());
        let mut others = kept_files(&self.place.folder)?;
        let kept = others.iter().map(|file| file.bytes).sum();
        // That of this model is replaced.
        others.retain(|file| file.path != path);
        let needed = header.to_bytes().len() as u64 + header.weight_bytes;
        let limit = folder::limit_of(&self.place.folder, self.place.most_bytes, kept);
        if needed > limit {
            return Ok(PackedNote::TooLarge { needed, limit });
        }
        folder::make_room(&others, needed, limit)?;
        let mut partial_name = std::ffi::OsString::from(".");
        partial_name.push(path.file_name().unwrap_or_default());
        let partial = path.with_file_name(partial_name).with_added_extension("partial");
        let written = write(&partial, &mut header, parts).and_then(|()| {
            // Bytes that were packed before a change are not of the model as it is now.
            let now = stamps_of(&self.files).map_err(io::Error::other)?;
            if now.as_ref() != Some(&self.stamps) {
                return Ok(PackedNote::Later("the model was changed while it was loaded"));
            }
            fs::rename(&partial, &path)?;
            folder::touch(&path);
            Ok(PackedNote::Kept(path))
        });
        if !matches!(written, Ok(PackedNote::Kept(_))) {
            // The next holder of the lock removes what is left.
            let _ = fs::remove_file(&partial);
        }
        written
    }

    /// The header of these weights, but for the digests that follow from the file.
    fn header(&self, packing: &PackedDigest, sizes: &[usize]) -> Header {
        Header {
            packing: *packing,
            fingerprint: *self.fingerprint.as_bytes(),
            stamps: self.stamp_digest(),
            samples: [0; DIGEST],
            whole: [0; DIGEST],
            weight_bytes: sizes.iter().map(|size| size.next_multiple_of(KEPT_ALIGNMENT) as u64).sum(),
            model: self.model.as_os_str().as_encoded_bytes().to_vec(),
        }
    }

    /// Removes partial files of dead processes, weights of models that no longer exist, and files of unknown formats.
    /// The caller holds the lock.
    fn remove_leftovers(&self) -> io::Result<()> {
        let entries = fs::read_dir(&self.place.folder)?.flatten().map(|entry| entry.path());
        let partial = entries.filter(|path| path.extension().is_some_and(|extension| extension == "partial"));
        let of_nothing = kept_files(&self.place.folder)?.into_iter().filter(KeptFile::is_of_nothing);
        for path in partial.chain(of_nothing.map(|file| file.path)) {
            // What cannot be removed takes room and does no harm.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }
}

/// Writes a whole file, its weights read back; the header gets the digests that follow from them.
fn write(path: &Path, header: &mut Header, parts: &mut dyn PackedParts) -> io::Result<()> {
    let front = header.to_bytes();
    let mut windows = Windows { file: File::create(path)?, window: Vec::with_capacity(WINDOW) };
    windows.write(&front)?;
    let mut hasher = blake3::Hasher::new();
    for part in 0..parts.sizes().len() {
        let size = parts.sizes()[part];
        let mut written = 0;
        let mut append = |bytes: &[u8]| {
            hasher.update(bytes);
            written += bytes.len();
            windows.write(bytes)
        };
        parts.part(part, &mut append)?;
        append(&[0; KEPT_ALIGNMENT][..size.next_multiple_of(KEPT_ALIGNMENT) - size])?;
        assert_eq!(written, size.next_multiple_of(KEPT_ALIGNMENT), "bytes of part {part}");
    }
    let mut file = windows.finish()?;
    let map = MappedFile::open(path).map_err(io::Error::other)?;
    let weights = &map.bytes()[front.len()..];
    header.whole = *hasher.finalize().as_bytes();
    if *blake3::hash(weights).as_bytes() != header.whole {
        return Err(io::Error::other("what was read back is not what was written; check the disk"));
    }
    header.samples = samples(weights);
    file.rewind()?;
    file.write_all(&header.to_bytes())?;
    file.sync_all()
}

/// A file that is written in windows.
struct Windows {
    file: File,
    window: Vec<u8>,
}

impl Windows {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (taken, left) = bytes.split_at(bytes.len().min(WINDOW - self.window.len()));
            self.window.extend_from_slice(taken);
            bytes = left;
            if self.window.len() == WINDOW {
                self.file.write_all(&self.window)?;
                self.window.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<File> {
        self.file.write_all(&self.window)?;
        self.file.sync_all()?;
        Ok(self.file)
    }
}

impl WeightSource for KeptWeights {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        self.weights.bytes(weight)
    }

    fn note_loaded(&self, weight: WeightId) {
        self.weights.note_loaded(weight);
    }

    fn kept_packed(&self, digest: &PackedDigest) -> Option<KeptBytes> {
        match self.find(digest) {
            Ok((path, map, start)) => {
                let (kept, note) = self.lend(path, map, start);
                (self.notify)(note);
                Some(kept)
            }
            Err(note) => {
                note.into_iter().for_each(&self.notify);
                None
            }
        }
    }

    fn keep_packed(&self, digest: &PackedDigest, parts: &mut dyn PackedParts) {
        if parts.sizes().iter().sum::<usize>() < self.place.least_bytes {
            return;
        }
        let note = self.keep(digest, parts);
        (self.notify)(
            note.unwrap_or_else(|error| PackedNote::Refused(self.place.folder.clone(), error.to_string())),
        );
    }

    fn packed_file(&self, digest: &PackedDigest, parts: &mut dyn PackedParts) -> Result<PackedFile, String> {
        let found = self.find(digest).or_else(|note| {
            note.into_iter().for_each(&self.notify);
            let lock = self.lock().and_then(|lock| lock.lock().map(|()| lock));
            let refused = |error| format!("`{}`: {error}", self.place.folder.display());
            let _lock = lock.map_err(refused)?;
            // Another process may have stored them meanwhile.
            if let Ok(found) = self.find(digest) {
                return Ok(found);
            }
            match self.keep_alone(digest, parts) {
                Ok(PackedNote::Kept(_)) => self.find(digest).map_err(|note| {
                    note.map_or("they were written and are gone".to_owned(), |note| note.to_string())
                }),
                Ok(PackedNote::TooLarge { needed, limit }) => Err(format!(
                    "the file of packed weights takes {} MB in `{}`, whose limit is {} MB; free room there, or raise \
                     the limit",
                    needed.div_ceil(1_000_000),
                    self.place.folder.display(),
                    limit / 1_000_000
                )),
                Ok(PackedNote::Later(why)) => Err(format!("they are not kept yet, as {why}; try again")),
                Ok(other) => Err(other.to_string()),
                Err(error) => Err(refused(error)),
            }
        });
        let (path, _, start) = found?;
        let (file, is_direct) =
            open_direct(&path).map_err(|error| format!("cannot open `{}`: {error}", path.display()))?;
        Ok(PackedFile { file, path, start: start as u64, is_direct })
    }
}

/// The weights in a file.
struct Lent {
    map: MappedFile,
    start: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.map.bytes()[self.start..]
    }
}

fn stamps_of(files: &[MappedFile]) -> Result<Option<Vec<FileStamp>>, StorageError> {
    files.iter().map(|file| file.stamp().transpose()).collect::<Option<Result<_, _>>>().transpose()
}

#[cfg(test)]
mod tests;
