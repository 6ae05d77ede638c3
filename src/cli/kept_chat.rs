//! `--session NAME`: a conversation that is kept in the cache folder and goes on in a later run.
//!
//! The file is text: what was said, turn by turn, and nothing that depends on a model. What was computed of it is kept
//! elsewhere, as of any text (see `prefixes.rs`), so that a conversation goes on without being read again.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use yggc::{
    engine::{Message, Role},
    storage::{LockedFile, json_fault, replace_file},
};

use crate::cli::{
    cache::{CacheError, CachePlace, take_lock},
    error::Failure,
    output,
};

/// Version of the files.
const VERSION: u32 = 1;
/// Extension of the files.
pub(crate) const EXTENSION: &str = "json";

/// A conversation that goes on.
#[derive(Debug)]
pub(crate) struct KeptChat {
    path: PathBuf,
    turns: Vec<Turn>,
    /// Held while it is open, or another run would lose what this one adds.
    _lock: LockedFile,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored<T> {
    version: u32,
    turns: T,
}

/// A question and its answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    user: String,
    assistant: String,
}

impl KeptChat {
    /// Opens the conversation of this name, an empty one if there is none, and says how long it is. Waits for another
    /// run that has it open.
    ///
    /// # Errors
    /// [`Failure`] if there is no cache folder, it cannot be written, or the file holds no conversation: it stays as it
    /// is.
    pub(crate) fn open(name: &str, cache: &CachePlace) -> Result<Self, Failure> {
        let folder = cache.dir()?.sessions();
        fs::create_dir_all(&folder).map_err(CacheError::at("make", &folder))?;
        let wait = || output::remark(format_args!("waiting for another yggc that has session {name} open"));
        let lock = take_lock(&lock_of(&folder, name), wait)?;
        let path = folder.join(name).with_added_extension(EXTENSION);
        let turns = read(&path)?;
        match turns.len() {
            0 => output::remark(format_args!("session {name} begins")),
            1 => output::remark(format_args!("session {name} goes on after 1 turn")),
            turns => output::remark(format_args!("session {name} goes on after {turns} turns")),
        }
        Ok(Self { path, turns, _lock: lock })
    }

    /// What was said so far.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let of_turn = |Turn { user, assistant }: &Turn| {
            [Message::new(Role::User, user), Message::new(Role::Assistant, assistant)]
        };
        self.turns.iter().flat_map(of_turn).collect()
    }

    /// Adds a turn. The file has it when this returns.
    ///
    /// # Errors
    /// [`Failure`] if the file cannot be written; the one before stays.
    pub(crate) fn add(&mut self, user: &str, assistant: &str) -> Result<(), Failure> {
        self.turns.push(Turn { user: user.to_owned(), assistant: assistant.to_owned() });
        self.write()
    }

    /// Begins anew: all turns are forgotten, in the file as well.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn reset(&mut self) -> Result<(), Failure> {
        self.turns.clear();
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let stored = Stored { version: VERSION, turns: &self.turns };
        let text = serde_json::to_vec_pretty(&stored).expect("turns are text");
        Ok(replace_file(&self.path, &text).map_err(CacheError::at("write", &self.path))?)
    }
}

/// The file whose lock a run holds that has the conversation open.
pub(crate) fn lock_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).with_added_extension("lock")
}

/// How many turns a file has.
///
/// # Errors
/// [`Failure::Input`] if it holds no conversation.
pub(crate) fn turns(path: &Path) -> Result<usize, Failure> {
    read(path).map(|turns| turns.len())
}

/// The turns in a file; none if there is no file.
fn read(path: &Path) -> Result<Vec<Turn>, Failure> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(CacheError::at("read", path))?,
    };
    let refused = |found: String| {
        Failure::Input(format!(
            "{}: expected a conversation of version {VERSION}, found {found}; name another session, or remove the file",
            path.display()
        ))
    };
    let Stored { version, turns } =
        serde_json::from_slice(&bytes).map_err(|error| refused(json_fault(&error)))?;
    if version == VERSION { Ok(turns) } else { Err(refused(format!("version {version}"))) }
}
