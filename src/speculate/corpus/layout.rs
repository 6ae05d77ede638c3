//! The layout of a store file: a checked header, the symbols of all snippets, the sorted places where text goes on, and
//! the prior tables.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `YGGCORP\0` |
//! | 8..12 | format version, u32 little-endian |
//! | 12..16 | tokens in the vocabulary, u32 |
//! | 16..24 | tokens, u64: n |
//! | 24..32 | snippets, u64: s |
//! | 32..56 | entries of the prior tables of one, two and three tokens, u64 each: p of them in all |
//! | 56..88 | digest of the model that scored it |
//! | 88..120 | BLAKE3 of everything else: the store's digest |
//! | 120.. | n + s symbols, u32: token + 1, and [`END`] after each snippet |
//! | | n places among the symbols, u32, sorted by what stands there |
//! | | p entries of [`PRIOR_BYTES`] ([`super::prior`]), each table in the order of its contexts |

use std::path::Path;

use super::StoreError;
use crate::storage::SealError;

/// The version that this build reads and writes.
pub(super) const STORE_FORMAT: u32 = 2;
pub(super) const HEADER_BYTES: usize = 120;
/// Ends a snippet; smaller than every token's symbol.
pub(super) const END: u32 = 0;
/// Longest match that is looked for, as REST has it.
pub const LONGEST_MATCH: usize = 16;
/// Symbols that places are sorted by; those equal so far are in the order of the corpus.
pub const SORTED_TOKENS: usize = 32;
/// Tokens before a place that a prior table knows at most. Of four tokens and more, most contexts of a text are new.
pub const PRIOR_TOKENS: usize = 3;
/// Continuations of a context that are kept. A wider tree than eight children of a node never paid.
pub const PRIOR_OFFERS: usize = 8;
/// Bytes of an entry: the context, its continuations, and their log-probabilities in 16 bits each.
pub(super) const PRIOR_BYTES: usize = 4 * PRIOR_TOKENS + (4 + 2) * PRIOR_OFFERS;

const MAGIC: &[u8; 8] = b"YGGCORP\0";
const CHECKED_BYTES: usize = 88;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) vocabulary: u32,
    pub(super) tokens: u64,
    pub(super) snippets: u64,
    /// Entries of the prior tables, by the tokens of their contexts less one.
    pub(super) priors: [u64; PRIOR_TOKENS],
    pub(super) model: [u8; 32],
}

impl Header {
    /// Bytes of the whole file.
    pub(super) fn file_bytes(&self) -> u128 {
        let priors: u128 = self.priors.iter().map(|entries| u128::from(*entries)).sum();
        let words = 2 * u128::from(self.tokens) + u128::from(self.snippets);
        HEADER_BYTES as u128 + 4 * words + PRIOR_BYTES as u128 * priors
    }

    /// Writes the header before `payload`, whose place is reserved in `file`.
    ///
    /// # Panics
    /// If `file` is not as long as it says.
    pub(super) fn seal(&self, file: &mut [u8]) {
        let Header { vocabulary, tokens, snippets, priors, model } = self;
        assert_eq!(file.len() as u128, self.file_bytes(), "a file as long as its header says");
        file[..8].copy_from_slice(MAGIC);
        file[8..12].copy_from_slice(&STORE_FORMAT.to_le_bytes());
        file[12..16].copy_from_slice(&vocabulary.to_le_bytes());
        file[16..24].copy_from_slice(&tokens.to_le_bytes());
        file[24..32].copy_from_slice(&snippets.to_le_bytes());
        for (place, entries) in file[32..56].chunks_exact_mut(8).zip(priors) {
            place.copy_from_slice(&entries.to_le_bytes());
        }
        file[56..88].copy_from_slice(model);
        let digest = digest(file);
        file[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&digest);
    }

    /// The header of `file` and the digest of the whole, if it is a whole, unchanged store.
    pub(super) fn check(file: &[u8], path: &Path) -> Result<(Self, [u8; 32]), StoreError> {
        let refused = |expected: String, found: String| {
            Err(StoreError::Damaged { path: path.to_owned(), fault: SealError { expected, found } })
        };
        let start = &file[..file.len().min(MAGIC.len())];
        if !MAGIC.starts_with(start) {
            return refused(
                "a file that begins with `YGGCORP`".to_owned(),
                format!("`{}`", start.escape_ascii()),
            );
        }
        let Some(header) = file.first_chunk::<HEADER_BYTES>() else {
            return refused(format!("{HEADER_BYTES} bytes"), format!("{} bytes", file.len()));
        };
        let four = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let eight = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let digest_at = |at: usize| header[at..at + 32].try_into().expect("32 bytes");
        if four(8) != STORE_FORMAT {
            let expected = format!("format {STORE_FORMAT}, which `yggc corpus build` writes");
            return refused(expected, format!("format {}", four(8)));
        }
        let this = Self {
            vocabulary: four(12),
            tokens: eight(16),
            snippets: eight(24),
            priors: [eight(32), eight(40), eight(48)],
            model: digest_at(56),
        };
        let expected = this.file_bytes();
        if file.len() as u128 != expected {
            return refused(format!("{expected} bytes"), format!("{} bytes", file.len()));
        }
        let (expected, found): ([u8; 32], _) = (digest_at(CHECKED_BYTES), digest(file));
        if expected != found {
            return refused(format!("the checksum {}", hex(&expected)), hex(&found));
        }
        Ok((this, found))
    }
}

fn digest(file: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(&file[..CHECKED_BYTES]).update(&file[HEADER_BYTES..]).finalize().as_bytes()
}

/// A digest as people and plans write it.
pub(super) fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}
