//! The plan file: a checked header, then the plan in bincode with fixed-size integers.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `YGGPLAN\0` |
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

use super::{Plan, PlanError};

/// The version of the format this build reads and writes; it changes with every field of [`Plan`].
pub const PLAN_FORMAT: u32 = 6;

const MAGIC: &[u8; 8] = b"YGGPLAN\0";
const HEADER_BYTES: usize = 52;
const MOST_PAYLOAD_BYTES: u64 = 64 << 20;

fn options(limit: u64) -> impl Options {
    bincode::DefaultOptions::new().with_fixint_encoding().with_limit(limit).reject_trailing_bytes()
}

/// The bytes of a plan file.
///
/// # Errors
/// [`PlanError`] if the plan is not valid or larger than any reader accepts.
pub fn encode(plan: &Plan) -> Result<Vec<u8>, PlanError> {
    plan.validate()?;
    let payload = options(MOST_PAYLOAD_BYTES).serialize(plan).map_err(|error| match *error {
        bincode::ErrorKind::SizeLimit => {
            let found = bincode::DefaultOptions::new().with_fixint_encoding().serialized_size(plan);
            PlanError::TooLarge { expected: MOST_PAYLOAD_BYTES, found: found.unwrap_or(u64::MAX) }
        }
        other => PlanError::Decode { format: PLAN_FORMAT, found: other.to_string() },
    })?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&PLAN_FORMAT.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(blake3::hash(&payload).as_bytes());
    bytes.extend_from_slice(&payload);
    Ok(bytes)
}

/// The plan in the bytes of a plan file, validated.
///
/// # Errors
/// [`PlanError`] says in what the bytes are not a whole, unchanged, valid plan of this format.
pub fn decode(bytes: &[u8]) -> Result<Plan, PlanError> {
    let start = &bytes[..bytes.len().min(MAGIC.len())];
    if bytes.is_empty() || !MAGIC.starts_with(start) {
        return Err(PlanError::NotAPlan {
            found: if bytes.is_empty() {
                "an empty file".to_owned()
            } else {
                format!("`{}`", start.escape_ascii())
            },
        });
    }
    let found = bytes.len() as u64;
    let truncated = |expected| PlanError::Truncated { expected, found };
    let (header, payload) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| truncated(HEADER_BYTES as u64))?;
    let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    if version != PLAN_FORMAT {
        return Err(PlanError::Version { expected: PLAN_FORMAT, found: version });
    }
    let length = u64::from_le_bytes(header[12..20].try_into().expect("eight bytes"));
    if length > MOST_PAYLOAD_BYTES {
        return Err(PlanError::TooLarge { expected: MOST_PAYLOAD_BYTES, found: length });
    }
    let expected = HEADER_BYTES as u64 + length;
    if found < expected {
        return Err(truncated(expected));
    }
    if found > expected {
        return Err(PlanError::TrailingBytes { expected, found });
    }
    let checksum = blake3::Hash::from_bytes(header[20..52].try_into().expect("32 bytes"));
    let actual = blake3::hash(payload);
    if checksum != actual {
        return Err(PlanError::Checksum {
            expected: checksum.to_hex().to_string(),
            found: actual.to_hex().to_string(),
        });
    }
    let plan: Plan = options(length)
        .deserialize(payload)
        .map_err(|error| PlanError::Decode { format: PLAN_FORMAT, found: error.to_string() })?;
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
    read_bytes(path)
        .map_err(|source| PlanError::Io { action: "read", source })
        .and_then(|bytes| decode(&bytes))
        .map_err(|reason| in_file(path, reason))
}

/// The file, or as much of it as shows that it is too long.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(HEADER_BYTES as u64 + MOST_PAYLOAD_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn in_file(path: &Path, reason: PlanError) -> PlanError {
    PlanError::InFile { path: path.display().to_string(), reason: Box::new(reason) }
}
