//! Reads the files of a Hugging Face folder: configuration, tokenizer, chat template, graph.

use std::{cell::RefCell, collections::BTreeMap, path::Path};

use super::{
    block_json::{block_config, is_block},
    config_json::{Object, chat_template, config, hidden_state_config, is_hidden_state},
    container::{self, Integers, Octets},
    eagle3_json::{MAPS, eagle3_config, is_eagle3},
    float8, mxfp4, nvfp4,
};
use crate::model::{
    HiddenStateParts, Identity, ModelError, Parts, TensorInfo, TensorTable, VocabularySource,
    draft_vocabulary::DraftVocabulary, family::Source, hidden_state::Layout,
};

/// The bytes of a folder's files, wherever they are.
pub(in crate::model) struct FolderBytes<'a> {
    /// The folder; errors name files in it.
    pub(in crate::model) path: &'a Path,
    /// The model's name.
    pub(in crate::model) name: &'a str,
    /// `config.json`.
    pub(in crate::model) config: &'a [u8],
    /// `tokenizer.json`.
    pub(in crate::model) tokenizer: Vec<u8>,
    /// `tokenizer_config.json`.
    pub(in crate::model) tokenizer_config: Option<Vec<u8>>,
    /// `generation_config.json`.
    pub(in crate::model) generation_config: Option<Vec<u8>>,
    /// `chat_template.jinja`.
    pub(in crate::model) chat_template: Option<String>,
    /// Which shard holds which tensor, if an index says so.
    pub(in crate::model) weight_map: Option<BTreeMap<String, String>>,
    /// Safetensors files by name, in order of name.
    pub(in crate::model) shards: Vec<(String, &'a [u8])>,
}

/// Everything but the weights of a model in a folder.
pub(in crate::model) fn describe(folder: FolderBytes<'_>) -> Result<Parts, ModelError> {
    let in_file = |name: &str| {
        let path = folder.path.join(name);
        move |error: ModelError| error.in_file(&path)
    };
    let identity = Identity::default().with(folder.config).with(&folder.tokenizer);
    let json = Object::parse(folder.config).map_err(in_file("config.json"))?.of_language();
    let config = config(&json, folder.name).map_err(in_file("config.json"))?;
    let FolderTensors { tensors, shards, identity, .. } =
        tensors_of(folder.path, &folder.shards, &[], identity)?;
    for (tensor, shard) in folder.weight_map.iter().flatten() {
        let found = shards.get(tensor).map(|index| folder.shards[*index].0.as_str());
        if found != Some(shard.as_str()) {
            let found = found.unwrap_or("no shard");
            let error =
                ModelError::invalid(format_args!("tensor `{tensor}`"), format_args!("it in {shard}"), found);
            return Err(error.in_file(&folder.path.join(super::INDEX)));
        }
    }

    let bytes: Vec<&[u8]> = folder.shards.iter().map(|(_, bytes)| *bytes).collect();
    let read = RefCell::default();
    let source = Source { config: &config, fields: &json, tensors: &tensors, bytes: &bytes, read: &read };
    let (graph, further) = config.family.graph(&source).map_err(|e| e.in_file(folder.path))?;
    let further = further.map(|f| HiddenStateParts::further(f, &config, &tensors, &identity));
    let side_file = |bytes: &Option<Vec<u8>>, name: &str| {
        bytes.as_deref().map(Object::parse).transpose().map_err(in_file(name))
    };
    let generation = side_file(&folder.generation_config, "generation_config.json")?;
    let tokenizer_config = side_file(&folder.tokenizer_config, "tokenizer_config.json")?;
    let eos =
        |json: &Object, file: &str| json.token_ids("eos_token_id", config.vocabulary).map_err(in_file(file));
    let stop_tokens = match generation {
        Some(generation) => eos(&generation, "generation_config.json")?,
        None => None,
    };
    let stop_tokens = match stop_tokens {
        Some(ids) => ids,
        None => eos(&json, "config.json")?.unwrap_or_default(),
    };
    let template = match (&folder.chat_template, &tokenizer_config) {
        (Some(template), _) => Some(template.clone()),
        (None, Some(json)) => chat_template(json).map_err(in_file("tokenizer_config.json"))?,
        (None, None) => None,
    };
    Ok(Parts {
        graph,
        further,
        vocabulary: VocabularySource::Json { tokenizer: folder.tokenizer, config: folder.tokenizer_config },
        chat_template: template,
        stop_tokens,
        identity,
        read_tensors: read.into_inner(),
        tensors,
        config,
    })
}

/// Whether a folder's `config.json` is a hidden-state drafter's, a block drafter's or an EAGLE-3 head's.
pub(in crate::model) fn says_hidden_state(path: &Path, config: &[u8]) -> Result<bool, ModelError> {
    let says = |json: Object| Ok(is_hidden_state(&json)? || is_block(&json)? || is_eagle3(&json)?);
    Object::parse(config).and_then(says).map_err(|error| error.in_file(&path.join("config.json")))
}

/// Everything but the weights of a drafter over hidden rows in a folder.
pub(in crate::model) fn describe_hidden_state(
    path: &Path,
    name: &str,
    config: &[u8],
    shards: Vec<(String, &[u8])>,
) -> Result<HiddenStateParts, ModelError> {
    let in_config = |error: ModelError| error.in_file(&path.join("config.json"));
    let json = Object::parse(config).map_err(in_config)?;
    let is_own = is_hidden_state(&json).map_err(in_config)?;
    let integers: &[&str] = if is_own { &[] } else { &MAPS };
    let identity = Identity::default().with(config);
    let FolderTensors { tensors, mut maps, identity, .. } = tensors_of(path, &shards, integers, identity)?;
    if is_own {
        let (config, verifier) = hidden_state_config(&json, name).map_err(in_config)?;
        return Ok(HiddenStateParts { config, verifier, layout: Layout::HiddenState, identity, tensors });
    }
    let [d2t, t2d] = MAPS.map(|map| maps.remove(map));
    let bytes: Vec<u8> = d2t.iter().flatten().flat_map(|offset| offset.to_le_bytes()).collect();
    let identity = identity.with(&bytes);
    let map = |own: &mut DraftVocabulary, vocabulary| {
        own.map(vocabulary, d2t, t2d).map_err(|error| error.in_file(path))
    };
    if is_block(&json).map_err(in_config)? {
        let (config, verifier, mut head) = block_config(&json, name).map_err(in_config)?;
        map(&mut head.vocabulary, config.vocabulary)?;
        return Ok(HiddenStateParts { config, verifier, layout: Layout::Block(head), identity, tensors });
    }
    let (config, verifier, mut head) = eagle3_config(&json, name, &tensors).map_err(in_config)?;
    map(&mut head.vocabulary, config.vocabulary)?;
    Ok(HiddenStateParts { config, verifier, layout: Layout::Eagle3(head), identity, tensors })
}

/// What the shards of a folder hold.
struct FolderTensors {
    tensors: TensorTable,
    /// Tensors of integers.
    maps: Integers,
    /// The number of the shard that each tensor is in, by its name in the file.
    shards: BTreeMap<String, usize>,
    /// With the headers of all.
    identity: Identity,
}

/// The tensors of all shards.
fn tensors_of(
    path: &Path,
    shards: &[(String, &[u8])],
    integers: &[&str],
    mut identity: Identity,
) -> Result<FolderTensors, ModelError> {
    let (mut tensors, mut maps) = (TensorTable::new(), Integers::new());
    let (mut octets, mut floats8) = (BTreeMap::new(), BTreeMap::new());
    let mut places = BTreeMap::<String, usize>::new();
    for (index, (name, bytes)) in shards.iter().enumerate() {
        let shard = container::parse_beside(bytes, integers);
        let (shard, read) = shard.map_err(|error| error.in_file(&path.join(name)))?;
        maps.extend(read);
        identity = identity.with(&bytes[..shard.header_bytes]);
        for tensor in shard.tensors.keys().chain(shard.octets.keys()).chain(shard.floats8.keys()) {
            if let Some(other) = places.insert(tensor.clone(), index) {
                let first = &shards[other].0;
                let found = format!("one in {first} and one in {name}");
                let error = ModelError::invalid(format_args!("tensor `{tensor}`"), "one tensor", found);
                return Err(error.in_file(path));
            }
        }
        let in_shard = |(tensor, info)| (tensor, TensorInfo { file: index, ..info });
        tensors.extend(shard.tensors.into_iter().map(in_shard));
        let in_shard = |(tensor, info)| (tensor, Octets { file: index, ..info });
        octets.extend(shard.octets.into_iter().map(in_shard));
        floats8.extend(shard.floats8.into_iter().map(in_shard));
    }
    let joined = nvfp4::join(&mut octets, &mut floats8, &mut tensors);
    joined.map_err(|error| error.in_file(path))?;
    mxfp4::join(octets, &mut tensors).map_err(|error| error.in_file(path))?;
    float8::join(floats8, &mut tensors).map_err(|error| error.in_file(path))?;
    Ok(FolderTensors { tensors, maps, shards: places, identity })
}
