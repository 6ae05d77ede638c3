//! Sealed files: a checked header, then content in bincode with fixed-size integers, of plans and profiles deflated.
//! Plans, profiles and kept states of drafters are such files.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | format version, u32 little-endian |
//! | 12..20 | payload length, u64 little-endian |
//! | 20..52 | BLAKE3 of the payload |
//! | 52.. | payload |

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use bincode::Options;
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use serde::{Serialize, de::DeserializeOwned};

const HEADER_BYTES: usize = 52;

/// Why bytes are no whole, unchanged file of a kind and format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct SealError {
    /// What a good file has.
    pub expected: String,
    /// What this one has.
    pub found: String,
}

impl SealError {
    /// An error of these words.
    pub fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { expected: expected.into(), found: found.into() }
    }
}

/// What distinguishes a kind of sealed file.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// Its first bytes; the last is zero.
    pub magic: &'static [u8; 8],
    /// The format version that is written, and the only one that is read.
    pub format: u32,
    /// A longer payload is neither written nor read, nor one that inflates to more.
    pub most_payload_bytes: u64,
}

impl Seal {
    /// The bytes of a file with this payload.
    pub fn close(&self, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u64).to_le_bytes();
        let checksum = blake3::hash(payload);
        [&self.magic[..], &self.format.to_le_bytes(), &length, checksum.as_bytes(), payload].concat()
    }

    /// The payload of a file.
    ///
    /// # Errors
    /// [`SealError`] for another kind of file, another format, and bytes that are not those that were written.
    pub fn open<'b>(&self, bytes: &'b [u8]) -> Result<&'b [u8], SealError> {
        let start = &bytes[..bytes.len().min(self.magic.len())];
        if bytes.is_empty() || !self.magic.starts_with(start) {
            let expected = format!("a file that begins with `{}`", self.magic[..7].escape_ascii());
            let found = if start.is_empty() {
                "an empty file".to_owned()
            } else {
                format!("`{}`", start.escape_ascii())
            };
            return Err(SealError::new(expected, found));
        }
        let bytes_of = |count: u64| format!("{count} bytes");
        let found = bytes.len() as u64;
        let (header, payload) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| SealError::new(format!("a header of {HEADER_BYTES} bytes"), bytes_of(found)))?;
        let format = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if format != self.format {
            return Err(SealError::new(format!("format {}", self.format), format!("format {format}")));
        }
        let length = u64::from_le_bytes(header[12..20].try_into().expect("eight bytes"));
        if length > self.most_payload_bytes {
            return Err(SealError::new(
                format!("at most {}", bytes_of(self.most_payload_bytes)),
                bytes_of(length),
            ));
        }
        if length != payload.len() as u64 {
            return Err(SealError::new(
                bytes_of(length.saturating_add(HEADER_BYTES as u64)),
                bytes_of(found),
            ));
        }
        let checksum = blake3::Hash::from_bytes(header[20..52].try_into().expect("32 bytes"));
        let actual = blake3::hash(payload);
        if checksum != actual {
            return Err(SealError::new(
                format!("the checksum {checksum}"),
                format!("{actual}: the file is damaged"),
            ));
        }
        Ok(payload)
    }

    /// The bytes of a file with this content.
    ///
    /// # Errors
    /// [`SealError`] if no reader would accept as much.
    pub fn encode(&self, content: &impl Serialize) -> Result<Vec<u8>, SealError> {
        let payload = options(self.most_payload_bytes).serialize(content).map_err(|error| {
            let found = options(u64::MAX)
                .serialized_size(content)
                .map_or(error.to_string(), |n| format!("{n} bytes"));
            SealError::new(format!("at most {} bytes", self.most_payload_bytes), found)
        })?;
        Ok(self.close(&payload))
    }

    /// The content of a file.
    ///
    /// # Errors
    /// As [`open`](Self::open), and for a payload that is no such content.
    pub fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, SealError> {
        let payload = self.open(bytes)?;
        options(payload.len() as u64).deserialize(payload).map_err(|error| {
            SealError::new(format!("the fields of format {}", self.format), error.to_string())
        })
    }

    /// As [`encode`](Self::encode), with a deflated payload.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_deflated(&self, content: &impl Serialize) -> Result<Vec<u8>, SealError> {
        let whole = self.encode(content)?;
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        let written = encoder.write_all(&whole[HEADER_BYTES..]).and_then(|()| encoder.finish());
        Ok(self.close(&written.expect("memory accepts every write")))
    }

    /// As [`decode`](Self::decode), for a deflated payload.
    ///
    /// # Errors
    /// As `decode`.
    pub fn decode_deflated<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, SealError> {
        let payload = self.open(bytes)?;
        let refused = |found: String| SealError::new(format!("the fields of format {}", self.format), found);
        let mut decoder = DeflateDecoder::new(payload).take(self.most_payload_bytes + 1);
        let mut whole = Vec::new();
        decoder.read_to_end(&mut whole).map_err(|error| refused(error.to_string()))?;
        if whole.len() as u64 > self.most_payload_bytes {
            return Err(refused(format!("more than {} bytes of them", self.most_payload_bytes)));
        }
        let read = decoder.get_ref().total_in();
        if read != payload.len() as u64 {
            return Err(refused(format!("{} bytes after them", payload.len() as u64 - read)));
        }
        options(whole.len() as u64).deserialize(&whole).map_err(|error| refused(error.to_string()))
    }

    /// The bytes of a file on a disk, at most as many as show that it is too long.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let most = HEADER_BYTES as u64 + self.most_payload_bytes + 1;
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn options(limit: u64) -> impl Options {
    bincode::DefaultOptions::new().with_fixint_encoding().with_limit(limit).reject_trailing_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_inflates_to_more_than_allowed_is_refused() {
        let seal = |most_payload_bytes| Seal { magic: b"YGGTEST\0", format: 1, most_payload_bytes };
        let content = vec![0_u32; 1000];
        let file = seal(1 << 20).encode_deflated(&content).unwrap();
        assert!(file.len() < 200, "{} bytes", file.len());
        // The length of the list has eight bytes.
        assert_eq!(seal(4008).decode_deflated::<Vec<u32>>(&file).unwrap(), content);
        let refused = seal(4007).decode_deflated::<Vec<u32>>(&file).unwrap_err();
        assert!(refused.found.contains("more than 4007 bytes"), "{refused}");
        assert!(seal(4007).encode_deflated(&content).is_err(), "nor is one written");
    }
}
