//! The packed weights of one model: found, stored, opened.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    KEPT_ALIGNMENT, KeptBytes, KeptFile, KeptPlace, PackPart, PackedDigest, PackedFile, PackedNote,
    file::{DIGEST, Fault, Header, samples},
    folder::{self, EXTENSION},
    kept_files,
};
use crate::storage::{
    CopiedBytes, FileStamp, LockedFile, MappedFile, StorageError, open_direct, path_bytes, rename_over,
};

/// Writes have this size and alignment, so that file systems which cache in huge pages use one page for each.
const WINDOW: usize = 2 << 20;

/// The model that weights are packed from, and what shows whether it is still the same.
#[derive(Clone, Debug)]
pub struct KeptModel {
    /// Where it is, without symbolic links.
    pub path: PathBuf,
    /// Names its configuration, tensors and samples of their bytes.
    pub fingerprint: [u8; 32],
    /// Its files, from which the weights are packed.
    pub files: Vec<MappedFile>,
    /// Their stamps as they were when they were opened.
    pub stamps: Vec<FileStamp>,
}

impl KeptModel {
    fn stamp_digest(&self) -> [u8; DIGEST] {
        let bytes: Vec<u8> = self.stamps.iter().flat_map(FileStamp::to_bytes).collect();
        *blake3::hash(&bytes).as_bytes()
    }
}

/// Where the packed weights of one model are kept.
pub struct KeptWeights {
    place: KeptPlace,
    model: KeptModel,
    is_settled: bool,
    notify: Box<dyn Fn(PackedNote) + Send + Sync>,
}

impl fmt::Debug for KeptWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptWeights")
            .field("place", &self.place)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl KeptWeights {
    /// Those of a model in a place. `notify` is called with what becomes of them.
    pub fn new(
        place: KeptPlace,
        model: KeptModel,
        notify: impl Fn(PackedNote) + Send + Sync + 'static,
    ) -> Self {
        let is_settled = model.stamps.iter().all(FileStamp::is_settled);
        Self { place, model, is_settled, notify: Box::new(notify) }
    }

    /// What [`keep`](Self::keep) was given under this digest for these very weights, perhaps by another process; `None`
    /// where nothing is kept.
    pub fn kept(&self, packing: &PackedDigest) -> Option<KeptBytes> {
        let found = self.find(packing).map(|(path, map, start)| self.lend(path, map, start));
        let (kept, note) = found.map_or_else(|note| (None, note), |(kept, note)| (Some(kept), Some(note)));
        note.into_iter().for_each(&self.notify);
        kept
    }

    /// Stores weights for later starts, in parts of these sizes as a backend packs them, unless they are few.
    pub fn keep(&self, packing: &PackedDigest, sizes: &[usize], pack: &mut PackPart<'_>) {
        if sizes.iter().sum::<usize>() < self.place.least_bytes {
            return;
        }
        let kept = self.lock_file().and_then(LockedFile::take).and_then(|lock| match lock {
            Some(_lock) => self.keep_alone(packing, sizes, pack),
            None => Ok(PackedNote::Later("another process is keeping packed weights")),
        });
        let refused = |error: io::Error| PackedNote::Refused(self.place.folder.clone(), error.to_string());
        (self.notify)(kept.unwrap_or_else(refused));
    }

    /// The file that keeps what has this digest, made of parts of these sizes if there is none yet.
    ///
    /// # Errors
    /// Why there is none and can be none, and what to do, for people.
    pub fn file(
        &self,
        packing: &PackedDigest,
        sizes: &[usize],
        pack: &mut PackPart<'_>,
    ) -> Result<PackedFile, String> {
        let found = self.find(packing).or_else(|note| {
            note.into_iter().for_each(&self.notify);
            let lock = self.lock_file().and_then(|file| LockedFile::wait(file, || ()));
            let refused = |error| format!("`{}`: {error}", self.place.folder.display());
            let _lock = lock.map_err(refused)?;
            // Another process may have stored them meanwhile.
            if let Ok(found) = self.find(packing) {
                return Ok(found);
            }
            match self.keep_alone(packing, sizes, pack) {
                Ok(PackedNote::Kept(_)) => self.find(packing).map_err(|note| {
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

    fn file_name(&self) -> String {
        let digest = blake3::hash(path_bytes(&self.model.path)).to_hex();
        format!("{}.{EXTENSION}", &digest[..32])
    }

    /// The stored file, its map and where its weights begin, or a note on why there is none.
    fn find(&self, packing: &PackedDigest) -> Result<(PathBuf, MappedFile, usize), Option<PackedNote>> {
        let path = self.place.folder.join(self.file_name());
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
            && header.fingerprint == self.model.fingerprint
            && header.stamps == self.model.stamp_digest();
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
    fn lock_file(&self) -> io::Result<File> {
        fs::create_dir_all(&self.place.folder)?;
        OpenOptions::new().create(true).truncate(false).write(true).open(self.place.folder.join("lock"))
    }

    /// Stores the weights. The caller holds the lock.
    fn keep_alone(
        &self,
        packing: &PackedDigest,
        sizes: &[usize],
        pack: &mut PackPart<'_>,
    ) -> io::Result<PackedNote> {
        if !self.is_settled {
            return Ok(PackedNote::Later("the model was changed less than two seconds before it was opened"));
        }
        self.remove_leftovers()?;
        let path = self.place.folder.join(self.file_name());
        let mut header = self.header(packing, sizes);
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
        let partial = self.place.folder.join(format!(".{}.partial", self.file_name()));
        let written = write(&partial, &mut header, sizes, pack).and_then(|()| {
            // Bytes that were packed before a change are not of the model as it is now.
            let now = FileStamp::of_all(&self.model.files).map_err(io::Error::other)?;
            if now.as_ref() != Some(&self.model.stamps) {
                return Ok(PackedNote::Later("the model was changed while it was loaded"));
            }
            rename_over(&partial, &path)?;
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
            fingerprint: self.model.fingerprint,
            stamps: self.model.stamp_digest(),
            samples: [0; DIGEST],
            whole: [0; DIGEST],
            weight_bytes: sizes.iter().map(|size| size.next_multiple_of(KEPT_ALIGNMENT) as u64).sum(),
            model: path_bytes(&self.model.path).to_vec(),
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
fn write(path: &Path, header: &mut Header, sizes: &[usize], pack: &mut PackPart<'_>) -> io::Result<()> {
    let front = header.to_bytes();
    let mut windows = Windows { file: File::create(path)?, window: Vec::with_capacity(WINDOW) };
    windows.write(&front)?;
    let mut hasher = blake3::Hasher::new();
    for (part, size) in sizes.iter().enumerate() {
        let mut written = 0;
        let mut append = |bytes: &[u8]| {
            hasher.update(bytes);
            written += bytes.len();
            windows.write(bytes)
        };
        pack(part, &mut append)?;
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
