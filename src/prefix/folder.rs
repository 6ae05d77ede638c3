//! The folder of files of blocks, and its limit, which all processes keep together.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::layout::{Layout, Read as ReadHeader, read_head};
use crate::storage::{LockedFile, create_private_folder, open_private, read_exact_at};

/// What the names of files of blocks end in.
pub(super) const EXTENSION: &str = "prefixes";

/// A file of kept prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// When it was last written or opened; `None` where the file system does not say.
    pub last_used: Option<SystemTime>,
    /// What its blocks are of; `None` if it is damaged, or of another version of this library.
    pub name: Option<String>,
}

impl PrefixFile {
    /// Reads the whole file and compares every block with what was written. One that a process has open is as that
    /// process has it, and not read.
    ///
    /// # Errors
    /// What was expected and what was found instead.
    pub fn check(&self) -> Result<(), String> {
        let file = File::open(&self.path).and_then(LockedFile::share).map_err(|error| error.to_string())?;
        let Some(file) = file else {
            return Ok(());
        };
        let mut head = vec![0; Layout::HEAD as usize];
        read_exact_at(&file, &mut head, 0).map_err(|error| error.to_string())?;
        let Some((layout, _)) = read_head(&head) else {
            return Err("expected the head of a file of prefixes of this version, found another".to_owned());
        };
        let (mut blocks, mut damaged, mut payload) = (0, 0, Vec::new());
        let places = layout.places(self.bytes);
        let read = layout.each_header(&file, places, |place, read| {
            blocks += 1;
            let is_whole = match read {
                ReadHeader::Block(header) => {
                    payload.resize(layout.block_bytes, 0);
                    read_exact_at(&file, &mut payload, layout.payload_at(place)).is_ok()
                        && *blake3::hash(&payload).as_bytes() == header.digest
                }
                ReadHeader::Empty | ReadHeader::Broken => false,
            };
            damaged += u32::from(!is_whole);
        });
        read.map_err(|error| error.to_string())?;
        if damaged == 0 {
            return Ok(());
        }
        Err(format!("expected {blocks} blocks as they were written, found {damaged} others"))
    }
}

/// The files of kept prefixes in a folder, least recently used first; none if there is no such folder.
///
/// # Errors
/// What the system says if the folder cannot be listed.
pub fn prefix_files(folder: &Path) -> io::Result<Vec<PrefixFile>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let of_blocks = paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    let mut files: Vec<PrefixFile> = of_blocks
        .filter_map(|path| {
            let found = fs::metadata(&path).ok()?;
            let mut head = Vec::new();
            let read = File::open(&path).and_then(|file| file.take(Layout::HEAD).read_to_end(&mut head));
            let name = read.ok().and_then(|_| read_head(&head)).map(|(_, name)| name);
            Some(PrefixFile { path, bytes: found.len(), last_used: found.modified().ok(), name })
        })
        .collect();
    files.sort_by(|a, b| (a.last_used, &a.path).cmp(&(b.last_used, &b.path)));
    Ok(files)
}

/// A folder with its limit.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Most bytes of all files of blocks together.
    pub(super) limit: u64,
}

impl Folder {
    /// Makes the folder, for this user alone: what is kept is what was said.
    pub(super) fn create(&self) -> io::Result<()> {
        create_private_folder(&self.path)
    }

    /// Opens a file in it, for this user alone, or makes it.
    pub(super) fn open(&self, name: &str) -> io::Result<File> {
        open_private(&self.path.join(name))
    }

    /// Waits until no other process changes which files are in it.
    pub(super) fn lock(&self) -> io::Result<LockedFile> {
        LockedFile::wait(self.open("lock")?, || ())
    }

    /// Sets the length of a file in it to `bytes`, if the folder stays within its limit then. Files that nobody has
    /// open are removed for that, the one that was not used for longest first. Whether it was done.
    pub(super) fn resize(&self, file: &File, path: &Path, bytes: u64) -> io::Result<bool> {
        let _lock = self.lock()?;
        let mut others = prefix_files(&self.path)?;
        others.retain(|other| other.path != path);
        let mut held: u64 = others.iter().map(|other| other.bytes).sum();
        for other in &others {
            if held.saturating_add(bytes) <= self.limit {
                break;
            }
            // Who has it open holds its lock.
            let held_file = File::open(&other.path).and_then(LockedFile::take).ok().flatten();
            if held_file.is_some() && fs::remove_file(&other.path).is_ok() {
                held -= other.bytes;
            }
        }
        let fits = held.saturating_add(bytes) <= self.limit;
        if fits {
            file.set_len(bytes)?;
        }
        Ok(fits)
    }
}
