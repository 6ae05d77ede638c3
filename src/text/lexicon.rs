//! The checked vocabulary: bytes and kind of each id, and the strings that are found in text before it is cut into
//! words.

use std::collections::BTreeMap;

use super::matcher::{Edges, Matcher};
use super::sentence_piece::MARK;
use super::{TextError, TokenKind, byte_level};

/// The most ids a vocabulary may have; published ones stay below 2^19.
const MAX_TOKENS: usize = 1 << 22;

/// How the texts of ordinary tokens stand for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// One character of the byte-level alphabet for every byte.
    ByteLevel,
    /// As they are, with `▁` for a space.
    Marks {
        /// Whether a text begins with a space that is not its own.
        space_prefix: bool,
    },
}

/// How a token is found in text: what most need not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) edges: Edges,
    /// Its normal form, if it is text that is sought in normalised text.
    pub(super) normal_form: Option<String>,
}

/// Bytes and kind of every token.
#[derive(Debug)]
pub(super) struct Lexicon {
    pub(super) spelling: Spelling,
    bytes: Vec<u8>,
    /// Where each token's bytes end in `bytes`, by id.
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
    /// Control tokens that text can name.
    pub(super) controls: Matcher,
    /// Pieces of text that are always one token.
    pub(super) user_defined: Matcher,
    /// Those of them that are sought in normalised text.
    pub(super) in_normalized: Matcher,
}

/// Checks the size of a vocabulary of `ids` ids before anything is allocated for it.
///
/// # Errors
/// Empty, or above the limit.
pub(super) fn check_size(ids: u64) -> Result<(), TextError> {
    if ids == 0 || ids > MAX_TOKENS as u64 {
        return Err(TextError::VocabularySize { found: ids, limit: MAX_TOKENS as u64 });
    }
    Ok(())
}

impl Lexicon {
    /// An id may be left out of a vocabulary: its text is then empty and its kind [`TokenKind::Unused`].
    ///
    /// # Errors
    /// Wrong sizes, a text that two ids share, a token to be found in text that has none, a malformed byte token.
    pub(super) fn new(
        tokens: &[String],
        kinds: Vec<TokenKind>,
        spelling: Spelling,
        searches: &BTreeMap<u32, Search>,
    ) -> Result<Self, TextError> {
        check_size(tokens.len() as u64)?;
        if tokens.len() != kinds.len() {
            return Err(TextError::LengthMismatch { tokens: tokens.len(), kinds: kinds.len() });
        }
        let (mut controls, mut user_defined, mut in_normalized) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut ids = BTreeMap::new();
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(tokens.len());
        for ((id, text), &kind) in (0..).zip(tokens).zip(&kinds) {
            if kind != TokenKind::Unused
                && let Some(first) = ids.insert(text.as_str(), id)
            {
                return Err(TextError::DuplicateToken { token: text.clone(), first, second: id });
            }
            let normal_form = searches.get(&id).and_then(|search| search.normal_form.clone());
            let found_in_text = match kind {
                TokenKind::Control | TokenKind::Unknown => Some(&mut controls),
                TokenKind::UserDefined if normal_form.is_some() => Some(&mut in_normalized),
                TokenKind::UserDefined => Some(&mut user_defined),
                TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => None,
            };
            if let Some(strings) = found_in_text {
                if text.is_empty() {
                    return Err(TextError::BadToken { id, text: String::new(), expected: "some text" });
                }
                strings.insert(
                    normal_form.filter(|_| kind == TokenKind::UserDefined).unwrap_or_else(|| text.clone()),
                    id,
                );
            }
            match kind {
                TokenKind::Normal if spelling == Spelling::ByteLevel => match byte_level::bytes_of(text) {
                    Some(spelled) => bytes.extend(spelled),
                    None => bytes.extend(text.bytes()),
                },
                TokenKind::Normal | TokenKind::UserDefined if spelling != Spelling::ByteLevel => {
                    bytes.extend(text.replace(MARK, " ").bytes());
                }
                TokenKind::Byte => bytes.push(byte_token(text).ok_or_else(|| TextError::BadToken {
                    id,
                    text: text.clone(),
                    expected: "<0xNN>",
                })?),
                TokenKind::Normal
                | TokenKind::Control
                | TokenKind::Unknown
                | TokenKind::UserDefined
                | TokenKind::Unused => bytes.extend(text.bytes()),
            }
            ends.push(bytes.len());
        }
        let edges: BTreeMap<u32, Edges> = searches.iter().map(|(&id, search)| (id, search.edges)).collect();
        let [controls, user_defined, in_normalized] =
            [controls, user_defined, in_normalized].map(|strings| Matcher::new(strings, edges.clone()));
        Ok(Self { spelling, bytes, ends, kinds, controls, user_defined, in_normalized })
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// The token's own bytes, those of a control token's name included.
    pub(super) fn name_bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        Some(&self.bytes[start..end])
    }

    /// The bytes that the token adds to a text: none for a control token.
    pub(super) fn text_bytes(&self, id: u32) -> Option<&[u8]> {
        if self.kind(id)?.is_control() { Some(&[]) } else { self.name_bytes(id) }
    }

    /// The most bytes a token adds to a text.
    pub(super) fn longest(&self) -> usize {
        (0..self.len() as u32).filter_map(|id| self.text_bytes(id)).map(<[u8]>::len).max().unwrap_or(0)
    }

    /// Whether the model of words may yield token `id`, whose name is `text`: it is text, and `text` spells its bytes.
    pub(super) fn is_spelled(&self, id: u32, text: &str) -> bool {
        if text.is_empty() {
            return false;
        }
        match (self.kind(id), self.spelling) {
            (Some(TokenKind::Normal | TokenKind::UserDefined), Spelling::ByteLevel) => {
                byte_level::bytes_of(text).as_deref() == self.name_bytes(id)
            }
            (
                Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte),
                Spelling::Marks { space_prefix: _ },
            ) => true,
            _ => false,
        }
    }

    /// The first bytes of a text without the space that is not its own.
    pub(super) fn without_prefix<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match self.spelling {
            Spelling::Marks { space_prefix: true } => bytes.strip_prefix(b" ").unwrap_or(bytes),
            Spelling::Marks { space_prefix: false } | Spelling::ByteLevel => bytes,
        }
    }
}

/// The byte that `<0xNN>` names.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens() {
        assert_eq!(byte_token("<0xA0>"), Some(0xA0));
        for bad in ["<0xA>", "<0x+1>", "<0xé>", "0xA0", "<0xA00>", ""] {
            assert_eq!(byte_token(bad), None, "{bad}");
        }
    }
}
