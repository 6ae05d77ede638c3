//! Reads Hugging Face `tokenizer.json`.
//!
//! Steps before and after the model are read as the `tokenizers` crate's own types. Vocabulary, merges and added tokens
//! are read here, because the crate hides what occurs twice; they are checked and built like a GGUF's.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde_json::Value;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::normalizers::{NormalizerWrapper, Precompiled};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{
    Decoder, Encoding, NormalizedString, Normalizer, OffsetReferential, OffsetType, PostProcessor,
    PreTokenizedString, PreTokenizer, Token,
};

use super::lexicon::{Search, Spelling, byte_token, check_size};
use super::matcher::Edges;
use super::tokenizer::{Parts, split_merge};
use super::words::{ModelParts, Steps, normalize};
use super::{TextError, TokenKind, Tokenizer, TokenizerConfig, charsmap};
use crate::storage::json_fault;

const FILE: &str = "tokenizer.json";

impl Tokenizer {
    /// A tokenizer from the bytes of a `tokenizer.json` and the fields of its `tokenizer_config.json`.
    ///
    /// # Errors
    /// Not JSON of that form, a model other than BPE and Unigram, a decoder that is neither byte-level nor
    /// SentencePiece's, and every inconsistency in the data.
    pub fn from_json(bytes: &[u8], config: &TokenizerConfig) -> Result<Self, TextError> {
        let outline: Outline = parse(bytes)?;
        let kind = outline.model.kind.as_deref().unwrap_or("BPE");
        match kind {
            "BPE" => Self::from_file(parse::<TokenizerFile<BpeField>>(bytes)?, config),
            "Unigram" => Self::from_file(parse::<TokenizerFile<UnigramField>>(bytes)?, config),
            _ => Err(unsupported("model.type", format!("{kind:?}"), "BPE and Unigram")),
        }
    }

    fn from_file<M: ModelField>(file: TokenizerFile<M>, config: &TokenizerConfig) -> Result<Self, TextError> {
        let steps = steps(file.normalizer, file.pre_tokenizer)?;
        let spelling = spelling(file.decoder, &steps)?;
        let model = file.model.read()?;

        let added = added_tokens(&file.added_tokens)?;
        let (tokens, mut kinds) = tokens_by_id(model.vocab, &added)?;
        if model.byte_fallback {
            let ordinary = kinds.iter_mut().zip(&tokens).filter(|(kind, _)| **kind == TokenKind::Normal);
            ordinary
                .filter(|(_, text)| byte_token(text).is_some())
                .for_each(|(kind, _)| *kind = TokenKind::Byte);
        }
        let unknown = model.unknown.resolve(&tokens)?;
        if let Some(id) = unknown
            && kinds[id as usize] == TokenKind::Normal
        {
            kinds[id as usize] = TokenKind::Unknown;
        }
        let leading = leading_token(file.post_processor, &tokens)?;
        let named = |name, text: Option<&String>| text.map(|text| id_of(name, text, &tokens)).transpose();
        let bos = named("bos", config.bos.as_ref())?.or(leading);
        let eos = named("eos", config.eos.as_ref())?;
        let searches = searches(&file.added_tokens, &steps);
        let add_bos = config.add_bos.unwrap_or(leading.is_some());
        let model = model.parts;
        Self::build(Parts { tokens, kinds, spelling, searches, steps, model, unknown, bos, eos, add_bos })
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, TextError> {
    serde_json::from_slice(bytes).map_err(|error| TextError::Json { file: FILE, reason: json_fault(&error) })
}

fn unsupported(part: &str, found: String, supported: &str) -> TextError {
    TextError::Unsupported { part: format!("{FILE}: {part}"), found, supported: supported.to_owned() }
}

fn id_of(name: &'static str, text: &str, tokens: &[String]) -> Result<u32, TextError> {
    match tokens.iter().position(|token| token == text) {
        Some(id) => Ok(id as u32),
        None => {
            Err(TextError::UnknownSpecialToken { name, found: format!("{text:?}"), vocab_len: tokens.len() })
        }
    }
}

/// A step as the crate reads it.
fn step<T: DeserializeOwned>(part: &str, field: Option<Value>) -> Result<Option<T>, TextError> {
    let read = |field| {
        serde_json::from_value(field)
            .map_err(|error| unsupported(part, error.to_string(), "what the tokenizers library reads"))
    };
    field.filter(|field| !field.is_null()).map(read).transpose()
}

/// A text that no step of a language model fails on.
const TRIAL: &str = " a é\n1";

/// # Errors
/// A step that is not known, fails, or is a damaged table of characters.
fn steps(normalizer: Option<Value>, pre_tokenizer: Option<Value>) -> Result<Steps, TextError> {
    normalizer.as_ref().map_or(Ok(()), check_tables)?;
    let normalizer: Option<NormalizerWrapper> = step("normalizer", normalizer)?;
    if let Some(normalizer) = &normalizer {
        normalizer
            .normalize(&mut NormalizedString::from(TRIAL))
            .map_err(|error| unsupported("normalizer", error.to_string(), "one that takes any text"))?;
    }
    let pre_tokenizer: Option<PreTokenizerWrapper> = step("pre_tokenizer", pre_tokenizer)?;
    if let Some(pre_tokenizer) = &pre_tokenizer {
        pre_tokenizer
            .pre_tokenize(&mut PreTokenizedString::from(TRIAL))
            .map_err(|error| unsupported("pre_tokenizer", error.to_string(), "one that takes any text"))?;
    }
    Ok(Steps { normalizer, pre_tokenizer })
}

/// Checks the tables of characters before the crate reads them: it panics over damaged ones.
fn check_tables(normalizer: &Value) -> Result<(), TextError> {
    let mut waiting = vec![normalizer];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Array(steps) => waiting.extend(steps),
            Value::Object(step) if step.get("type").is_some_and(|kind| kind == "Precompiled") => {
                let encoded = step.get("precompiled_charsmap").and_then(Value::as_str);
                let encoded = encoded.ok_or_else(|| charsmap::damaged("expected a text, found none"))?;
                charsmap::check(&charsmap::decode_base64(encoded)?)?;
                Precompiled::deserialize(value).map_err(|error| charsmap::damaged(&error.to_string()))?;
            }
            Value::Object(step) => waiting.extend(step.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

/// How tokens spell text, by what the decoder makes of two tokens in each spelling; without one, by what the steps make
/// of a text.
fn spelling(decoder: Option<Value>, steps: &Steps) -> Result<Spelling, TextError> {
    let supported = "ByteLevel, or SentencePiece's marks";
    let Some(decoder) = step::<DecoderWrapper>("decoder", decoder)? else {
        return if spells_bytes(steps) {
            Ok(Spelling::ByteLevel)
        } else {
            Err(unsupported("decoder", "missing".into(), supported))
        };
    };
    let decoded = |tokens: [&str; 2]| {
        let tokens = tokens.map(str::to_owned).to_vec();
        decoder.decode_chain(tokens).map(|texts| texts.concat()).unwrap_or_default()
    };
    match decoded(["▁a", "▁b"]).as_str() {
        "a b" => return Ok(Spelling::Marks { space_prefix: true }),
        " a b" => return Ok(Spelling::Marks { space_prefix: false }),
        _ => {}
    }
    let found = decoded(["Ġa", "Ġb"]);
    if found != " a b" {
        return Err(unsupported("decoder", format!("one that makes {found:?} of Ġa and Ġb"), supported));
    }
    if !spells_bytes(steps) {
        let found = "a list without a ByteLevel step, unlike decoder";
        return Err(unsupported("pre_tokenizer", found.into(), "a list that ends with a ByteLevel step"));
    }
    Ok(Spelling::ByteLevel)
}

/// Whether the steps spell a text in the byte-level alphabet.
fn spells_bytes(steps: &Steps) -> bool {
    let mut words = PreTokenizedString::from(normalize(steps.normalizer.as_ref(), "aé"));
    let tried = steps.pre_tokenizer.as_ref().is_none_or(|step| step.pre_tokenize(&mut words).is_ok());
    let words = words.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
    tried && words.into_iter().map(|(word, _, _)| word).collect::<String>().contains("Ã©")
}

/// The model's own part of the file.
struct ReadModel {
    vocab: Vec<(String, u32)>,
    parts: ModelParts,
    byte_fallback: bool,
    unknown: Unknown,
}

enum Unknown {
    None,
    Named(String),
    Id(u32),
}

impl Unknown {
    fn resolve(&self, tokens: &[String]) -> Result<Option<u32>, TextError> {
        match self {
            Self::None => Ok(None),
            Self::Named(text) => id_of("unknown", text, tokens).map(Some),
            Self::Id(id) if (*id as usize) < tokens.len() => Ok(Some(*id)),
            Self::Id(id) => Err(TextError::UnknownSpecialToken {
                name: "unknown",
                found: format!("id {id}"),
                vocab_len: tokens.len(),
            }),
        }
    }
}

trait ModelField {
    fn read(self) -> Result<ReadModel, TextError>;
}

impl ModelField for UnigramField {
    fn read(self) -> Result<ReadModel, TextError> {
        let byte_fallback = self.byte_fallback;
        let (vocab, scores) = (0..).zip(self.vocab).map(|(id, (piece, score))| ((piece, id), score)).unzip();
        let parts = ModelParts::Unigram { scores, byte_fallback };
        let unknown = self.unk_id.map_or(Unknown::None, Unknown::Id);
        Ok(ReadModel { vocab, parts, byte_fallback, unknown })
    }
}

impl ModelField for BpeField {
    fn read(self) -> Result<ReadModel, TextError> {
        let empty = [
            ("model.continuing_subword_prefix", self.continuing_subword_prefix),
            ("model.end_of_word_suffix", self.end_of_word_suffix),
        ];
        for (part, found) in empty {
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                return Err(unsupported(part, format!("{found:?}"), "\"\""));
            }
        }
        if let Some(dropout) = self.dropout.filter(|dropout| *dropout != 0.0) {
            return Err(unsupported("model.dropout", format!("{:?}", dropout.to_string()), "\"0\""));
        }
        let merges = (0..)
            .zip(self.merges)
            .map(|(index, merge)| match merge {
                MergeField::Joined(merge) => split_merge(index, &merge),
                MergeField::Pair(left, right) => Ok((left, right)),
            })
            .collect::<Result<Vec<_>, TextError>>()?;
        let Self { ignore_merges, byte_fallback, fuse_unk: fuse_unknown, .. } = self;
        let parts = ModelParts::Bpe { merges, ignore_merges, byte_fallback, fuse_unknown };
        let unknown = self.unk_token.map_or(Unknown::None, Unknown::Named);
        Ok(ReadModel { vocab: self.vocab.0, parts, byte_fallback, unknown })
    }
}

/// Added tokens by id, with their kinds.
fn added_tokens(added: &[AddedToken]) -> Result<BTreeMap<u32, (&str, TokenKind)>, TextError> {
    let mut kinds = BTreeMap::new();
    for AddedToken { id, content, special, .. } in added {
        let kind = if *special { TokenKind::Control } else { TokenKind::UserDefined };
        if let Some((first, _)) = kinds.insert(*id, (content.as_str(), kind)) {
            return Err(TextError::DuplicateId { id: *id, first: first.to_owned(), second: content.clone() });
        }
    }
    Ok(kinds)
}

/// How added tokens are found in text. One that is sought in normalised text stays as it is where normalising does not
/// change it.
fn searches(added: &[AddedToken], steps: &Steps) -> BTreeMap<u32, Search> {
    let search = |token: &AddedToken| Search {
        edges: Edges { strips_left: token.lstrip, strips_right: token.rstrip, is_word: token.single_word },
        normal_form: (token.normalized.unwrap_or(!token.special) && steps.normalizer.is_some())
            .then(|| normalize(steps.normalizer.as_ref(), &token.content).get().to_owned())
            .filter(|normal| !normal.is_empty()),
    };
    added.iter().map(|token| (token.id, search(token))).collect()
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

/// The token that the post-processor puts before a text, by what it makes of a text of one token.
fn leading_token(field: Option<Value>, tokens: &[String]) -> Result<Option<u32>, TextError> {
    const TEXT: u32 = u32::MAX;
    if let Some(token) = field.as_ref().and_then(undefined_token) {
        let found = format!("a template with {token:?}, which its special_tokens do not have");
        return Err(unsupported("post_processor", found, "special_tokens with every token of the template"));
    }
    let Some(processor) = step::<PostProcessorWrapper>("post_processor", field)? else { return Ok(None) };
    let text = Encoding::from_tokens(vec![Token::new(TEXT, "a".into(), (0, 1))], 0);
    let processed = processor
        .process(text, None, true)
        .map_err(|error| unsupported("post_processor", error.to_string(), "one that takes any text"))?;
    match processed.get_ids() {
        [TEXT] => Ok(None),
        [id, TEXT] if (*id as usize) < tokens.len() => Ok(Some(*id)),
        [id, TEXT] => Err(TextError::UnknownSpecialToken {
            name: "bos",
            found: format!("id {id}"),
            vocab_len: tokens.len(),
        }),
        found => Err(unsupported(
            "post_processor",
            format!("one that makes {} tokens of one", found.len()),
            "one that puts at most one special token before the text",
        )),
    }
}

/// A special token that a template of the post-processor names and does not define. The crate takes it for granted.
fn undefined_token(processor: &Value) -> Option<String> {
    if let Some(steps) = processor["processors"].as_array() {
        return steps.iter().find_map(undefined_token);
    }
    let parts = ["single", "pair"].into_iter().filter_map(|name| processor[name].as_array()).flatten();
    let named = parts.filter_map(|part| part["SpecialToken"]["id"].as_str());
    let mut undefined = named.filter(|token| processor["special_tokens"].get(token).is_none());
    undefined.next().map(str::to_owned)
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
struct TokenizerFile<M> {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    model: M,
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
    normalized: Option<bool>,
}

#[derive(Deserialize)]
struct BpeField {
    vocab: VocabField,
    merges: Vec<MergeField>,
    dropout: Option<f32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    unk_token: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
struct UnigramField {
    vocab: Vec<(String, f64)>,
    unk_id: Option<u32>,
    #[serde(default)]
    byte_fallback: bool,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a merge that is neither a text nor a pair of texts")]
enum MergeField {
    Joined(String),
    Pair(String, String),
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
