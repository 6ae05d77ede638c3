//! Reads a model from untrusted bytes: the function of the fuzz target `containers` and of its smoke test.

use std::path::Path;

use super::{
    ModelConfig, ModelError, gguf,
    safetensors::{self, FolderBytes, SINGLE},
};

/// Reads a whole model but for its weights out of bytes in memory, as `Model::open` does out of files.
///
/// Bytes that begin with `GGUF` are a GGUF file. Any others are a folder of two files: the text of `config.json`, a
/// zero byte, then `model.safetensors`.
///
/// # Errors
/// [`ModelError`] for whatever is wrong; no input makes it panic.
pub fn check_bytes(bytes: &[u8]) -> Result<ModelConfig, ModelError> {
    if bytes.starts_with(gguf::MAGIC) {
        return Ok(gguf::describe(bytes, "bytes")?.config);
    }
    let split = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (config, weights) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    let parts = safetensors::describe(FolderBytes {
        path: Path::new(""),
        name: "bytes",
        config,
        tokenizer: Vec::new(),
        tokenizer_config: None,
        generation_config: None,
        chat_template: None,
        weight_map: None,
        shards: vec![(SINGLE.to_owned(), weights)],
    })?;
    Ok(parts.config)
}
