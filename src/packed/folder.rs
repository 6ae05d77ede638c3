//! The folder of packed weights: its entries, its limit, and the order in which entries are removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::file::{Fault, Header};
use crate::storage::{MappedFile, free_bytes, mark_used, path_from_bytes};

/// What the names of files of packed weights end in.
pub(super) const EXTENSION: &str = "packed";
/// Default limit of the folder in bytes.
const DEFAULT_LIMIT: u64 = 32 << 30;

/// Where packed weights are kept.
#[derive(Clone, Debug)]
pub struct KeptPlace {
    /// The folder, which need not exist.
    pub folder: PathBuf,
    /// Packed weights of fewer bytes are not stored.
    pub least_bytes: usize,
    /// Limit of the folder in bytes. `None`: 32 GiB, but at most half of what would be free without the folder.
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

/// A file of kept weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// When a start last wrote or mapped it; `None` where the file system does not say.
    pub last_used: Option<SystemTime>,
    /// The model that its weights are of; `None` if the file is damaged, or of another version of this library.
    pub model: Option<PathBuf>,
}

impl KeptFile {
    /// Reads the whole file and compares every weight with what was written.
    ///
    /// # Errors
    /// What was expected and what was found instead.
    pub fn check(&self) -> Result<(), String> {
        let map = MappedFile::open(&self.path).map_err(|error| error.to_string())?;
        match Header::read(map.bytes()) {
            Ok((header, weights)) if *blake3::hash(weights).as_bytes() == header.whole => Ok(()),
            Ok(_) => Err("expected the weights as they were written, found others".to_owned()),
            Err(Fault::OtherVersion) => {
                Err("expected the format of this version, found another's".to_owned())
            }
            Err(Fault::Damaged(how)) => Err(how),
        }
    }

    /// Whether no start can use it: its model is gone, or it cannot be read.
    pub(super) fn is_of_nothing(&self) -> bool {
        self.model.as_ref().is_none_or(|model| !model.exists())
    }
}

/// The kept weights in a folder, least recently used first; none if there is no such folder.
///
/// # Errors
/// What the system says if the folder cannot be listed.
pub fn kept_files(folder: &Path) -> io::Result<Vec<KeptFile>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let kept = paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    let mut files: Vec<KeptFile> = kept
        .filter_map(|path| {
            let found = fs::metadata(&path).ok()?;
            let model = model_of(&path);
            Some(KeptFile { path, bytes: found.len(), last_used: found.modified().ok(), model })
        })
        .collect();
    files.sort_by(|a, b| (a.last_used, &a.path).cmp(&(b.last_used, &b.path)));
    Ok(files)
}

fn model_of(path: &Path) -> Option<PathBuf> {
    let map = MappedFile::open(path).ok()?;
    let (header, _) = Header::read(map.bytes()).ok()?;
    path_from_bytes(&header.model).map(Path::to_owned)
}

/// Marks a file as used now; a folder that is read-only keeps the order it had.
#[expect(clippy::disallowed_methods, reason = "which file was used last decides which is removed first")]
pub(super) fn touch(path: &Path) {
    let _ = mark_used(path, SystemTime::now());
}

/// How many bytes the folder may hold: `limit`, else [`DEFAULT_LIMIT`], but no more than half of what would be free
/// without it.
pub(super) fn limit_of(folder: &Path, limit: Option<u64>, kept: u64) -> u64 {
    limit.unwrap_or_else(|| {
        free_bytes(folder).map_or(DEFAULT_LIMIT, |free| DEFAULT_LIMIT.min(free.saturating_add(kept) / 2))
    })
}

/// Removes the files that were not used for longest until `needed` more bytes stay within `limit`; `others` are least
/// recently used first. Files that the system does not give up, as Windows does while they are mapped, stay.
///
/// # Errors
/// What the system says of the first that stayed, if there is not enough room without it.
pub(super) fn make_room(others: &[KeptFile], needed: u64, limit: u64) -> io::Result<()> {
    let mut held: u64 = others.iter().map(|file| file.bytes).sum();
    let mut stayed = None;
    for file in others {
        if held.saturating_add(needed) <= limit {
            return Ok(());
        }
        match fs::remove_file(&file.path) {
            Ok(()) => held -= file.bytes,
            Err(error) => stayed = stayed.or(Some(error)),
        }
    }
    match stayed {
        Some(error) if held.saturating_add(needed) > limit => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_stays_leaves_its_room_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // No folder is removed as a file.
        fs::create_dir(path("used")).unwrap();
        for name in ["old", "new"] {
            fs::write(path(name), [0; 10]).unwrap();
        }
        let kept = |name: &str| KeptFile { path: path(name), bytes: 10, last_used: None, model: None };
        let all = [kept("used"), kept("old"), kept("new")];
        make_room(&all, 10, 30).unwrap();
        assert_eq!([path("old").exists(), path("new").exists()], [false, true]);
        assert!(make_room(&[kept("used"), kept("new")], 25, 30).is_err());
    }
}
