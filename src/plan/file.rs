//! The plan file: a [sealed file](crate::storage::Seal) of a [`Plan`].
use std::path::Path;

use super::{Plan, PlanError};
use crate::storage::{Seal, replace_file};

/// The version of the format this build reads and writes; it changes with every field of [`Plan`].
pub const PLAN_FORMAT: u32 = 12;

const SEAL: Seal = Seal { magic: b"YGGPLAN\0", format: PLAN_FORMAT, most_payload_bytes: 64 << 20 };

/// The bytes of a plan file.
///
/// # Errors
/// [`PlanError`] if the plan is not valid or larger than any reader accepts.
pub fn encode(plan: &Plan) -> Result<Vec<u8>, PlanError> {
    plan.validate()?;
    Ok(SEAL.encode_deflated(plan)?)
}

/// The plan in the bytes of a plan file, validated.
///
/// # Errors
/// [`PlanError`] says in what the bytes are not a whole, unchanged, valid plan of this format.
pub fn decode(bytes: &[u8]) -> Result<Plan, PlanError> {
    let plan: Plan = SEAL.decode_deflated(bytes)?;
    plan.validate()?;
    Ok(plan)
}

/// Writes a plan to `path`, replacing the whole file or nothing.
///
/// # Errors
/// [`PlanError::InFile`] if the plan cannot be encoded or the file not written.
pub fn write(plan: &Plan, path: &Path) -> Result<(), PlanError> {
    encode(plan)
        .and_then(|bytes| {
            replace_file(path, &bytes).map_err(|source| PlanError::Io { action: "write", source })
        })
        .map_err(|reason| in_file(path, reason))
}

/// Reads and validates the plan at `path`.
///
/// # Errors
/// [`PlanError::InFile`] if the file cannot be read or [`decode`] refuses it.
pub fn read(path: &Path) -> Result<Plan, PlanError> {
    SEAL.read(path)
        .map_err(|source| PlanError::Io { action: "read", source })
        .and_then(|bytes| decode(&bytes))
        .map_err(|reason| in_file(path, reason))
}

fn in_file(path: &Path, reason: PlanError) -> PlanError {
    PlanError::InFile { path: path.display().to_string(), reason: Box::new(reason) }
}
