//! The file of a skip search's state: a [sealed file](Seal) of the model it is for and the state.

use std::{io, path::Path};

use super::SkipState;
use crate::{
    plan::ModelFingerprint,
    storage::{Seal, SealError, replace_file},
};

const SEAL: Seal = Seal { magic: b"YGGSKIP\0", format: 1, most_payload_bytes: 1 << 20 };

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
    #[error("no usable state of a skip search: {0}; remove the file to begin anew")]
    Damaged(#[from] SealError),
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

/// The bytes of a state file.
pub(super) fn encode(state: &SkipState, model: &ModelFingerprint) -> Vec<u8> {
    SEAL.encode(&(model, state)).expect("a state is small and plain data")
}

/// The state in the bytes of a state file, checked, of this model.
pub(super) fn decode(bytes: &[u8], model: &ModelFingerprint) -> Result<SkipState, SkipStateError> {
    let (of, state): (ModelFingerprint, SkipState) = SEAL.decode(bytes)?;
    if let Some(fault) = state.fault() {
        return Err(SealError::new("a lawful state", fault).into());
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
    match SEAL.read(path) {
        Ok(bytes) => decode(&bytes, model).map(Some).map_err(|reason| in_file(path, reason)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(in_file(path, SkipStateError::Io { action: "read", source })),
    }
}
