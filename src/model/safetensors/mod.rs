//! Hugging Face folders: `config.json`, weights in one or several safetensors files, `tokenizer.json` and friends.
//!
//! `container` reads one safetensors file, `config_json` turns JSON into a `ModelConfig`, `folder` finds and maps the
//! files, `describe` puts them together. As for GGUF, nothing in the files is trusted.

mod block_json;
mod config_json;
mod container;
mod describe;
mod eagle3_json;
mod folder;
mod rope_json;

pub use container::{SafetensorsFile, parse};
pub(super) use describe::{FolderBytes, describe, describe_hidden_state, says_hidden_state};
pub(super) use folder::{INDEX, SINGLE, open, open_hidden_state};

#[cfg(test)]
mod tests;
