//! The file of a skip search's state: a checked header, then the model it is for and the state, in bincode.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `YGGSKIP\0` |
//! | 8..12 | format version, u32 little-endian |
//! | 12..20 | payload length, u64 little-endian |
//! | 20..52 | BLAKE3 of the payload |
//! | 52.. | payload |

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use bincode::Options;
use ygg_profiler::replace_file;

use super::SkipState;
use crate::plan::ModelFingerprint;

const MAGIC: &[u8; 8] = b"YGGSKIP\0";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 52;
const MOST_PAYLOAD_BYTES: u64 = 1 << 20;

/// Why a state cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum SkipStateError {
    /// The file system refused.
    #[error("cannot {action} the state of the skip search: {source}; check the path")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Another kind of file, another format, or not the bytes that were written.
    #[error(
        "no usable state of a skip search: expected {expected}, found {found}; remove the file to begin anew"
    )]
    Damaged {
        /// What a good file has.
        expected: String,
        /// What this one has.
        found: String,
    },
    /// A state of another model, or of a drafter that keeps other layers.
    #[error(
        "the state of the skip search is for {found}: expected {expected}; name another file or remove it"
    )]
    Foreign {
        /// What is here.
        expected: String,
        /// What the state is for.
        found: String,
    },
    /// A named file is one of the above.
    #[error("{path}: {reason}")]
    InFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: Box<SkipStateError>,
    },
}

fn damaged(expected: impl Into<String>, found: impl Into<String>) -> SkipStateError {
    SkipStateError::Damaged { expected: expected.into(), found: found.into() }
}

fn options() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_limit(MOST_PAYLOAD_BYTES)
        .reject_trailing_bytes()
}

/// The bytes of a state file.
pub(super) fn encode(state: &SkipState, model: &ModelFingerprint) -> Vec<u8> {
    let payload = options().serialize(&(model, state)).expect("a state is small and plain data");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(blake3::hash(&payload).as_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

/// The state in the bytes of a state file, for this model.
pub(super) fn decode(bytes: &[u8], model: &ModelFingerprint) -> Result<SkipState, SkipStateError> {
    let found = bytes.len();
    let header = bytes.split_first_chunk::<HEADER_BYTES>();
    let (header, payload) =
        header.ok_or_else(|| damaged(format!("{HEADER_BYTES} bytes or more"), found.to_string()))?;
    if header[..8] != *MAGIC {
        return Err(damaged("the magic `YGGSKIP`", format!("`{}`", header[..8].escape_ascii())));
    }
    let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    if version != FORMAT {
        return Err(damaged(format!("format {FORMAT}"), format!("format {version}")));
    }
    let length = u64::from_le_bytes(header[12..20].try_into().expect("eight bytes"));
    if length != payload.len() as u64 {
        return Err(damaged(format!("{length} bytes of payload"), payload.len().to_string()));
    }
    if *blake3::hash(payload).as_bytes() != header[20..52] {
        return Err(damaged("the checksum in the header", "another: the file is damaged"));
    }
    let (of, state): (ModelFingerprint, SkipState) =
        options().deserialize(payload).map_err(|error| damaged("a whole state", error.to_string()))?;
    if let Some(fault) = state.fault() {
        return Err(damaged("a lawful state", fault));
    }
    if of.digest != model.digest {
        let show = |model: &ModelFingerprint| format!("the model {} ({})", model.name, model.digest);
        return Err(SkipStateError::Foreign { expected: show(model), found: show(&of) });
    }
    Ok(state)
}

fn in_file(path: &Path, reason: SkipStateError) -> SkipStateError {
    SkipStateError::InFile { path: path.display().to_string(), reason: Box::new(reason) }
}

/// Writes the state of a search over `model` to `path`, replacing the whole file or nothing.
///
/// # Errors
/// [`SkipStateError::InFile`] if the file cannot be written.
pub fn write_skip_state(
    state: &SkipState,
    model: &ModelFingerprint,
    path: &Path,
) -> Result<(), SkipStateError> {
    replace_file(path, &encode(state, model))
        .map_err(|source| in_file(path, SkipStateError::Io { action: "write", source }))
}

/// Reads the state of a search over `model` at `path`; `None` if there is no such file.
///
/// # Errors
/// [`SkipStateError::InFile`] if it cannot be read, is not what was written, or is of another model.
pub fn read_skip_state(path: &Path, model: &ModelFingerprint) -> Result<Option<SkipState>, SkipStateError> {
    let mut bytes = Vec::new();
    let most = HEADER_BYTES as u64 + MOST_PAYLOAD_BYTES + 1;
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    match read {
        Ok(_) => decode(&bytes, model).map(Some).map_err(|reason| in_file(path, reason)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(in_file(path, SkipStateError::Io { action: "read", source })),
    }
}
