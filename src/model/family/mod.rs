//! Model families: each builds the graph of its kind out of a checked configuration and a tensor table.
//!
//! A hidden-state drafter is no family: its graph stands on another model's.
//!
//! To add one: a file here, an arm in [`graph`], a variant of [`Family`], the containers' names for it, a golden.

mod hidden_state;
mod llama;

pub(super) use hidden_state::{EH_PROJ, HiddenStateGraph};

use super::{Family, ModelConfig, ModelError, TensorTable};
use crate::ir::{Graph, verify};

/// Which container's custom of naming tensors and pairing rotary elements a table follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// llama.cpp's converters.
    Gguf,
    /// Hugging Face transformers.
    HuggingFace,
}

/// The verified graph of a model. Its weights carry the names of their tensors in the table.
pub(super) fn graph(config: &ModelConfig, names: Names, tensors: &TensorTable) -> Result<Graph, ModelError> {
    let graph = match config.family {
        Family::Llama => llama::graph(config, names, tensors)?,
    };
    verify::verify(&graph)?;
    Ok(graph)
}
