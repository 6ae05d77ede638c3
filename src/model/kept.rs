//! Packed weights, kept in a folder from one start to the next: one file per model, mapped where it fits.
//!
//! ```text
//! <folder>/DIGEST.packed            the digest is of the model's path
//! <folder>/.DIGEST.packed.partial   being written by whoever holds the lock
//! <folder>/lock
//!
//! magic "YGGKEPT\0", version: u32, bytes of the header: u32
//! bytes of the weights: u64
//! digest of the packing, fingerprint of the model, digest of its files' stamps, digest of samples of the weights: 32 bytes each
//! path of the model
//! BLAKE3 of all before, zeros up to a page, the weights
//! ```
//!
//! Invariants: a file appears by one rename of a whole, flushed file. It is used only if its header is whole (its digest is right), its
//! length is what the header says, the samples (64 pages, evenly spread) are as they were written, and packing,
//! fingerprint and stamps are those at hand. So a model that was changed in any way that the system notes is packed again, and so is one
//! that another version of the layouts packed. What is not read on opening, the weights between the samples, is as
//! safe as the model file itself, which is not read on opening either. Whoever keeps another model's weights removes those of
//! models that are gone.

use std::{
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Model, ModelError, ModelFingerprint};
use crate::{
    ir::{KEPT_ALIGNMENT, KeptBytes, PackedDigest, WeightId, WeightSource},
    storage::{FileStamp, MappedFile, StorageError},
};

const MAGIC: &[u8; 8] = b"YGGKEPT\0";
const VERSION: u32 = 1;
const EXTENSION: &str = "packed";
/// What the weights begin at a multiple of.
const PAGE: usize = 4096;
const DIGEST: usize = 32;
/// Bytes that are written at a time, from a multiple of this: file systems that cache files in huge pages make one of each.
const WINDOW: usize = 2 << 20;
/// Pages of the weights that are compared on opening.
const SAMPLES: usize = 64;

/// Where packed weights are kept.
#[derive(Clone, Debug)]
pub struct KeptPlace {
    /// The folder, which need not exist.
    pub folder: PathBuf,
    /// Fewer bytes of packed weights are not worth a file.
    pub least_bytes: usize,
}

/// What became of kept weights, for people: each is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackedNote {
    /// They are used as they were kept.
    Mapped(PathBuf),
    /// They were packed, and are kept now.
    Kept(PathBuf),
    /// Those that were there are of another state of the model, or of another layout; the weights are packed again.
    Outdated(PathBuf),
    /// They are not kept this time, and why; another start may keep them.
    Later(&'static str),
    /// A file is damaged, and how; the weights are packed again.
    Damaged(PathBuf, String),
    /// They cannot be kept, and why; everything else goes on.
    Refused(PathBuf, String),
}

impl PackedNote {
    /// Whether somebody should look after it.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Mapped(_) | Self::Kept(_) | Self::Outdated(_) | Self::Later(_) => false,
            Self::Damaged(..) | Self::Refused(..) => true,
        }
    }
}

impl fmt::Display for PackedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            Self::Damaged(path, how) => write!(
                f,
                "the packed weights in `{}` are damaged: {how}; the model is packed again; if this comes back, check the disk",
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

type Told = Box<dyn Fn(PackedNote) + Send + Sync>;

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
    told: Told,
}

/// What a header says.
struct Header {
    packing: PackedDigest,
    fingerprint: [u8; DIGEST],
    stamps: [u8; DIGEST],
    samples: [u8; DIGEST],
    weight_bytes: u64,
    model: Vec<u8>,
}

impl KeptWeights {
    /// `None` where changes of files cannot be told.
    pub(super) fn new(
        model: &Model,
        place: KeptPlace,
        told: impl Fn(PackedNote) + Send + Sync + 'static,
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
            told: Box::new(told),
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

    /// The kept weights, or what is to be told of why there are none.
    fn find(&self, packing: &PackedDigest) -> Result<KeptBytes, Option<PackedNote>> {
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
        let start = map.len() - weights.len();
        map.ask_for_huge_pages();
        Ok(Arc::new(Lent { map, start }))
    }

    /// Writes the weights, unless this is not the time for it.
    fn keep(&self, packing: &PackedDigest, parts: &[&[u8]]) -> Result<PackedNote, io::Error> {
        if !self.is_settled {
            return Ok(PackedNote::Later("the model was changed less than two seconds before it was opened"));
        }
        fs::create_dir_all(&self.place.folder)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.place.folder.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Ok(PackedNote::Later("another process is keeping packed weights"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        self.remove_leftovers()?;
        let path = self.path();
        let mut partial_name = std::ffi::OsString::from(".");
        partial_name.push(path.file_name().unwrap_or_default());
        let partial = path.with_file_name(partial_name).with_added_extension("partial");
        let written = self.write(&partial, packing, parts).and_then(|()| {
            // Bytes that were packed before a change are not of the model as it is now.
            let now = stamps_of(&self.files).map_err(io::Error::other)?;
            if now.as_ref() != Some(&self.stamps) {
                return Ok(PackedNote::Later("the model was changed while it was loaded"));
            }
            fs::rename(&partial, &path)?;
            Ok(PackedNote::Kept(path))
        });
        if !matches!(written, Ok(PackedNote::Kept(_))) {
            // What stays is removed by whoever holds the lock next.
            let _ = fs::remove_file(&partial);
        }
        written
    }

    fn write(&self, path: &Path, packing: &PackedDigest, parts: &[&[u8]]) -> io::Result<()> {
        let mut header = Header {
            packing: *packing,
            fingerprint: *self.fingerprint.as_bytes(),
            stamps: self.stamp_digest(),
            samples: [0; DIGEST],
            weight_bytes: parts.iter().map(|part| part.len().next_multiple_of(KEPT_ALIGNMENT) as u64).sum(),
            model: self.model.as_os_str().as_encoded_bytes().to_vec(),
        };
        let mut file = File::create(path)?;
        let (mut window, front) = (Vec::with_capacity(WINDOW), header.to_bytes());
        let padded = parts.iter().flat_map(|part| {
            [*part, &[0; KEPT_ALIGNMENT][..part.len().next_multiple_of(KEPT_ALIGNMENT) - part.len()]]
        });
        for mut bytes in std::iter::once(&front[..]).chain(padded) {
            while !bytes.is_empty() {
                let (taken, left) = bytes.split_at(bytes.len().min(WINDOW - window.len()));
                window.extend_from_slice(taken);
                bytes = left;
                if window.len() == WINDOW {
                    file.write_all(&window)?;
                    window.clear();
                }
            }
        }
        file.write_all(&window)?;
        let map = MappedFile::open(path).map_err(io::Error::other)?;
        header.samples = samples(&map.bytes()[front.len()..]);
        file.rewind()?;
        file.write_all(&header.to_bytes())?;
        file.sync_all()
    }

    /// Removes what dead processes left half written, and what is kept of models that are gone or that no version of this can read. Done by
    /// the holder of the lock.
    fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.place.folder)?.flatten() {
            let path = entry.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            let is_dead = match extension {
                Some("partial") => true,
                Some(EXTENSION) => is_of_nothing(&path),
                Some(_) | None => false,
            };
            if is_dead {
                // What cannot be removed takes room and does no harm.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

impl WeightSource for KeptWeights {
    fn bytes(&self, weight: WeightId) -> &[u8] {
        self.weights.bytes(weight)
    }

    fn note_loaded(&self, weight: WeightId) {
        self.weights.note_loaded(weight);
    }

    fn kept_packed(&self, digest: &PackedDigest) -> Option<KeptBytes> {
        match self.find(digest) {
            Ok(kept) => {
                (self.told)(PackedNote::Mapped(self.path()));
                Some(kept)
            }
            Err(note) => {
                note.into_iter().for_each(&self.told);
                None
            }
        }
    }

    fn keep_packed(&self, digest: &PackedDigest, parts: &[&[u8]]) {
        if parts.iter().map(|part| part.len()).sum::<usize>() < self.place.least_bytes {
            return;
        }
        let note = self.keep(digest, parts);
        (self.told)(
            note.unwrap_or_else(|error| PackedNote::Refused(self.place.folder.clone(), error.to_string())),
        );
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

/// Whether a kept file is of a model that is gone, or cannot be read.
fn is_of_nothing(path: &Path) -> bool {
    let Ok(map) = MappedFile::open(path) else { return true };
    let Ok((header, _)) = Header::read(map.bytes()) else { return true };
    std::str::from_utf8(&header.model).is_ok_and(|model| !Path::new(model).exists())
}

/// Digest of pages that are evenly spread over the weights, the first and the last among them.
fn samples(weights: &[u8]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new();
    let last = weights.len().saturating_sub(PAGE);
    for i in 0..SAMPLES {
        let start = last * i / (SAMPLES - 1);
        hasher.update(&weights[start..(start + PAGE).min(weights.len())]);
    }
    *hasher.finalize().as_bytes()
}

/// Why a file cannot be used.
#[derive(Debug)]
enum Fault {
    OtherVersion,
    Damaged(String),
}

fn damaged(expected: impl fmt::Display, found: impl fmt::Display) -> Fault {
    Fault::Damaged(format!("expected {expected}, found {found}"))
}

impl Header {
    /// The header with the zeros behind it.
    fn to_bytes(&self) -> Vec<u8> {
        let Self { packing, fingerprint, stamps, samples, weight_bytes, model } = self;
        let len = MAGIC.len() + 4 + 4 + 8 + 4 * DIGEST + model.len() + DIGEST;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::try_from(len).expect("a path is not that long").to_le_bytes());
        bytes.extend(weight_bytes.to_le_bytes());
        for digest in [packing, fingerprint, stamps, samples] {
            bytes.extend(digest);
        }
        bytes.extend(model);
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        bytes
    }

    /// The header of a file and the weights behind it.
    fn read(file: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let mut rest = file;
        let mut take = |len: usize| {
            let (taken, left) = rest.split_at_checked(len).ok_or_else(|| {
                damaged(format_args!("a whole header"), format_args!("{} bytes", file.len()))
            })?;
            rest = left;
            Ok::<_, Fault>(taken)
        };
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let size = |bytes: &[u8]| usize::try_from(number(bytes)).unwrap_or(usize::MAX);
        if take(MAGIC.len())? != MAGIC {
            return Err(damaged("a file of kept weights", "another"));
        }
        if number(take(4)?) != u64::from(VERSION) {
            return Err(Fault::OtherVersion);
        }
        let len = size(take(4)?);
        let weight_bytes = number(take(8)?);
        let mut digest = || Ok::<[u8; DIGEST], Fault>(take(DIGEST)?.try_into().expect("took as many"));
        let (packing, fingerprint, stamps, samples) = (digest()?, digest()?, digest()?, digest()?);
        let fixed = MAGIC.len() + 4 + 4 + 8 + 4 * DIGEST + DIGEST;
        let model = take(len.saturating_sub(fixed))?.to_vec();
        let checksum = take(DIGEST)?;
        if len < fixed || blake3::hash(&file[..len - DIGEST]).as_bytes() != checksum {
            return Err(damaged("a header with its checksum", "another"));
        }
        let weights = file.get(len.next_multiple_of(PAGE)..).unwrap_or_default();
        if weights.len() as u64 != weight_bytes {
            return Err(damaged(format_args!("{weight_bytes} bytes of weights"), weights.len()));
        }
        Ok((Self { packing, fingerprint, stamps, samples, weight_bytes, model }, weights))
    }
}

#[cfg(test)]
mod tests;
