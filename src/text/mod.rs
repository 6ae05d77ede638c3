//! The text room: from characters to token ids and back.
//!
//! A [`Tokenizer`] is built from a model's own vocabulary ([`Vocabulary`], as a GGUF file carries it) or from a
//! Hugging Face `tokenizer.json`; a [`Detokenizer`] turns a stream of tokens back into text, one whole character at a
//! time; a [`ChatTemplate`] formats a conversation as the model was trained to read it.
//!
//! Invariants:
//! - Byte-pair encodings over bytes or SentencePiece's marks, and Unigram, are accepted, with the steps of the
//!   `tokenizers` crate. A vocabulary, pre-tokenizer or setting that is not known exactly is refused: a nearly right
//!   tokenizer would silently degrade every answer.
//! - Text encoded as [`Special::Literal`] never yields a control token, and neither does the text of a message of a
//!   conversation ([`Tokenizer::encode_chat`]).
//! - `decode(encode(text)) == text`, except for bytes the vocabulary has no token for ([`Tokenizer::missing_bytes`]),
//!   characters that become the unknown token, `▁` in SentencePiece vocabularies, and what the tokenizer's own
//!   normalisation changes.
//! - For every way of cutting a token sequence, a detokenizer's output joined together equals
//!   [`Tokenizer::decode`] of the whole.
//! - Vocabularies, tokenizer files and templates are untrusted: they give errors, never panics.

#![forbid(unsafe_code)]

mod added_flags;
mod byte_level;
mod charsmap;
mod chat;
mod chat_template;
mod detokenizer;
mod disguise;
mod error;
mod json;
mod lexicon;
mod matcher;
mod pre_tokenizer;
mod python;
mod sentence_piece;
mod stop_strings;
mod template;
mod to_json;
mod tokenizer;
mod tokenizer_config;
mod tokenizer_json;
mod vocabulary;
mod words;

#[cfg(test)]
mod tests;

pub use chat::{Conversation, GenerationPrompt, Message, Role, Variables};
pub use chat_template::ChatTemplate;
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use json::{Json, JsonNumber};
pub use stop_strings::{Heard, StopStrings};
pub use tokenizer::{Special, TokenDifference, Tokenizer};
pub use tokenizer_config::TokenizerConfig;
pub use vocabulary::{TokenKind, Vocabulary};
