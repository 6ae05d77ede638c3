//! Text to token ids and back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokenizers::models::bpe::{BPE, Vocab};

use super::lexicon::Lexicon;
use super::matcher::Piece;
use super::pre_tokenizer::Rules;
use super::{Detokenizer, TextError, TokenKind, Vocabulary, byte_level};

/// Names of control tokens that end a turn or a text in published models.
const END_NAMES: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|end_of_turn|>",
    "</s>",
];

/// How names of control tokens in a text are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// As the control tokens that they name.
    Parse,
    /// As plain characters.
    Literal,
}

/// A model's tokenizer. Immutable; share it between threads behind a reference or an [`Arc`].
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
    words: tokenizers::Tokenizer,
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
    pub(super) merges: Vec<(String, String)>,
    pub(super) rules: Rules,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
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
        let Vocabulary { model, tokens, kinds, merges, pre_tokenizer, bos, eos, unknown, padding, add_bos } =
            vocabulary;
        if model != "gpt2" {
            return Err(TextError::UnsupportedModel { found: model });
        }
        let mut rules = Rules::named(&pre_tokenizer)?;
        rules.add_bos = add_bos.unwrap_or(rules.add_bos);
        for (name, id) in [("unknown", unknown), ("padding", padding)] {
            check_special(name, id, tokens.len())?;
        }
        let merges = (0..)
            .zip(merges)
            .map(|(index, merge)| split_merge(index, &merge))
            .collect::<Result<Vec<_>, TextError>>()?;
        Self::build(Parts { tokens, kinds, merges, rules, bos, eos })
    }

    pub(super) fn build(parts: Parts) -> Result<Self, TextError> {
        let Parts { tokens, kinds, merges, rules, bos, eos } = parts;
        let lexicon = Lexicon::new(&tokens, kinds)?;
        check_special("bos", bos, lexicon.len())?;
        check_special("eos", eos, lexicon.len())?;

        let spelled: Vocab = (0..)
            .zip(tokens)
            .filter(|(id, text)| lexicon.is_spelled(*id, text))
            .map(|(id, text)| (text, id))
            .collect();
        let missing_bytes = missing_bytes(&spelled)?;
        check_merges(&merges, &spelled)?;
        let model = BPE::builder()
            .vocab_and_merges(spelled, merges)
            .ignore_merges(rules.ignore_merges)
            .build()
            .expect("the merges have been checked against the vocabulary");
        let mut words = tokenizers::Tokenizer::new(model);
        words.with_normalizer(rules.normalizer).expect("there are no added tokens to normalise");
        words.with_pre_tokenizer(Some(rules.pre_tokenizer));

        let mut end_ids: Vec<u32> = END_NAMES.iter().filter_map(|name| lexicon.controls.id(name)).collect();
        end_ids.extend(eos);
        end_ids.sort_unstable();
        end_ids.dedup();
        let add_bos = rules.add_bos && bos.is_some();
        Ok(Self { words, lexicon: Arc::new(lexicon), missing_bytes, bos, eos, end_ids, add_bos })
    }

    /// The tokens of `text`, with nothing added before or after.
    ///
    /// User-defined tokens are found either way. Bytes the vocabulary has no token for are left out
    /// ([`Tokenizer::missing_bytes`]), as the models' own tokenizers do.
    #[must_use]
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        let mut ids = Vec::new();
        match special {
            Special::Literal => self.push_literal(text, &mut ids),
            Special::Parse => {
                for piece in self.lexicon.controls.split(text) {
                    match piece {
                        Piece::Token(id) => ids.push(id),
                        Piece::Text(text) => self.push_literal(text, &mut ids),
                    }
                }
            }
        }
        ids
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

    pub(super) fn push_literal(&self, text: &str, ids: &mut Vec<u32>) {
        for piece in self.lexicon.user_defined.split(text) {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(text) => {
                    let words = self.words.encode_fast(text, false);
                    ids.extend_from_slice(words.expect("byte-level BPE takes any text").get_ids());
                }
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
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A streaming decoder over this vocabulary.
    #[must_use]
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.lexicon))
    }

    /// The bytes that token `id` adds to a text, perhaps a part of a character; none for a control token. `None` outside the
    /// vocabulary.
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

    /// The first id with another text in `other`; `None` if all ids agree. Ids that are missing or unused have no text, so
    /// two such ids agree.
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

    /// The tokens after which generation ends, ascending: [`Tokenizer::eos`], and every control token that goes by
    /// one of the usual names of an end of turn or text (`<|im_end|>`, `<|eot_id|>`, `<|endoftext|>` and the like). Chat
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
