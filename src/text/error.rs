//! Errors of vocabularies, tokenizer files, chat templates and conversations.

/// Why text could not be turned into tokens, or the tools for it could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The model file's tokenizer is of a kind that we do not know.
    #[error(
        "the model's tokenizer is of kind `{found}`, but only `gpt2` (byte-level BPE), `llama` (SentencePiece BPE), \
         `gemma4` (the same with merges) and `t5` (Unigram) are supported: use a model with such a tokenizer, or the Hugging Face folder if it has \
         one in tokenizer.json"
    )]
    UnsupportedModel {
        /// The kind the file names.
        found: String,
    },
    /// Variables for a chat template are no object, or take the place of the conversation's own.
    #[error(
        "expected variables of the chat template as a JSON object, as in {{\"enable_thinking\": false}}, found {found}"
    )]
    TemplateVariables {
        /// What was given.
        found: String,
    },
    /// The rule that cuts text into words is not one we know exactly.
    #[error(
        "the model's pre-tokenizer is `{found}`, but only {supported} are supported: use the model's Hugging Face \
         folder, whose tokenizer.json spells the rule out"
    )]
    UnsupportedPreTokenizer {
        /// The name in the file; empty when the file names none.
        found: String,
        /// The names we know, joined by commas.
        supported: String,
    },
    /// A part of a tokenizer file is well formed, but needs an unsupported feature.
    #[error(
        "{part} is {found}, but only {supported} is supported: use a model with a BPE or Unigram tokenizer of that form"
    )]
    Unsupported {
        /// Which part of which file.
        part: String,
        /// The value found.
        found: String,
        /// The supported values.
        supported: String,
    },
    /// A token kind outside 1 to 6.
    #[error("token kind {found} is not known, expected 1 to 6: the model file is damaged or too new")]
    UnknownTokenKind {
        /// The number found.
        found: i32,
    },
    /// Tokens and kinds do not pair up.
    #[error("the vocabulary has {tokens} tokens but {kinds} token kinds: the model file is damaged")]
    LengthMismatch {
        /// How many tokens there are.
        tokens: usize,
        /// How many kinds there are.
        kinds: usize,
    },
    /// The vocabulary is empty or has an id above the limit.
    #[error("the vocabulary has {found} token ids, expected 1 to {limit}: the file is damaged")]
    VocabularySize {
        /// One more than the largest id.
        found: u64,
        /// The most ids a vocabulary may have.
        limit: u64,
    },
    /// Two ids have the same text.
    #[error("token {token:?} is in the vocabulary twice, as ids {first} and {second}: the file is damaged")]
    DuplicateToken {
        /// The text.
        token: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// One id has two texts.
    #[error("token id {id} is given to both {first:?} and {second:?}: tokenizer.json is damaged")]
    DuplicateId {
        /// The id.
        id: u32,
        /// The text found first.
        first: String,
        /// The text found second.
        second: String,
    },
    /// A token that is to be recognised in text has no text, or a byte token is not `<0xNN>`.
    #[error("token {id} has the text {text:?}, expected {expected}: the file is damaged")]
    BadToken {
        /// The id.
        id: u32,
        /// Its text.
        text: String,
        /// The requirement of its kind.
        expected: &'static str,
    },
    /// A byte every text needs has no token.
    #[error("the vocabulary has no token for byte {byte:#04x}: it is not a byte-level vocabulary")]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// Some text would have no token.
    #[error(
        "the vocabulary has neither an unknown token nor tokens for all bytes ({byte:#04x} is missing): the file is \
         damaged"
    )]
    NoUnknownToken {
        /// The first byte without a token.
        byte: u8,
    },
    /// Pieces and scores do not pair up, or a score is no number.
    #[error(
        "the vocabulary has {tokens} tokens and {scores} scores, expected a finite score for each: the file is damaged"
    )]
    BadScores {
        /// How many tokens there are.
        tokens: usize,
        /// How many scores there are.
        scores: usize,
    },
    /// A merge that is not two spellings with one space between them.
    #[error("merge {index} is {merge:?}, expected two tokens with one space between: the file is damaged")]
    MalformedMerge {
        /// Its place in the list, from 0.
        index: usize,
        /// What was found.
        merge: String,
    },
    /// A merge takes or makes a token that the vocabulary lacks, or that text cannot be made of.
    #[error(
        "merge {index} names {token:?}, which is no ordinary token of the vocabulary: the file is damaged"
    )]
    UnknownMergeToken {
        /// Its place in the list, from 0.
        index: usize,
        /// The token.
        token: String,
    },
    /// Two merges of the same pair: which rank holds is not defined.
    #[error("merges {first} and {second} are the same pair: the file is damaged")]
    DuplicateMerge {
        /// The earlier place.
        first: usize,
        /// The later place.
        second: usize,
    },
    /// A named special token is not in the vocabulary.
    #[error(
        "the {name} token is {found}, which is not in the vocabulary of {vocab_len} tokens: the file is damaged"
    )]
    UnknownSpecialToken {
        /// `bos`, `eos`, `unknown` or `padding`.
        name: &'static str,
        /// The id or text found.
        found: String,
        /// How many tokens there are.
        vocab_len: usize,
    },
    /// A file that should be JSON of a certain form is not.
    #[error("{file} could not be read: {reason}")]
    Json {
        /// Which file.
        file: &'static str,
        /// What the parser found and where.
        reason: String,
    },
    /// The model has no chat template.
    #[error(
        "the model has no chat template: expected one in its metadata, found none; give the prompt as it is"
    )]
    NoChatTemplate,
    /// The chat template is not valid, or uses something that is not allowed.
    #[error("the model's chat template is not valid: {reason}; give the prompt as it is")]
    InvalidTemplate {
        /// What the template engine found and where.
        reason: String,
    },
    /// The chat template refused this conversation, failed on it, or ran past its limits.
    #[error("the model's chat template could not lay out the conversation: {reason}")]
    Render {
        /// What the template said, or what the template engine found and where.
        reason: String,
    },
    /// A role that no conversation has.
    #[error("the role of a message is {found:?}, expected system, developer, user, assistant or tool")]
    UnknownRole {
        /// The role found.
        found: String,
    },
    /// The conversation uses every private-use character, so none is left to protect it with.
    #[error("the conversation uses every private-use Unicode character: remove some of them")]
    NoStandIn,
}
