//! The format of a file of blocks: a head, then groups of places, each group with the headers of its places first.
//!
//! ```text
//! head, 4096 bytes: magic "YGGPREF\0", version: u32, bytes of what follows up to the checksum: u32,
//!   digest of the binding, tokens of a block: u32, bytes of a payload: u64, name of what it is of, BLAKE3 of all
//! before group, again and again: 64 headers, 64 payloads, each padded to a page; the last group ends after its last
//! place header: key, key of the block before, BLAKE3 of the payload, number in its text: u32, tokens: u32 each,
//!   number of the write: u64, BLAKE3 of all before; zeros where there is no block
//! ```
//!
//! Headers lie together so that opening a file reads little of it. Numbers are little-endian.

use std::{fs::File, io};

use super::key::{Binding, BlockKey, Link};
use crate::storage::read_exact_at;

const MAGIC: &[u8; 8] = b"YGGPREF\0";
const VERSION: u32 = 1;
const PAGE: u64 = 4096;
/// Places of a group: their headers are read at once when a file is opened, some ten kilobytes.
const GROUP: u64 = 64;
const DIGEST: usize = 32;
/// Bytes of a header without tokens: three digests, two numbers, its checksum.
const FIXED: usize = 3 * DIGEST + 4 + 8 + DIGEST;
/// Most tokens and bytes of a block that a head may name: far more than any model has.
const MOST_TOKENS: usize = 1 << 16;
const MOST_BYTES: u64 = 1 << 40;
/// Most writes that a header may count: later ones go on from there, far from the end of the numbers.
const MOST_WRITES: u64 = 1 << 62;
/// Longest name in bytes.
const MOST_NAME: usize = 1024;

/// Where the parts of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) block_tokens: usize,
    /// Bytes of a payload.
    pub(super) block_bytes: usize,
}

/// What a header says of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key: BlockKey,
    pub(super) parent: BlockKey,
    /// BLAKE3 of the payload.
    pub(super) digest: [u8; DIGEST],
    pub(super) number: u32,
    pub(super) tokens: Vec<u32>,
    /// The number of the write: later ones are larger.
    pub(super) written: u64,
}

/// What bytes at the place of a header are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A header.
    Block(Header),
    /// Nothing was written, or what was is cleared.
    Empty,
    /// Anything else: a write that was cut, or damage.
    Broken,
}

impl Layout {
    /// Bytes before the first group.
    pub(super) const HEAD: u64 = PAGE;

    pub(super) fn header_bytes(&self) -> usize {
        FIXED + self.block_tokens * 4
    }

    /// Bytes from a payload to the next.
    fn stride(&self) -> u64 {
        (self.block_bytes as u64).max(1).next_multiple_of(PAGE)
    }

    /// Bytes of the headers of a group.
    fn table_bytes(&self) -> u64 {
        (GROUP * self.header_bytes() as u64).next_multiple_of(PAGE)
    }

    fn group_at(&self, group: u64) -> u64 {
        Self::HEAD + group * (self.table_bytes() + GROUP * self.stride())
    }

    pub(super) fn header_at(&self, place: u32) -> u64 {
        let place = u64::from(place);
        self.group_at(place / GROUP) + place % GROUP * self.header_bytes() as u64
    }

    pub(super) fn payload_at(&self, place: u32) -> u64 {
        let place = u64::from(place);
        self.group_at(place / GROUP) + self.table_bytes() + place % GROUP * self.stride()
    }

    /// Length of a file with so many places.
    pub(super) fn file_bytes(&self, places: u32) -> u64 {
        places.checked_sub(1).map_or(Self::HEAD, |last| self.payload_at(last) + self.stride())
    }

    /// How many whole places a file of this length has.
    pub(super) fn places(&self, file_bytes: u64) -> u32 {
        let group = self.group_at(1) - Self::HEAD;
        let behind = file_bytes.saturating_sub(Self::HEAD);
        let in_last = (behind % group).saturating_sub(self.table_bytes()) / self.stride();
        u32::try_from(behind / group * GROUP + in_last).unwrap_or(u32::MAX)
    }

    /// Reads the headers of the first `places` places of a file, and hands on those that are not empty.
    pub(super) fn each_header(
        &self,
        file: &File,
        places: u32,
        mut hand_on: impl FnMut(u32, Read),
    ) -> io::Result<()> {
        let mut table = vec![0; self.table_bytes() as usize];
        for group in 0..u64::from(places).div_ceil(GROUP) {
            read_exact_at(file, &mut table, self.group_at(group))?;
            let numbers = (group * GROUP..u64::from(places)).take(GROUP as usize);
            for (number, bytes) in numbers.zip(table.chunks_exact(self.header_bytes())) {
                match self.read(bytes) {
                    Read::Empty => {}
                    read => hand_on(u32::try_from(number).expect("as many places"), read),
                }
            }
        }
        Ok(())
    }

    /// The head of a file.
    pub(super) fn head(&self, binding: &Binding) -> Vec<u8> {
        let name = binding.name().as_bytes();
        let name = &name[..name.len().min(MOST_NAME)];
        let mut said = binding.digest().to_vec();
        said.extend(u32_bytes(self.block_tokens));
        said.extend((self.block_bytes as u64).to_le_bytes());
        said.extend(name);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32_bytes(said.len()));
        bytes.extend(said);
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes.resize(Self::HEAD as usize, 0);
        bytes
    }

    /// A header as bytes.
    ///
    /// # Panics
    /// If it has another number of tokens.
    pub(super) fn header(&self, header: &Header) -> Vec<u8> {
        let Header { key, parent, digest, number, tokens, written } = header;
        assert_eq!(tokens.len(), self.block_tokens, "tokens of a block");
        let mut bytes = Vec::with_capacity(self.header_bytes());
        [&key.0, &parent.0, digest].iter().for_each(|digest| bytes.extend_from_slice(*digest));
        bytes.extend(number.to_le_bytes());
        tokens.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        bytes.extend(written.to_le_bytes());
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes
    }

    /// What the bytes of a header are, [`header_bytes`](Self::header_bytes) of them.
    fn read(&self, bytes: &[u8]) -> Read {
        if bytes.iter().all(|byte| *byte == 0) {
            return Read::Empty;
        }
        let Some((said, checksum)) = bytes.split_last_chunk::<DIGEST>() else { return Read::Broken };
        if bytes.len() != self.header_bytes() || blake3::hash(said).as_bytes() != checksum {
            return Read::Broken;
        }
        let digest_at = |place: usize| -> [u8; DIGEST] {
            said[place * DIGEST..][..DIGEST].try_into().expect("as many bytes")
        };
        let (numbers, rest) = said[3 * DIGEST..].as_chunks::<4>();
        debug_assert!(rest.is_empty(), "numbers of four bytes");
        let numbers: Vec<u32> = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let (low, high) = (numbers[self.block_tokens + 1], numbers[self.block_tokens + 2]);
        let header = Header {
            key: BlockKey(digest_at(0)),
            parent: BlockKey(digest_at(1)),
            digest: digest_at(2),
            number: numbers[0],
            tokens: numbers[1..=self.block_tokens].to_vec(),
            written: u64::from(high) << 32 | u64::from(low),
        };
        // A key is of its tokens: nothing else may be found by it. And no file was written to so often.
        let is_possible = header.parent.after(&header.tokens) == header.key && header.written <= MOST_WRITES;
        if is_possible { Read::Block(header) } else { Read::Broken }
    }
}

impl Header {
    pub(super) fn link(&self) -> Link<'_> {
        Link { key: self.key, parent: self.parent, number: self.number, tokens: &self.tokens }
    }
}

/// What the head of a file says: its layout, and the name of what it is of. `None` if the head is none of this version.
pub(super) fn read_head(head: &[u8]) -> Option<(Layout, String)> {
    let after_magic = head.strip_prefix(MAGIC)?;
    let (version, rest) = after_magic.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let said = rest.get(..length)?;
    let end = MAGIC.len() + 8 + length;
    let checksum = head.get(end..end + DIGEST)?;
    let is_whole =
        u32::from_le_bytes(*version) == VERSION && blake3::hash(&head[..end]).as_bytes() == checksum;
    let (tokens, rest) = said.get(DIGEST..)?.split_first_chunk::<4>()?;
    let (bytes, name) = rest.split_first_chunk::<8>()?;
    let block_tokens = u32::from_le_bytes(*tokens) as usize;
    let block_bytes = usize::try_from(u64::from_le_bytes(*bytes)).ok()?;
    // Whoever wrote more meant harm.
    let is_possible = block_tokens <= MOST_TOKENS && block_bytes as u64 <= MOST_BYTES;
    (is_whole && is_possible)
        .then(|| (Layout { block_tokens, block_bytes }, String::from_utf8_lossy(name).into_owned()))
}

fn u32_bytes(n: usize) -> [u8; 4] {
    u32::try_from(n).expect("sizes of blocks are far below 2^32").to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::{KeptText, Owner, key::chain};

    const LAYOUT: Layout = Layout { block_tokens: 8, block_bytes: 5000 };

    fn header() -> Header {
        let binding = Binding::new("a model", ["kernels"]);
        let tokens: Vec<u32> = (0..16).map(|token| token * 77_777).collect();
        let text = KeptText { owner: Owner::of_secret(b"key"), lead: &[], tokens: &tokens };
        let Link { key, parent, number, tokens } = chain(&binding, &text, 8)[1];
        Header { key, parent, digest: [9; 32], number, tokens: tokens.to_vec(), written: 1 << 40 | 3 }
    }

    #[test]
    fn places_lie_apart_and_their_number_follows_from_the_length() {
        let mut end = Layout::HEAD;
        for place in 0..200 {
            assert_eq!(LAYOUT.places(LAYOUT.file_bytes(place)), place);
            assert_eq!(LAYOUT.places(LAYOUT.file_bytes(place + 1) - 1), place, "a cut place is none");
            assert!(LAYOUT.payload_at(place) >= end && LAYOUT.header_at(place) < LAYOUT.payload_at(place));
            end = LAYOUT.payload_at(place) + LAYOUT.block_bytes as u64;
            assert!(end <= LAYOUT.file_bytes(place + 1));
        }
        assert_eq!(LAYOUT.places(0), 0);
    }

    #[test]
    fn a_header_is_read_back_and_no_changed_byte_passes() {
        let header = header();
        let bytes = LAYOUT.header(&header);
        assert_eq!(bytes.len(), LAYOUT.header_bytes());
        assert_eq!(LAYOUT.read(&bytes), Read::Block(header));
        for place in 0..bytes.len() {
            let mut other = bytes.clone();
            other[place] ^= 1 << (place % 8);
            assert_eq!(LAYOUT.read(&other), Read::Broken, "byte {place}");
            let cut = [&bytes[..place], &vec![0; bytes.len() - place]].concat();
            assert_eq!(
                LAYOUT.read(&cut),
                if place == 0 { Read::Empty } else { Read::Broken },
                "cut at {place}"
            );
        }
    }

    #[test]
    fn a_key_that_is_not_of_its_tokens_is_refused_whatever_its_checksum() {
        let forged = Header { tokens: vec![5; 8], ..header() };
        assert_eq!(LAYOUT.read(&LAYOUT.header(&forged)), Read::Broken);
    }

    #[test]
    fn a_head_names_what_the_file_is_of() {
        let mut head = LAYOUT.head(&Binding::new("a model", ["kernels"]));
        assert_eq!(read_head(&head), Some((LAYOUT, "a model".to_owned())));
        let endless = Layout { block_bytes: usize::MAX, ..LAYOUT };
        assert_eq!(read_head(&endless.head(&Binding::new("a model", ["kernels"]))), None);
        head[60] ^= 1;
        assert_eq!(read_head(&head), None);
        assert_eq!(read_head(b"YGGPREF\0"), None);
    }
}
