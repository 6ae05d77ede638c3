//! The tokenizer data of a model file, unchecked.

use super::TextError;

/// A tokenizer as a GGUF file describes it. [`Tokenizer::from_vocabulary`](super::Tokenizer::from_vocabulary)
/// checks it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: the kind of tokenizer; `gpt2` is byte-level BPE, `llama` SentencePiece's BPE, `gemma4`
    /// the same with merges in place of scores, `t5` SentencePiece's Unigram.
    pub model: String,
    /// `tokenizer.ggml.tokens`: each token's text in the file's spelling, by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`: each token's kind, by id.
    pub kinds: Vec<TokenKind>,
    /// `tokenizer.ggml.merges`: pairs with a space between, the first to be merged first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.scores`: of every token, by id; empty in byte-level vocabularies.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.pre`: the rule that cuts text into words; empty if the file names none.
    pub pre_tokenizer: String,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; without it the pre-tokenizer's default applies (`llama-bpe` and `llama` add
    /// one).
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`: whether SentencePiece puts a space before a text; without it, `llama` does.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.remove_extra_whitespaces`: whether Unigram makes one space of several; without it, it does not.
    pub removes_extra_spaces: Option<bool>,
    /// `tokenizer.ggml.precompiled_charsmap`: what Unigram makes of characters before it cuts them.
    pub character_table: Option<Vec<u8>>,
}

/// Kind of a token. The numbers are GGUF's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text in the byte-level spelling.
    Normal = 1,
    /// Stands for text that the vocabulary cannot spell; decodes to nothing, like a control token.
    Unknown = 2,
    /// Structure, not text: turns, ends, beginnings.
    Control = 3,
    /// A piece of text that is always one token, spelled literally.
    UserDefined = 4,
    /// A placeholder that is never used.
    Unused = 5,
    /// One byte, spelled `<0xNN>`.
    Byte = 6,
}

impl TokenKind {
    /// Whether a token of this kind is never text: it decodes to nothing and no literal text yields it.
    #[must_use]
    pub fn is_control(self) -> bool {
        match self {
            Self::Unknown | Self::Control | Self::Unused => true,
            Self::Normal | Self::UserDefined | Self::Byte => false,
        }
    }
}

impl TryFrom<i32> for TokenKind {
    type Error = TextError;

    /// # Errors
    /// Numbers other than 1 to 6.
    fn try_from(found: i32) -> Result<Self, TextError> {
        Ok(match found {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return Err(TextError::UnknownTokenKind { found }),
        })
    }
}
