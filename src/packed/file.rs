//! The file format of packed weights: a header with digests, then the weights.
//!
//! ```text
//! magic "YGGKEPT\0", version: u32, bytes of the header: u32
//! bytes of the weights: u64
//! digests of 32 bytes each: of the packing, the model's fingerprint, of its files' stamps, of samples of the weights,
//!   of all weights
//! path of the model
//! BLAKE3 of all before, zeros up to a page, the weights
//! ```

use std::fmt;

use super::PackedDigest;

const MAGIC: &[u8; 8] = b"YGGKEPT\0";
const VERSION: u32 = 3;
/// What the weights begin at a multiple of.
const PAGE: usize = 4096;
pub(super) const DIGEST: usize = 32;
/// Bytes of a header without the model's path.
const FIXED: usize = MAGIC.len() + 4 + 4 + 8 + 5 * DIGEST + DIGEST;
/// Pages of the weights that are compared on opening.
const SAMPLES: usize = 64;

/// What a header says.
pub(super) struct Header {
    pub(super) packing: PackedDigest,
    pub(super) fingerprint: [u8; DIGEST],
    pub(super) stamps: [u8; DIGEST],
    pub(super) samples: [u8; DIGEST],
    /// BLAKE3 of all weights.
    pub(super) whole: [u8; DIGEST],
    pub(super) weight_bytes: u64,
    pub(super) model: Vec<u8>,
}

/// Digest of pages that are evenly spread over the weights, the first and the last among them.
pub(super) fn samples(weights: &[u8]) -> [u8; DIGEST] {
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
pub(super) enum Fault {
    OtherVersion,
    Damaged(String),
}

fn damaged(expected: impl fmt::Display, found: impl fmt::Display) -> Fault {
    Fault::Damaged(format!("expected {expected}, found {found}"))
}

impl Header {
    /// The header with the zeros after it.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { packing, fingerprint, stamps, samples, whole, weight_bytes, model } = self;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::try_from(FIXED + model.len()).expect("a path is not that long").to_le_bytes());
        bytes.extend(weight_bytes.to_le_bytes());
        for digest in [packing, fingerprint, stamps, samples, whole] {
            bytes.extend(digest);
        }
        bytes.extend(model);
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        bytes
    }

    /// The header of a file and the weights after it.
    pub(super) fn read(file: &[u8]) -> Result<(Self, &[u8]), Fault> {
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
        let (packing, fingerprint, stamps) = (digest()?, digest()?, digest()?);
        let (samples, whole) = (digest()?, digest()?);
        let model = take(len.saturating_sub(FIXED))?.to_vec();
        let checksum = take(DIGEST)?;
        if len < FIXED || blake3::hash(&file[..len - DIGEST]).as_bytes() != checksum {
            return Err(damaged("a header with its checksum", "another"));
        }
        let weights = file.get(len.next_multiple_of(PAGE)..).unwrap_or_default();
        if weights.len() as u64 != weight_bytes {
            return Err(damaged(format_args!("{weight_bytes} bytes of weights"), weights.len()));
        }
        Ok((Self { packing, fingerprint, stamps, samples, whole, weight_bytes, model }, weights))
    }
}
