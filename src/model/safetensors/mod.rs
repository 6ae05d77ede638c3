//! Hugging Face folders: `config.json`, weights in one or several safetensors files, `tokenizer.json` and friends.
//!
//! `container` reads one safetensors file, `mxfp4`, `nvfp4` and `float8` join matrices of which files hold codes
//! and scales, `config_json` turns JSON into a `ModelConfig`, `folder` finds and maps the files, `describe` puts them
//! together. As for GGUF, nothing in the files is trusted.

mod block_json;
mod config_json;
mod container;
mod describe;
mod eagle3_json;
mod float8;
mod folder;
mod mxfp4;
mod nvfp4;
mod rope_json;

pub use container::{Octets, SafetensorsFile, outline_bytes, parse};
pub(super) use describe::{FolderBytes, describe, describe_hidden_state, says_hidden_state};
pub(super) use folder::{INDEX, SINGLE, open, open_hidden_state};

#[cfg(test)]
mod tests;
