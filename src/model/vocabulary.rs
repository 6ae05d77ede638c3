//! Tokenizer data of a model's files, as plain data for the room `text`.

/// Where the tokenizer comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum VocabularySource {
    /// Out of a GGUF file's metadata.
    Gguf(GgufVocabulary),
    /// Out of a Hugging Face folder.
    Json {
        /// Bytes of `tokenizer.json`.
        tokenizer: Vec<u8>,
        /// Bytes of `tokenizer_config.json`, if the folder has one.
        config: Option<Vec<u8>>,
    },
}

/// The `tokenizer.ggml.*` metadata. Ids are below the number of tokens; nothing else is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufVocabulary {
    /// Kind of tokenizer; `gpt2` is byte-level BPE.
    pub model: String,
    /// Rule that cuts text into words; empty if the file names none.
    pub pre: String,
    /// Text of every token in the file's spelling, by id.
    pub tokens: Vec<String>,
    /// Kind of every token, by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub kinds: Vec<u32>,
    /// Pairs with a space between, the first to be merged first.
    pub merges: Vec<String>,
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Stands for text that the vocabulary cannot encode.
    pub unknown: Option<u32>,
    /// Fills up.
    pub padding: Option<u32>,
    /// Whether encoding puts `bos` in front; `None` leaves it to the custom of `pre`.
    pub add_bos: Option<bool>,
    /// Score of every token, by id; empty if the file has none.
    pub scores: Vec<f32>,
    /// Whether encoding puts a space in front; `None` leaves it to the custom of `model`.
    pub add_space_prefix: Option<bool>,
    /// Whether encoding makes one space of several; `None` leaves it to the custom of `model`.
    pub removes_extra_spaces: Option<bool>,
    /// What characters become before encoding, as SentencePiece compiles it.
    pub character_table: Option<Vec<u8>>,
}

impl GgufVocabulary {
    /// The kind of ordinary tokens.
    pub const NORMAL: u32 = 1;
    /// The kind of tokens that structure text and are not text.
    pub const CONTROL: u32 = 3;
    /// The kind of places that are never used.
    pub const UNUSED: u32 = 5;
}
