//! Reads a parsed GGUF file: configuration, vocabulary, chat template, graph.

use super::{
    GgufFile,
    file::parse,
    nvfp4,
    rope::{ROPE_TENSORS, rope},
    split,
};
use crate::{
    model::{
        ConfigKeys, Family, GgufVocabulary, HiddenStateParts, Identity, ModelConfig, ModelError, Parts,
        TensorInfo, VocabularySource,
        config::{Fields, Own, Turned, equal, required},
        family::Source,
    },
    storage::MappedFile,
};
use std::{cell::RefCell, path::Path};

/// Opens the model that a GGUF file is, or is a part of: everything but the weights, and the files that hold them.
pub(in crate::model) fn open(path: &Path, map: MappedFile) -> Result<(Parts, Vec<MappedFile>), ModelError> {
    let opened = split::all_of(path, map)?;
    let maps: Vec<MappedFile> = opened.iter().map(|part| part.map.clone()).collect();
    let bytes: Vec<&[u8]> = maps.iter().map(MappedFile::bytes).collect();
    let files = opened.into_iter().map(|part| part.file).collect();
    let parts =
        describe_files(files, &bytes, &split::model_name(path)).map_err(|error| error.in_file(path))?;
    Ok((parts, maps))
}

/// Everything but the weights of a model in a GGUF file. `file_name` is the model's name if the file gives none.
pub(in crate::model) fn describe(bytes: &[u8], file_name: &str) -> Result<Parts, ModelError> {
    describe_files(vec![parse(bytes)?], &[bytes], file_name)
}

/// As [`describe`], of a model in several files, whose bytes are in the same order. The first has the metadata.
fn describe_files(files: Vec<GgufFile>, bytes: &[&[u8]], file_name: &str) -> Result<Parts, ModelError> {
    let identity = files
        .iter()
        .zip(bytes)
        .fold(Identity::default(), |identity, (file, bytes)| identity.with(&bytes[..file.header_bytes]));
    let mut file = joined(files);
    nvfp4::scale(&mut file.tensors)?;
    let vocabulary = vocabulary(&file)?;
    let config = config(&file, bytes, file_name, &vocabulary)?;
    let read = RefCell::new(ROPE_TENSORS.map(str::to_owned).to_vec());
    let source = Source { config: &config, fields: &file, tensors: &file.tensors, bytes, read: &read };
    let (graph, further) = config.family.graph(&source)?;
    let further = further.map(|f| HiddenStateParts::further(f, &config, &file.tensors, &identity));
    let mut stop_tokens: Vec<u32> = vocabulary.eos.into_iter().collect();
    if let Some(end_of_turn) = token_id(&file, "tokenizer.ggml.eot_token_id", config.vocabulary)?
        && !stop_tokens.contains(&end_of_turn)
    {
        stop_tokens.push(end_of_turn);
    }
    let ends_call = end_of_call(&vocabulary.tokens, &vocabulary.kinds);
    stop_tokens.extend(ends_call.filter(|id| !stop_tokens.contains(id)));
    Ok(Parts {
        config,
        graph,
        further,
        vocabulary: VocabularySource::Gguf(vocabulary),
        chat_template: file.text("tokenizer.chat_template")?.map(str::to_owned),
        stop_tokens,
        identity,
        read_tensors: read.into_inner(),
        tensors: file.tensors,
    })
}

/// The token that ends a call of a tool in answers of gpt-oss: files name one that ends an answer, and this is another.
/// No other model has a control token of that name.
fn end_of_call(tokens: &[String], kinds: &[u32]) -> Option<u32> {
    let is_it = |(token, kind): (&String, &u32)| token == "<|call|>" && *kind == GgufVocabulary::CONTROL;
    tokens.iter().zip(kinds).position(is_it).and_then(|id| u32::try_from(id).ok())
}

/// The first file with the tensors of all, which are of different names.
fn joined(files: Vec<GgufFile>) -> GgufFile {
    let mut files = files.into_iter();
    let mut first = files.next().expect("a model has a file");
    for (i, file) in (1..).zip(files) {
        first
            .tensors
            .extend(file.tensors.into_iter().map(|(name, info)| (name, TensorInfo { file: i, ..info })));
    }
    first
}

pub(super) fn keys(prefix: &str) -> ConfigKeys {
    let key = |suffix: &str| format!("{prefix}.{suffix}");
    ConfigKeys {
        layers: key("block_count"),
        hidden_size: key("embedding_length"),
        feed_forward: key("feed_forward_length"),
        heads: key("attention.head_count"),
        kv_heads: key("attention.head_count_kv"),
        head_dim: key("attention.key_length"),
        vocabulary: "tokenizer.ggml.tokens".to_owned(),
        context: key("context_length"),
        rms_eps: key("attention.layer_norm_rms_epsilon"),
        rope_base: key("rope.freq_base"),
        rope_scaling: key("rope.scaling.type"),
        rotated: key("rope.dimension_count"),
    }
}

fn config(
    file: &GgufFile,
    bytes: &[&[u8]],
    file_name: &str,
    vocabulary: &GgufVocabulary,
) -> Result<ModelConfig, ModelError> {
    let architecture = "general.architecture";
    let architecture = required(file.text(architecture)?, architecture, "the model's architecture")?;
    numbers(file, bytes, file_name, vocabulary, Family::of_architecture(architecture)?)
}

/// The configuration of a model of a family.
pub(super) fn numbers(
    file: &GgufFile,
    bytes: &[&[u8]],
    file_name: &str,
    vocabulary: &GgufVocabulary,
    family: &'static Family,
) -> Result<ModelConfig, ModelError> {
    let keys = keys(family.name);
    let parts = "split.count";
    if let Some(found) = file.count(parts)?.filter(|n| *n > bytes.len()) {
        let supported = "a part in one folder with all others; open it by its path";
        return Err(ModelError::unsupported(format_args!("key `{parts}`"), found, supported));
    }
    let size = format!("{}.vocab_size", family.name);
    let tokens = match vocabulary.model.as_str() {
        NO_VOCABULARY => {
            required(file.count(&size)?, &size, "the number of tokens, which no tokenizer gives")?
        }
        _ => vocabulary.tokens.len(),
    };
    equal(&size, file.count(&size)?, tokens, "the number of tokens")?;
    let own = Own {
        name: file.text("general.name")?.filter(|name| !name.is_empty()).unwrap_or(file_name).to_owned(),
        vocabulary: tokens,
        rope: rope(file, bytes, family, &keys)?,
        turned: match file.count(&keys.rotated)? {
            Some(elements) => Turned::Elements(elements),
            None => Turned::Share(1.0),
        },
        tied_head: !file.tensors.contains_key("output.weight"),
    };
    ModelConfig::read(family, file, &keys, own)
}

/// What a GGUF file calls its tokenizer if it has none.
const NO_VOCABULARY: &str = "no_vocab";

fn token_id(file: &GgufFile, key: &str, tokens: usize) -> Result<Option<u32>, ModelError> {
    match file.id(key)? {
        Some(id) if id as usize >= tokens => {
            let expected = format!("a token id below {tokens}");
            Err(ModelError::invalid(format_args!("key `{key}`"), expected, id))
        }
        id => Ok(id),
    }
}

pub(super) fn vocabulary(file: &GgufFile) -> Result<GgufVocabulary, ModelError> {
    let text = |key: &str| Ok::<_, ModelError>(file.text(key)?.map(str::to_owned));
    let (model_key, tokens_key, kinds_key) =
        ("tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type");
    let model = required(text(model_key)?, model_key, "the kind of tokenizer")?;
    let tokens = match model.as_str() {
        NO_VOCABULARY => Vec::new(),
        _ => required(file.strings(tokens_key)?, tokens_key, "the text of every token")?.to_vec(),
    };
    let kinds = match file.small_counts(kinds_key)? {
        Some(kinds) if kinds.len() == tokens.len() => kinds,
        Some(kinds) => {
            let expected = format!("one kind for each of {} tokens", tokens.len());
            return Err(ModelError::invalid(format_args!("key `{kinds_key}`"), expected, kinds.len()));
        }
        None => vec![GgufVocabulary::NORMAL; tokens.len()],
    };
    // Without a tokenizer no id means anything here.
    let id = |key: &str| if tokens.is_empty() { Ok(None) } else { token_id(file, key, tokens.len()) };
    Ok(GgufVocabulary {
        model,
        pre: text("tokenizer.ggml.pre")?.unwrap_or_default(),
        kinds,
        merges: file.strings("tokenizer.ggml.merges")?.unwrap_or_default().to_vec(),
        bos: id("tokenizer.ggml.bos_token_id")?,
        eos: id("tokenizer.ggml.eos_token_id")?,
        unknown: id("tokenizer.ggml.unknown_token_id")?,
        padding: id("tokenizer.ggml.padding_token_id")?,
        add_bos: file.flag("tokenizer.ggml.add_bos_token")?,
        scores: file.floats("tokenizer.ggml.scores")?.unwrap_or_default().to_vec(),
        add_space_prefix: file.flag("tokenizer.ggml.add_space_prefix")?,
        removes_extra_spaces: file.flag("tokenizer.ggml.remove_extra_whitespaces")?,
        character_table: file.bytes("tokenizer.ggml.precompiled_charsmap")?,
        tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_an_answer() {
        let tokens = ["a", "<|call|>"].map(str::to_owned);
        assert_eq!(end_of_call(&tokens, &[GgufVocabulary::NORMAL, GgufVocabulary::CONTROL]), Some(1));
        assert_eq!(end_of_call(&tokens, &[GgufVocabulary::NORMAL; 2]), None);
        assert_eq!(end_of_call(&[], &[]), None);
    }
}
