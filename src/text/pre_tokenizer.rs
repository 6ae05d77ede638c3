//! Normalisation of text and its division into words before merging, by the rules that a GGUF file names.

use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::TextError;

/// The steps from text to words.
pub(super) struct Rules {
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) pre_tokenizer: PreTokenizerWrapper,
    /// A word that is itself a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether a prompt starts with the BOS token when the file does not say.
    pub(super) add_bos: bool,
}

const SUPPORTED: [&str; 4] = ["smollm", "gpt-2", "llama-bpe", "qwen2"];

impl Rules {
    /// The rules called `name` in `tokenizer.ggml.pre`: those of the Hugging Face tokenizers of SmolLM2, GPT-2,
    /// Llama 3 and Qwen2.
    ///
    /// # Errors
    /// Any other name.
    pub(super) fn named(name: &str) -> Result<Self, TextError> {
        Ok(match name {
            "gpt-2" => Self::new(vec![words()]),
            "smollm" => Self::new(vec![Digits::new(true).into(), words()]),
            "llama-bpe" => Self {
                ignore_merges: true,
                add_bos: true,
                ..Self::new(vec![case_blind_words(r"\p{N}{1,3}"), bytes()])
            },
            "qwen2" => Self {
                normalizer: Some(NormalizerWrapper::NFC(NFC)),
                ..Self::new(vec![case_blind_words(r"\p{N}"), bytes()])
            },
            _ => {
                return Err(TextError::UnsupportedPreTokenizer {
                    found: name.to_owned(),
                    supported: SUPPORTED.join(", "),
                });
            }
        })
    }

    fn new(steps: Vec<PreTokenizerWrapper>) -> Self {
        Self {
            normalizer: None,
            pre_tokenizer: Sequence::new(steps).into(),
            ignore_merges: false,
            add_bos: false,
        }
    }
}

/// GPT-2's words, spelled in bytes.
fn words() -> PreTokenizerWrapper {
    ByteLevel::new(false, true, true).into()
}

/// The byte-level spelling alone.
fn bytes() -> PreTokenizerWrapper {
    ByteLevel::new(false, true, false).into()
}

/// Words as Llama 3 and Qwen2 cut them; they differ in how many digits make a `number`.
fn case_blind_words(number: &str) -> PreTokenizerWrapper {
    let pattern = [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        number,
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
    .join("|");
    Split::new(SplitPattern::Regex(pattern), SplitDelimiterBehavior::Isolated, false)
        .expect("the pattern is one of two constants")
        .into()
}
