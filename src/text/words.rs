//! From text without special tokens to ids: normalisation, division into words, the model of words.
//!
//! The three steps are the `tokenizers` crate's own. Special tokens are cut out before, because what counts as one
//! depends on who says it ([`Special`](super::Special), [`Tokenizer::encode_chat`](super::Tokenizer::encode_chat)).

use std::sync::Arc;

use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::tokenizer::normalizer::Range;
use tokenizers::{Model, NormalizedString, Normalizer, PreTokenizedString, PreTokenizer};

use super::lexicon::Lexicon;
use super::matcher::Piece;

/// What happens to a text before words become tokens.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) pre_tokenizer: Option<PreTokenizerWrapper>,
}

/// The whole way, built from checked parts.
#[derive(Debug)]
pub(super) struct Words {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    /// For text that does not begin the input, where that makes a difference.
    later: Option<PreTokenizerWrapper>,
    lexicon: Arc<Lexicon>,
    model: ModelWrapper,
}

impl Words {
    pub(super) fn new(steps: Steps, lexicon: Arc<Lexicon>, model: ModelWrapper) -> Self {
        let later = steps.pre_tokenizer.as_ref().and_then(later);
        Self { normalizer: steps.normalizer, pre_tokenizer: steps.pre_tokenizer, later, lexicon, model }
    }

    /// Appends the ids of `text`, which begins the input or not.
    pub(super) fn push(&self, text: &str, is_start: bool, ids: &mut Vec<u32>) {
        let text = normalize(self.normalizer.as_ref(), text);
        if self.lexicon.in_normalized.is_empty() {
            return self.push_normalized(text, is_start, ids);
        }
        let mut at = 0;
        for piece in self.lexicon.in_normalized.split(text.get()) {
            match piece {
                Piece::Token(id, length) => {
                    ids.push(id);
                    at += length;
                }
                Piece::Text(part) => {
                    let range = Range::Normalized(at..at + part.len());
                    let part_of_text = text.slice(range).expect("pieces end at characters");
                    self.push_normalized(part_of_text, is_start && at == 0, ids);
                    at += part.len();
                }
            }
        }
    }

    fn push_normalized(&self, text: NormalizedString, is_start: bool, ids: &mut Vec<u32>) {
        let mut words = PreTokenizedString::from(text);
        let later = self.later.as_ref().filter(|_| !is_start);
        if let Some(pre_tokenizer) = later.or(self.pre_tokenizer.as_ref()) {
            pre_tokenizer.pre_tokenize(&mut words).expect("steps were tried when they were built");
        }
        words
            .tokenize(|word| self.model.tokenize(word.get()))
            .expect("the model has tokens for all text, or one for unknown text");
        for (_, _, tokens) in
            words.get_splits(tokenizers::OffsetReferential::Original, tokenizers::OffsetType::None)
        {
            ids.extend(tokens.iter().flatten().map(|token| token.id));
        }
    }
}

/// `text` as `normalizer` leaves it.
pub(super) fn normalize(normalizer: Option<&NormalizerWrapper>, text: &str) -> NormalizedString {
    let mut text = NormalizedString::from(text);
    if let Some(normalizer) = normalizer {
        normalizer.normalize(&mut text).expect("steps were tried when they were built");
    }
    text
}

/// `pre_tokenizer` for text that does not begin the input; `None` if it is the same.
fn later(pre_tokenizer: &PreTokenizerWrapper) -> Option<PreTokenizerWrapper> {
    match pre_tokenizer {
        PreTokenizerWrapper::Metaspace(metaspace) if metaspace.prepend_scheme == PrependScheme::First => {
            let mut metaspace = metaspace.clone();
            metaspace.prepend_scheme = PrependScheme::Never;
            Some(metaspace.into())
        }
        PreTokenizerWrapper::Sequence(steps) => {
            let steps: &[PreTokenizerWrapper] = steps.as_ref();
            let changed: Vec<Option<PreTokenizerWrapper>> = steps.iter().map(later).collect();
            changed.iter().any(Option::is_some).then(|| {
                let steps =
                    changed.into_iter().zip(steps).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
                Sequence::new(steps.collect()).into()
            })
        }
        _ => None,
    }
}

/// What a model of words is made of.
#[derive(Debug)]
pub(super) enum ModelParts {
    /// Merges of pairs, the first to be merged first.
    Bpe {
        merges: Vec<(String, String)>,
        /// A word that is itself a token is taken whole, whatever the merges say.
        ignore_merges: bool,
        /// Characters without a token are spelled in tokens of bytes.
        byte_fallback: bool,
        /// Neighbouring unknown characters become one token.
        fuse_unknown: bool,
    },
    /// The cut with the highest sum of scores.
    Unigram { scores: Vec<f64>, byte_fallback: bool },
}

/// Byte-pair encoding over `vocab`.
pub(super) fn bpe(
    vocab: Vocab,
    merges: Vec<(String, String)>,
    [ignore_merges, byte_fallback, fuse_unknown]: [bool; 3],
    unknown: Option<String>,
) -> ModelWrapper {
    let builder = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(ignore_merges)
        .byte_fallback(byte_fallback)
        .fuse_unk(fuse_unknown);
    let builder = match unknown {
        Some(unknown) => builder.unk_token(unknown),
        None => builder,
    };
    builder.build().expect("the merges have been checked against the vocabulary").into()
}

/// Unigram over the pieces by id; an empty piece is never found in text.
pub(super) fn unigram(pieces: Vec<(String, f64)>, unknown: u32, byte_fallback: bool) -> ModelWrapper {
    Unigram::from(pieces, Some(unknown as usize), byte_fallback)
        .expect("the unknown token has been checked against the vocabulary")
        .into()
}
