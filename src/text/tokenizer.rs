//! Text to token ids and back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::Vocab;

use super::detokenizer::Begin;
use super::lexicon::{Lexicon, Search, Spelling};
use super::matcher::Piece;
use super::pre_tokenizer::Rules;
use super::sentence_piece::{merges_by_score, merging_steps, unigram_steps};
use super::words::{ModelParts, Steps, Words, bpe, unigram};
use super::{Detokenizer, TextError, TokenKind, Vocabulary, added_flags, byte_level};

/// Names of control tokens that end a turn or a text in published models.
const END_NAMES: [&str; 12] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
    "<eos>",
    "</s>",
];

/// The kind of tokenizer of Gemma 4: pieces with marks for spaces, as SentencePiece has them, and merges in order.
const MERGES_OF_MARKS: &str = "gemma4";

/// How names of control tokens in a text are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// As the control tokens that they name.
    Parse,
    /// As plain characters.
    Literal,
}

/// A model's tokenizer. Immutable; share it between threads by a reference or an [`Arc`].
///
/// ```
/// use yggc::text::{Special, TokenKind, Tokenizer, Vocabulary};
///
/// // Every printable ASCII character, the spellings of space and newline, one merge, one control token.
/// let mut tokens: Vec<String> = (b'!'..=b'~').map(|byte| char::from(byte).to_string()).collect();
/// tokens.extend(["Ġ", "Ċ", "hi", "<|end|>"].map(String::from));
/// let mut kinds = vec![TokenKind::Normal; tokens.len()];
/// *kinds.last_mut().unwrap() = TokenKind::Control;
/// let tokenizer = Tokenizer::from_vocabulary(Vocabulary {
///     model: "gpt2".into(),
///     pre_tokenizer: "smollm".into(),
///     merges: vec!["h i".into()],
///     tokens,
///     kinds,
///     ..Vocabulary::default()
/// })?;
///
/// assert_eq!(tokenizer.encode("hi<|end|>", Special::Parse), [96, 97]);
/// assert_eq!(tokenizer.decode(&tokenizer.encode("hi<|end|>", Special::Literal)), "hi<|end|>");
/// # Ok::<(), yggc::text::TextError>(())
/// ```
pub struct Tokenizer {
    words: Words,
    pub(super) lexicon: Arc<Lexicon>,
    missing_bytes: Vec<u8>,
    bos: Option<u32>,
    eos: Option<u32>,
    end_ids: Vec<u32>,
    add_bos: bool,
}

/// The parts of a tokenizer, from either kind of file.
pub(super) struct Parts {
    pub(super) tokens: Vec<String>,
    pub(super) kinds: Vec<TokenKind>,
    pub(super) spelling: Spelling,
    /// How tokens are found in text, where they say.
    pub(super) searches: BTreeMap<u32, Search>,
    pub(super) steps: Steps,
    pub(super) model: ModelParts,
    pub(super) unknown: Option<u32>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) add_bos: bool,
}

/// An id with different texts in two vocabularies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenDifference {
    /// The id.
    pub id: u32,
    /// Its text here; `None` if it has none.
    pub here: Option<String>,
    /// Its text there.
    pub there: Option<String>,
}

impl Tokenizer {
    /// A tokenizer from a model file's own vocabulary.
    ///
    /// # Errors
    /// A kind of tokenizer or a pre-tokenizer that is not supported, and every inconsistency in the data.
    pub fn from_vocabulary(vocabulary: Vocabulary) -> Result<Self, TextError> {
        Self::build(Self::parts(vocabulary)?)
    }

    /// What a tokenizer of this vocabulary is built from.
    pub(super) fn parts(vocabulary: Vocabulary) -> Result<Parts, TextError> {
        check_special("unknown", vocabulary.unknown, vocabulary.tokens.len())?;
        check_special("padding", vocabulary.padding, vocabulary.tokens.len())?;
        let searches = added_flags::searches(&vocabulary);
        let parts = match vocabulary.model.as_str() {
            "gpt2" => Self::byte_level(vocabulary)?,
            "llama" | "t5" | MERGES_OF_MARKS => Self::sentence_piece(vocabulary)?,
            _ => return Err(TextError::UnsupportedModel { found: vocabulary.model }),
        };
        Ok(Parts { searches, ..parts })
    }

    fn byte_level(vocabulary: Vocabulary) -> Result<Parts, TextError> {
        let Rules { steps, ignore_merges, add_bos } = Rules::named(&vocabulary.pre_tokenizer)?;
        let merges = split_merges(&vocabulary.merges)?;
        Ok(Parts {
            tokens: vocabulary.tokens,
            kinds: vocabulary.kinds,
            spelling: Spelling::ByteLevel,
            searches: BTreeMap::new(),
            steps,
            model: ModelParts::Bpe { merges, ignore_merges, byte_fallback: false, fuse_unknown: false },
            unknown: None,
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            add_bos: vocabulary.add_bos.unwrap_or(add_bos),
        })
    }

    fn sentence_piece(vocabulary: Vocabulary) -> Result<Parts, TextError> {
        let Vocabulary { model, tokens, mut kinds, scores, pre_tokenizer, bos, eos, unknown, .. } =
            vocabulary;
        if !matches!(pre_tokenizer.as_str(), "" | "default" | "gemma" | MERGES_OF_MARKS) {
            return Err(TextError::UnsupportedPreTokenizer {
                found: pre_tokenizer,
                supported: "default, gemma, gemma4 (this is a SentencePiece vocabulary)".into(),
            });
        }
        let has_merges = model == MERGES_OF_MARKS;
        if !has_merges && (scores.len() != tokens.len() || scores.iter().any(|score| !score.is_finite())) {
            return Err(TextError::BadScores { tokens: tokens.len(), scores: scores.len() });
        }
        if let Some(kind) = unknown.and_then(|id| kinds.get_mut(id as usize))
            && *kind == TokenKind::Normal
        {
            *kind = TokenKind::Unknown;
        }
        let byte_fallback = kinds.contains(&TokenKind::Byte);
        let is_unigram = model == "t5";
        let space_prefix = vocabulary.add_space_prefix.unwrap_or(!is_unigram && !has_merges);
        let (steps, model) = if is_unigram {
            let table = vocabulary.character_table.as_deref();
            let collapse = vocabulary.removes_extra_spaces.unwrap_or(false);
            let scores = scores.into_iter().map(f64::from).collect();
            let steps = unigram_steps(table, space_prefix, collapse)?;
            (steps, ModelParts::Unigram { scores, byte_fallback })
        } else {
            let pieces: Vec<(u32, &str)> = (0..)
                .zip(tokens.iter().map(String::as_str))
                .zip(&kinds)
                .filter(|((_, text), kind)| {
                    !text.is_empty()
                        && matches!(kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte)
                })
                .map(|(piece, _)| piece)
                .collect();
            let merges = match has_merges {
                true => split_merges(&vocabulary.merges)?,
                false => merges_by_score(&pieces, &scores),
            };
            let (ignore_merges, fuse_unknown) = (false, true);
            (
                merging_steps(space_prefix),
                ModelParts::Bpe { merges, ignore_merges, byte_fallback, fuse_unknown },
            )
        };
        Ok(Parts {
            tokens,
            kinds,
            spelling: Spelling::Marks { space_prefix },
            searches: BTreeMap::new(),
            steps,
            model,
            unknown,
            bos,
            eos,
            add_bos: vocabulary.add_bos.unwrap_or(!is_unigram),
        })
    }

    pub(super) fn build(parts: Parts) -> Result<Self, TextError> {
        let Parts { tokens, kinds, spelling, searches, steps, model, unknown, bos, eos, add_bos } = parts;
        let lexicon = Arc::new(Lexicon::new(&tokens, kinds, spelling, &searches)?);
        check_special("bos", bos, lexicon.len())?;
        check_special("eos", eos, lexicon.len())?;
        let spelled: Vocab = (0..)
            .zip(&tokens)
            .filter(|(id, text)| lexicon.is_spelled(*id, text))
            .map(|(id, text)| (text.clone(), id))
            .collect();
        let missing_bytes = match spelling {
            Spelling::ByteLevel => missing_bytes(&spelled)?,
            Spelling::Marks { space_prefix: _ } => Vec::new(),
        };
        let model = build_model(model, &tokens, spelled, spelling, unknown)?;
        let words = Words::new(steps, Arc::clone(&lexicon), model);

        let mut end_ids: Vec<u32> = END_NAMES.iter().filter_map(|name| lexicon.controls.id(name)).collect();
        end_ids.extend(eos);
        end_ids.sort_unstable();
        end_ids.dedup();
        let add_bos = add_bos && bos.is_some();
        Ok(Self { words, lexicon, missing_bytes, bos, eos, end_ids, add_bos })
    }

    /// The tokens of `text`, with nothing added before or after.
    ///
    /// User-defined tokens are found either way. Bytes the vocabulary has no token for are left out
    /// ([`Tokenizer::missing_bytes`]), as the models' own tokenizers do.
    #[must_use]
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        self.encode_from(text, special, true)
    }

    /// The tokens of `text` as [`encode`](Self::encode) gives those of [literal](Special::Literal) text, but as a
    /// continuation of other text: no space is put before it.
    #[must_use]
    pub fn encode_continuation(&self, text: &str) -> Vec<u32> {
        self.encode_from(text, Special::Literal, false)
    }

    /// The same of a raw prompt's continuation: control tokens are parsed.
    #[must_use]
    pub fn encode_raw_continuation(&self, text: &str) -> Vec<u32> {
        self.encode_from(text, Special::Parse, false)
    }

    fn encode_from(&self, text: &str, special: Special, begins_text: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        match special {
            Special::Literal => self.push_literal(text, begins_text, &mut ids),
            Special::Parse => {
                let literal = |text: &str, is_start: bool, ids: &mut Vec<u32>| {
                    self.push_literal(text, is_start && begins_text, ids);
                };
                self.push_pieces(text, literal, &mut ids);
            }
        }
        ids
    }

    /// Appends the ids of `text`, whose control tokens are parsed; `literal` appends those of what is between them, and
    /// is told whether it begins the text.
    pub(super) fn push_pieces(
        &self,
        text: &str,
        literal: impl Fn(&str, bool, &mut Vec<u32>),
        ids: &mut Vec<u32>,
    ) {
        for (index, piece) in self.lexicon.controls.split(text).into_iter().enumerate() {
            match piece {
                Piece::Token(id, _) => ids.push(id),
                Piece::Text(text) => literal(text, index == 0, ids),
            }
        }
    }

    /// The tokens of a raw prompt: control tokens are parsed, and where the model wants it the BOS token leads,
    /// unless the prompt brings it.
    #[must_use]
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        let mut ids = self.encode(text, Special::Parse);
        if let Some(bos) = self.bos.filter(|&bos| self.add_bos && ids.first() != Some(&bos)) {
            ids.insert(0, bos);
        }
        ids
    }

    pub(super) fn push_literal(&self, text: &str, is_start: bool, ids: &mut Vec<u32>) {
        for (index, piece) in self.lexicon.user_defined.split(text).into_iter().enumerate() {
            match piece {
                Piece::Token(id, _) => ids.push(id),
                Piece::Text(text) => self.words.push(text, is_start && index == 0, ids),
            }
        }
    }

    /// The text of `ids`: control tokens have no text, bytes that are no UTF-8 and ids outside the vocabulary become
    /// U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes(id).unwrap_or(OUTSIDE));
        }
        String::from_utf8_lossy(self.lexicon.without_prefix(&bytes)).into_owned()
    }

    /// A streaming decoder over this vocabulary, for tokens that begin a text.
    #[must_use]
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.lexicon), Begin::Text)
    }

    /// A streaming decoder for tokens that continue a text: a space that they begin with is kept, where
    /// [`Tokenizer::detokenizer`] leaves one out that SentencePiece vocabularies put before every text.
    #[must_use]
    pub fn continuation(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.lexicon), Begin::Middle)
    }

    /// The bytes that token `id` adds to a text, perhaps a part of a character; none for a control token. `None`
    /// outside the vocabulary.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.lexicon.text_bytes(id)
    }

    /// A readable form of token `id`: the name of a control token, else the text that it adds, with
    /// U+FFFD for bytes that are no UTF-8. Empty outside the vocabulary.
    #[must_use]
    pub fn spelling(&self, id: u32) -> String {
        if self.is_control(id) {
            return self.name(Some(id));
        }
        String::from_utf8_lossy(self.token_bytes(id).unwrap_or_default()).into_owned()
    }

    /// How many token ids there are. A model may have more rows in its head than this.
    #[must_use]
    pub fn vocab_len(&self) -> usize {
        self.lexicon.len()
    }

    /// The first id with another text in `other`; `None` if all ids agree. Ids that are missing or unused have no text,
    /// so two such ids agree.
    #[must_use]
    pub fn first_difference(&self, other: &Tokenizer) -> Option<TokenDifference> {
        let meaning = |tokenizer: &Tokenizer, id| -> Option<Vec<u8>> {
            let lexicon = &tokenizer.lexicon;
            let is_used = lexicon.kind(id).is_some_and(|kind| kind != TokenKind::Unused);
            is_used.then(|| lexicon.name_bytes(id).unwrap_or_default().to_vec())
        };
        let ids = u32::try_from(self.vocab_len().max(other.vocab_len())).expect("vocabularies are limited");
        let (id, [here, there]) = (0..ids)
            .map(|id| (id, [self, other].map(|tokenizer| meaning(tokenizer, id))))
            .find(|(_, [here, there])| here != there)?;
        let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Some(TokenDifference { id, here: text(here), there: text(there) })
    }

    /// Whether `id` is never text: a control, unknown or unused token.
    #[must_use]
    pub fn is_control(&self, id: u32) -> bool {
        self.lexicon.kind(id).is_some_and(TokenKind::is_control)
    }

    /// The token that starts a text.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token the model file names as the end of a text.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether a raw prompt starts with [`Tokenizer::bos`].
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// The tokens after which generation ends, ascending: [`Tokenizer::eos`], and every control token that goes by one
    /// of the usual names of an end of turn or text (`<|im_end|>`, `<|eot_id|>`, `<|endoftext|>` and the like). Chat
    /// models often end a turn with another token than the one their file names.
    #[must_use]
    pub fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// The bytes no token spells, ascending; [`Tokenizer::encode`] leaves them out of a text.
    ///
    /// SmolLM2, for one, was trained without a few ASCII control characters.
    #[must_use]
    pub fn missing_bytes(&self) -> &[u8] {
        &self.missing_bytes
    }

    /// A token's name, for a template to print; empty for none.
    pub(super) fn name(&self, id: Option<u32>) -> String {
        let bytes = id.and_then(|id| self.lexicon.name_bytes(id)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_len", &self.vocab_len())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .field("end_ids", &self.end_ids)
            .finish_non_exhaustive()
    }
}

/// The bytes of an id outside the vocabulary: one that no UTF-8 text has.
pub(super) const OUTSIDE: &[u8] = &[0xFF];

fn check_special(name: &'static str, id: Option<u32>, vocab_len: usize) -> Result<(), TextError> {
    match id.filter(|&id| id as usize >= vocab_len) {
        Some(id) => Err(TextError::UnknownSpecialToken { name, found: format!("id {id}"), vocab_len }),
        None => Ok(()),
    }
}

fn split_merges(merges: &[String]) -> Result<Vec<(String, String)>, TextError> {
    (0..).zip(merges).map(|(index, merge)| split_merge(index, merge)).collect()
}

/// The two tokens of a merge written as one string.
pub(super) fn split_merge(index: usize, merge: &str) -> Result<(String, String), TextError> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left.to_owned(), right.to_owned()))
        }
        _ => Err(TextError::MalformedMerge { index, merge: merge.to_owned() }),
    }
}

/// # Errors
/// A byte of plain ASCII text is missing: the vocabulary is no byte-level one.
fn missing_bytes(spelled: &Vocab) -> Result<Vec<u8>, TextError> {
    let missing: Vec<u8> =
        (0..=255).filter(|&byte| !spelled.contains_key(&byte_level::spelling(byte))).collect();
    match missing.iter().find(|&&byte| matches!(byte, b'\n' | b' '..=b'~')) {
        Some(&byte) => Err(TextError::MissingByte { byte }),
        None => Ok(missing),
    }
}

/// The model over a vocabulary that has been read; `spelled` are the tokens that it may yield.
///
/// # Errors
/// Merges that do not fit the vocabulary, and text that would have no token.
fn build_model(
    model: ModelParts,
    tokens: &[String],
    mut spelled: Vocab,
    spelling: Spelling,
    unknown: Option<u32>,
) -> Result<ModelWrapper, TextError> {
    match model {
        ModelParts::Bpe { merges, ignore_merges, byte_fallback, fuse_unknown } => {
            check_merges(&merges, &spelled)?;
            let unknown = unknown.map(|id| (tokens[id as usize].clone(), id));
            if spelling != Spelling::ByteLevel && unknown.is_none() {
                let missing = (0..=255_u8).find(|byte| !spelled.contains_key(&format!("<{byte:#04X}>")));
                if let Some(byte) = missing.filter(|_| byte_fallback).or((!byte_fallback).then_some(0)) {
                    return Err(TextError::NoUnknownToken { byte });
                }
            }
            spelled.extend(unknown.clone());
            let name = unknown.map(|(name, _)| name);
            Ok(bpe(spelled, merges, [ignore_merges, byte_fallback, fuse_unknown], name))
        }
        ModelParts::Unigram { scores, byte_fallback } => {
            let unknown = unknown.ok_or(TextError::NoUnknownToken { byte: 0 })?;
            if scores.iter().any(|score| !score.is_finite()) {
                return Err(TextError::BadScores { tokens: tokens.len(), scores: scores.len() });
            }
            // Added tokens after the pieces have no score; they and control tokens are no pieces.
            let scores = scores.into_iter().chain(std::iter::repeat(0.0));
            let pieces = tokens.iter().zip(scores).map(|(text, score)| {
                (if spelled.contains_key(text) { text.clone() } else { String::new() }, score)
            });
            Ok(unigram(pieces.collect(), unknown, byte_fallback))
        }
    }
}

fn check_merges(merges: &[(String, String)], spelled: &Vocab) -> Result<(), TextError> {
    let mut places = BTreeMap::new();
    for (index, (left, right)) in merges.iter().enumerate() {
        let whole = format!("{left}{right}");
        if let Some(token) = [left, right, &whole].into_iter().find(|token| !spelled.contains_key(*token)) {
            return Err(TextError::UnknownMergeToken { index, token: token.clone() });
        }
        if let Some(first) = places.insert((left, right), index) {
            return Err(TextError::DuplicateMerge { first, second: index });
        }
    }
    Ok(())
}
