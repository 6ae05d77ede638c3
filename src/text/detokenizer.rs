//! Streaming conversion of tokens to text, which never splits a character.

use std::sync::Arc;

use super::lexicon::Lexicon;
use super::tokenizer::OUTSIDE;

/// Longer tokens grow the buffers.
const RESERVED_TOKEN_BYTES: usize = 1 << 10;

/// A character begun by one token and finished by another has at most this many bytes before the last.
const MAX_PENDING: usize = 3;

/// Turns a stream of tokens into text, holding back the bytes of a character until the last has come.
///
/// Its outputs joined together, [`Detokenizer::finish`] included, equal
/// [`Tokenizer::decode`](super::Tokenizer::decode) of all tokens if it begins where they do
/// ([`Tokenizer::detokenizer`](super::Tokenizer::detokenizer)). A push allocates nothing, unless a token is longer than
/// 1 KiB.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    lexicon: Arc<Lexicon>,
    /// Bytes not yet text; between pushes, the beginning of one character.
    pending: Vec<u8>,
    text: String,
    begins: Begin,
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// At the beginning of a text: a space that the vocabulary puts there is left out.
    Text,
    /// After a prompt: a space there is a space.
    Middle,
}

impl Detokenizer {
    pub(super) fn new(lexicon: Arc<Lexicon>, begins: Begin) -> Self {
        let bytes = lexicon.longest().min(RESERVED_TOKEN_BYTES) + MAX_PENDING;
        let text = String::with_capacity(bytes * char::REPLACEMENT_CHARACTER.len_utf8());
        Self { lexicon, pending: Vec::with_capacity(bytes), text, begins }
    }

    /// The text that token `id` completes; empty for a control token or in the middle of a character.
    pub fn push(&mut self, id: u32) -> &str {
        let mut bytes = self.lexicon.text_bytes(id).unwrap_or(OUTSIDE);
        if self.begins == Begin::Text && !bytes.is_empty() {
            self.begins = Begin::Middle;
            bytes = self.lexicon.without_prefix(bytes);
        }
        self.pending.extend_from_slice(bytes);
        self.text.clear();
        let mut done = 0;
        while done < self.pending.len() {
            let rest = &self.pending[done..];
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    self.text.push_str(valid);
                    done += valid.len();
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    self.text
                        .push_str(std::str::from_utf8(valid).expect("the part before the error is valid"));
                    done += valid.len();
                    let Some(length) = error.error_len() else {
                        debug_assert!(invalid.len() <= MAX_PENDING);
                        break;
                    };
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    done += length;
                }
            }
        }
        self.pending.drain(..done);
        &self.text
    }

    /// The rest at the end of the tokens: U+FFFD for an incomplete character. Afterwards it is ready for a new
    /// text, from its beginning.
    pub fn finish(&mut self) -> &str {
        self.begins = Begin::Text;
        self.text.clear();
        if !self.pending.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use crate::text::tests::tokenizer;

    #[test]
    fn a_push_never_grows_the_buffers() {
        let tokenizer = tokenizer("smollm");
        let mut detokenizer = tokenizer.detokenizer();
        let reserved = (detokenizer.pending.capacity(), detokenizer.text.capacity());
        for first in 0..tokenizer.vocab_len() as u32 {
            for second in 0..tokenizer.vocab_len() as u32 {
                detokenizer.push(first);
                detokenizer.push(second);
            }
        }
        assert_eq!((detokenizer.pending.capacity(), detokenizer.text.capacity()), reserved);
    }
}
