//! Finds and maps the files of a Hugging Face folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Component, Path},
};

use serde::Deserialize;

use super::{
    container::UniqueMap,
    describe::{FolderBytes, describe, describe_hidden_state, says_hidden_state},
};
use crate::{
    model::{HiddenStateParts, ModelError, Parts},
    storage::{MappedFile, json_fault},
};

/// Weights in one file.
pub(in crate::model) const SINGLE: &str = "model.safetensors";
/// Weights in shards: which tensor is in which.
pub(in crate::model) const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
struct Index {
    weight_map: UniqueMap<String>,
}

/// Opens the folder: everything but the weights, and the files that hold them, by [`TensorInfo::file`].
///
/// [`TensorInfo::file`]: crate::model::TensorInfo::file
pub(in crate::model) fn open(path: &Path) -> Result<(Parts, Vec<MappedFile>), ModelError> {
    let Some(config) = read_optional(path, "config.json")? else {
        let found = "a folder without config.json".to_owned();
        return Err(ModelError::NotAModel { path: path.to_owned(), found });
    };
    let Some(tokenizer) = read_optional(path, "tokenizer.json")? else {
        let found = "a folder without tokenizer.json".to_owned();
        return Err(ModelError::NotAModel { path: path.to_owned(), found });
    };
    let (names, weight_map) = weight_files(path)?;
    let files = names.iter().map(|name| MappedFile::open(&path.join(name))).collect::<Result<Vec<_>, _>>()?;
    let chat_template = read_optional(path, "chat_template.jinja")?.map(String::from_utf8).transpose();
    let folder_name = fs::canonicalize(path).ok();
    let folder_name = folder_name.as_deref().unwrap_or(path).file_name();
    let parts = describe(FolderBytes {
        path,
        name: &folder_name.unwrap_or_default().to_string_lossy(),
        config: &config,
        tokenizer,
        tokenizer_config: read_optional(path, "tokenizer_config.json")?,
        generation_config: read_optional(path, "generation_config.json")?,
        chat_template: chat_template.map_err(|e| {
            let error = ModelError::invalid("chat template", "UTF-8", e);
            error.in_file(&path.join("chat_template.jinja"))
        })?,
        weight_map,
        shards: names.into_iter().zip(files.iter().map(MappedFile::bytes)).collect(),
    })?;
    Ok((parts, files))
}

/// Opens the folder of a hidden-state drafter or of an EAGLE-3 head, which has `config.json` and weights only; `None`
/// if there is none of either or the configuration is another model's.
pub(in crate::model) fn open_hidden_state(
    path: &Path,
) -> Result<Option<(HiddenStateParts, Vec<MappedFile>)>, ModelError> {
    if !path.is_dir() {
        return Ok(None);
    }
    let Some(config) = read_optional(path, "config.json")? else { return Ok(None) };
    if !says_hidden_state(path, &config)? {
        return Ok(None);
    }
    let is_there = |name: &str| path.join(name).exists();
    if is_there("pytorch_model.bin") && !is_there(SINGLE) && !is_there(INDEX) {
        let found = format!(
            "weights in pytorch_model.bin, a format that can run code: save them as {SINGLE}, in Python by \
             `safetensors.torch.save_file(torch.load(\"pytorch_model.bin\", weights_only=True), \"{SINGLE}\")`"
        );
        return Err(ModelError::NotAModel { path: path.to_owned(), found });
    }
    let (names, _) = weight_files(path)?;
    let files = names.iter().map(|name| MappedFile::open(&path.join(name))).collect::<Result<Vec<_>, _>>()?;
    let folder_name = fs::canonicalize(path).ok();
    let folder_name = folder_name.as_deref().unwrap_or(path).file_name();
    let name = folder_name.unwrap_or_default().to_string_lossy();
    let shards = names.into_iter().zip(files.iter().map(MappedFile::bytes)).collect();
    let parts = describe_hidden_state(path, &name, &config, shards)?;
    Ok(Some((parts, files)))
}

fn read_optional(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, ModelError> {
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ModelError::Read { path, source }),
    }
}

type WeightMap = BTreeMap<String, String>;

fn weight_files(folder: &Path) -> Result<(Vec<String>, Option<WeightMap>), ModelError> {
    if folder.join(SINGLE).exists() {
        return Ok((vec![SINGLE.to_owned()], None));
    }
    let Some(index) = read_optional(folder, INDEX)? else {
        let found = format!("a folder with neither {SINGLE} nor {INDEX}");
        return Err(ModelError::NotAModel { path: folder.to_owned(), found });
    };
    let map = weight_map(&index).map_err(|e| e.in_file(&folder.join(INDEX)))?;
    let names: BTreeSet<String> = map.values().cloned().collect();
    Ok((names.into_iter().collect(), Some(map)))
}

/// The `weight_map` of an index, whose paths must stay inside the folder.
pub(super) fn weight_map(index: &[u8]) -> Result<WeightMap, ModelError> {
    let index: Index = serde_json::from_slice(index)
        .map_err(|e| ModelError::invalid("index", "JSON with `weight_map`", json_fault(&e)))?;
    let UniqueMap(map) = index.weight_map;
    if map.is_empty() {
        return Err(ModelError::invalid("key `weight_map`", "at least one tensor", "none"));
    }
    for (tensor, file) in &map {
        let inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
        if file.is_empty() || !inside {
            let expected = "the name of a file inside the folder";
            let what = format!("shard of tensor `{tensor}` in `weight_map`");
            return Err(ModelError::invalid(what, expected, format_args!("{file:?}")));
        }
    }
    Ok(map)
}
