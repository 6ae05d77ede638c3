//! Reads Hugging Face `tokenizer.json` and `tokenizer_config.json`.
//!
//! The file is read into our own types, checked, and built like a GGUF's vocabulary: only what a byte-level BPE needs
//! is accepted, so nothing in the file is passed on unchecked.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::lexicon::check_size;
use super::pre_tokenizer::Rules;
use super::tokenizer::{Parts, split_merge};
use super::{TextError, TokenKind, Tokenizer};

/// The fields of `tokenizer_config.json` that are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// `bos_token`: the text of the token that begins a text.
    pub bos: Option<String>,
    /// `eos_token`: the text of the token that ends one.
    pub eos: Option<String>,
    /// `add_bos_token`; without it, tokenizer.json's post-processor decides.
    pub add_bos: Option<bool>,
    /// `chat_template`; of several named ones, `default`.
    pub chat_template: Option<String>,
}

impl TokenizerConfig {
    /// Reads the bytes of a `tokenizer_config.json`.
    ///
    /// # Errors
    /// Not JSON, or one of the four fields has another form than Hugging Face gives it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TextError> {
        let file: ConfigFile = parse("tokenizer_config.json", bytes)?;
        let chat_template = file.chat_template.and_then(|template| match template {
            TemplateField::One(source) => Some(source),
            TemplateField::Named(templates) => {
                templates.into_iter().find(|named| named.name == "default").map(|named| named.template)
            }
        });
        Ok(Self {
            bos: file.bos_token.map(TokenField::text),
            eos: file.eos_token.map(TokenField::text),
            add_bos: file.add_bos_token,
            chat_template,
        })
    }
}

impl Tokenizer {
    /// A tokenizer from the bytes of a `tokenizer.json` and the fields of its `tokenizer_config.json`.
    ///
    /// # Errors
    /// Not JSON of that form, anything but a byte-level BPE, and every inconsistency in the data.
    pub fn from_json(bytes: &[u8], config: &TokenizerConfig) -> Result<Self, TextError> {
        let outline: Outline = parse("tokenizer.json", bytes)?;
        require(outline.model.kind.as_deref().unwrap_or("BPE"), "model.type", "BPE")?;
        let file: TokenizerFile = parse("tokenizer.json", bytes)?;
        let model = file.model;
        require(
            model.continuing_subword_prefix.as_deref().unwrap_or(""),
            "model.continuing_subword_prefix",
            "",
        )?;
        require(model.end_of_word_suffix.as_deref().unwrap_or(""), "model.end_of_word_suffix", "")?;
        require(&model.dropout.unwrap_or(0.0).to_string(), "model.dropout", "0")?;

        let added = added_kinds(&file.added_tokens)?;
        let (tokens, kinds) = tokens_by_id(model.vocab.0, &added)?;
        let leading = leading_token(file.post_processor)?;
        let named = |name, text: Option<&String>| {
            let Some(text) = text else { return Ok(None) };
            match tokens.iter().position(|token| token == text) {
                Some(id) => Ok(Some(id as u32)),
                None => Err(TextError::UnknownSpecialToken {
                    name,
                    found: format!("{text:?}"),
                    vocab_len: tokens.len(),
                }),
            }
        };
        let bos = named("bos", config.bos.as_ref().or(leading.as_ref()))?;
        let eos = named("eos", config.eos.as_ref())?;

        let merges = (0..)
            .zip(model.merges)
            .map(|(index, merge)| match merge {
                MergeField::Joined(merge) => split_merge(index, &merge),
                MergeField::Pair(left, right) => Ok((left, right)),
            })
            .collect::<Result<Vec<_>, TextError>>()?;
        let rules = Rules {
            normalizer: normalizer(file.normalizer),
            pre_tokenizer: pre_tokenizer(file.pre_tokenizer)?,
            ignore_merges: model.ignore_merges,
            add_bos: config.add_bos.unwrap_or(leading.is_some()),
        };
        Self::build(Parts { tokens, kinds, merges, rules, bos, eos })
    }
}

fn parse<'a, T: Deserialize<'a>>(file: &'static str, bytes: &'a [u8]) -> Result<T, TextError> {
    serde_json::from_slice(bytes).map_err(|error| TextError::Json { file, reason: error.to_string() })
}

fn require(found: &str, part: &str, supported: &str) -> Result<(), TextError> {
    if found == supported {
        return Ok(());
    }
    Err(unsupported(part, format!("{found:?}"), &format!("{supported:?}")))
}

fn unsupported(part: &str, found: String, supported: &str) -> TextError {
    TextError::Unsupported { part: format!("tokenizer.json: {part}"), found, supported: supported.to_owned() }
}

/// Added tokens by id, with their kinds.
fn added_kinds(added: &[AddedToken]) -> Result<BTreeMap<u32, (&str, TokenKind)>, TextError> {
    let mut kinds = BTreeMap::new();
    for token in added {
        let AddedToken { id, content, special, single_word, lstrip, rstrip } = token;
        for (set, flag) in [(single_word, "single_word"), (lstrip, "lstrip"), (rstrip, "rstrip")] {
            if *set {
                return Err(unsupported(&format!("added token {content:?}: {flag}"), "true".into(), "false"));
            }
        }
        let kind = if *special { TokenKind::Control } else { TokenKind::UserDefined };
        if let Some((first, _)) = kinds.insert(*id, (content.as_str(), kind)) {
            return Err(TextError::DuplicateId { id: *id, first: first.to_owned(), second: content.clone() });
        }
    }
    Ok(kinds)
}

/// Texts and kinds by id; an id that the file leaves out is an empty, unused token.
fn tokens_by_id(
    vocab: Vec<(String, u32)>,
    added: &BTreeMap<u32, (&str, TokenKind)>,
) -> Result<(Vec<String>, Vec<TokenKind>), TextError> {
    let last = vocab.iter().map(|(_, id)| *id).chain(added.keys().copied()).max();
    let len = last.map_or(0, |last| u64::from(last) + 1);
    check_size(len)?;
    let mut tokens: Vec<Option<(String, TokenKind)>> = vec![None; len as usize];
    for (text, id) in vocab {
        let kind = added.get(&id).map_or(TokenKind::Normal, |(_, kind)| *kind);
        if let Some((first, _)) = tokens[id as usize].replace((text, kind)) {
            let second = tokens[id as usize].take().expect("it was put there just now").0;
            return Err(TextError::DuplicateId { id, first, second });
        }
    }
    for (&id, &(text, kind)) in added {
        match &tokens[id as usize] {
            None => tokens[id as usize] = Some((text.to_owned(), kind)),
            Some((first, _)) if first == text => {}
            Some((first, _)) => {
                return Err(TextError::DuplicateId { id, first: first.clone(), second: text.to_owned() });
            }
        }
    }
    Ok(tokens.into_iter().map(|token| token.unwrap_or((String::new(), TokenKind::Unused))).unzip())
}

fn normalizer(field: Option<NormalizerField>) -> Option<NormalizerWrapper> {
    fn composes(field: &NormalizerField) -> bool {
        match field {
            NormalizerField::Nfc => true,
            NormalizerField::Sequence { normalizers } => normalizers.iter().any(composes),
        }
    }
    field.filter(composes).map(|_| NormalizerWrapper::NFC(NFC))
}

fn pre_tokenizer(field: Option<PreTokenizerField>) -> Result<PreTokenizerWrapper, TextError> {
    fn flatten(field: PreTokenizerField, steps: &mut Vec<PreTokenizerField>) {
        match field {
            PreTokenizerField::Sequence { pretokenizers } => {
                pretokenizers.into_iter().for_each(|step| flatten(step, steps));
            }
            step => steps.push(step),
        }
    }
    let mut fields = Vec::new();
    field.into_iter().for_each(|field| flatten(field, &mut fields));
    let is_byte_level = |step: &PreTokenizerField| matches!(step, PreTokenizerField::ByteLevel { .. });
    let byte_levels = fields.iter().filter(|step| is_byte_level(step)).count();
    if byte_levels != 1 || !fields.last().is_some_and(is_byte_level) {
        let found = format!("a list of {} steps with {byte_levels} ByteLevel", fields.len());
        return Err(unsupported("pre_tokenizer", found, "a list that ends with its one ByteLevel step"));
    }
    let steps = fields.into_iter().map(step).collect::<Result<Vec<_>, TextError>>()?;
    Ok(Sequence::new(steps).into())
}

fn step(field: PreTokenizerField) -> Result<PreTokenizerWrapper, TextError> {
    Ok(match field {
        PreTokenizerField::Sequence { .. } => unreachable!("sequences have been flattened"),
        PreTokenizerField::Digits { individual_digits } => Digits::new(individual_digits).into(),
        PreTokenizerField::ByteLevel { add_prefix_space: true, .. } => {
            return Err(unsupported("pre_tokenizer: ByteLevel: add_prefix_space", "true".into(), "false"));
        }
        PreTokenizerField::ByteLevel { add_prefix_space: false, use_regex } => {
            ByteLevel::new(false, true, use_regex).into()
        }
        PreTokenizerField::Split { behavior: SplitDelimiterBehavior::Removed, .. } => {
            return Err(unsupported(
                "pre_tokenizer: Split: behavior",
                "Removed".into(),
                "one that keeps all text",
            ));
        }
        PreTokenizerField::Split { pattern, behavior, invert } => Split::new(pattern, behavior, invert)
            .map_err(|error| {
                unsupported("pre_tokenizer: Split: pattern", error.to_string(), "a regular expression")
            })?
            .into(),
    })
}

/// The token that the post-processor puts before a text.
fn leading_token(field: Option<PostProcessorField>) -> Result<Option<String>, TextError> {
    match field {
        None | Some(PostProcessorField::ByteLevel) => Ok(None),
        Some(PostProcessorField::Sequence { processors }) => {
            let mut leading = None;
            for processor in processors {
                leading = leading_token(Some(processor))?.or(leading);
            }
            Ok(leading)
        }
        Some(PostProcessorField::TemplateProcessing { single }) => match single.as_slice() {
            [TemplatePiece::Sequence {}] => Ok(None),
            [TemplatePiece::SpecialToken { id }, TemplatePiece::Sequence {}] => Ok(Some(id.clone())),
            _ => Err(unsupported(
                "post_processor: TemplateProcessing: single",
                format!("a list of {} pieces", single.len()),
                "the text after at most one special token",
            )),
        },
    }
}

/// The fields that decide whether the model can be parsed.
#[derive(Deserialize)]
struct Outline {
    model: OutlineModel,
}

#[derive(Deserialize)]
struct OutlineModel {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<NormalizerField>,
    pre_tokenizer: Option<PreTokenizerField>,
    post_processor: Option<PostProcessorField>,
    model: ModelField,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

#[derive(Deserialize)]
struct ModelField {
    vocab: VocabField,
    merges: Vec<MergeField>,
    dropout: Option<f32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeField {
    Joined(String),
    Pair(String, String),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum NormalizerField {
    #[serde(rename = "NFC")]
    Nfc,
    Sequence {
        normalizers: Vec<NormalizerField>,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum PreTokenizerField {
    Sequence {
        pretokenizers: Vec<PreTokenizerField>,
    },
    Digits {
        individual_digits: bool,
    },
    ByteLevel {
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    },
    Split {
        pattern: SplitPattern,
        behavior: SplitDelimiterBehavior,
        #[serde(default)]
        invert: bool,
    },
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum PostProcessorField {
    ByteLevel,
    Sequence { processors: Vec<PostProcessorField> },
    TemplateProcessing { single: Vec<TemplatePiece> },
}

#[derive(Deserialize)]
enum TemplatePiece {
    Sequence {},
    SpecialToken { id: String },
}

#[derive(Deserialize)]
struct ConfigFile {
    bos_token: Option<TokenField>,
    eos_token: Option<TokenField>,
    add_bos_token: Option<bool>,
    chat_template: Option<TemplateField>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenField {
    Text(String),
    Object { content: String },
}

impl TokenField {
    fn text(self) -> String {
        match self {
            Self::Text(content) | Self::Object { content } => content,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateField {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// The vocabulary as a list: a map would hide a text that occurs twice.
struct VocabField(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for VocabField {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = VocabField;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from token to id")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<VocabField, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(VocabField(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
