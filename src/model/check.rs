//! Reads a model from untrusted bytes: the function of the fuzz target `containers` and of its smoke test.

use std::path::Path;

use ygg_kernels::WeightFormat;

use super::{
    HiddenStateParts, ModelConfig, ModelError, gguf,
    safetensors::{self, FolderBytes, SINGLE},
};
use crate::ir::{Graph, GroupId, Input, KvSpec, Op, WeightId, WeightSpec};

/// Reads a whole model but for its weights out of bytes in memory, as `Model::open` does out of files.
///
/// Bytes that begin with `GGUF` are a GGUF file. Any others are a folder of two files: the text of `config.json`, a
/// zero byte, then `model.safetensors`. A folder of a drafter over hidden rows is read for a verifier that fits it.
///
/// # Errors
/// [`ModelError`] for whatever is wrong; no input makes it panic.
pub fn check_bytes(bytes: &[u8]) -> Result<ModelConfig, ModelError> {
    if gguf::says_hidden_state(bytes) {
        let parts = gguf::describe_hidden_state(bytes, "bytes")?;
        parts.graph(&verifier_for(&parts)?)?;
        return Ok(parts.config);
    }
    if bytes.starts_with(gguf::MAGIC) {
        return Ok(gguf::describe(bytes, "bytes")?.config);
    }
    let split = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (config, weights) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    let path = Path::new("");
    if safetensors::says_hidden_state(path, config)? {
        let shards = vec![(SINGLE.to_owned(), weights)];
        let parts = safetensors::describe_hidden_state(path, "bytes", config, shards)?;
        parts.graph(&verifier_for(&parts)?)?;
        return Ok(parts.config);
    }
    let parts = safetensors::describe(FolderBytes {
        path,
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

/// What a drafter over hidden rows asks of its verifier: an embedding, which is the head too, and layers.
fn verifier_for(parts: &HiddenStateParts) -> Result<Graph, ModelError> {
    const LAYERS: u32 = 12;
    let config = &parts.config;
    let width = parts.layout.target_width().unwrap_or(config.hidden_size);
    let kv = KvSpec { layers: 0, kv_heads: 1, head_dim: 2, ..KvSpec::default() };
    let table = WeightSpec::new("table", config.vocabulary, width, WeightFormat::F32);
    let mut graph = Graph::new("verifier", vec![table], kv);
    let tokens = graph.add(Op::Input(Input::Tokens), &[], None)?;
    let x = graph.add(Op::Embed { weight: WeightId(0) }, &[tokens], None)?;
    let last = GroupId(2 * LAYERS - 1);
    let x = graph.add(Op::Add, &[x, x], Some(last))?;
    let head = Op::Linear { weights: vec![WeightId(0)], biases: Vec::new(), norm: None, residual: false };
    let logits = graph.add(head, &[x], None)?;
    graph.set_logits(logits);
    Ok(graph)
}
