//! Files with a checked header, as plans, profiles and kept states of drafters are: magic, version, length, BLAKE3,
//! payload.

use std::io::Write;

use flate2::{Compression, write::DeflateEncoder};

/// The magic and the version of a kind of file.
pub(super) struct Seal {
    pub(super) magic: &'static [u8; 8],
    pub(super) version: u32,
}

impl Seal {
    /// As [`file`](Self::file), with the payload of an input deflated, or none would ever inflate.
    pub(super) fn deflated_file(&self, input: &[u8]) -> Vec<u8> {
        let Some((kind, payload)) = input.split_first().filter(|(kind, _)| **kind != 0) else {
            return self.file(input);
        };
        let mut encoder = DeflateEncoder::new(vec![*kind], Compression::fast());
        let written = encoder.write_all(payload).and_then(|()| encoder.finish());
        self.file(&written.expect("memory accepts every write"))
    }

    /// The file that an input stands for: after a zero byte the file as it is; after any other byte a payload, whose
    /// header is made here, or no damage would ever come past the checksum.
    pub(super) fn file(&self, input: &[u8]) -> Vec<u8> {
        match input {
            [] => Vec::new(),
            [0, file @ ..] => file.to_vec(),
            [_, payload @ ..] => {
                let mut file = self.magic.to_vec();
                file.extend(self.version.to_le_bytes());
                file.extend((payload.len() as u64).to_le_bytes());
                file.extend(blake3::hash(payload).as_bytes());
                file.extend(payload);
                file
            }
        }
    }
}
