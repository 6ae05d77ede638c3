//! From a model file to a verified graph: `Model::open`.
//!
//! Two containers (`gguf`, `safetensors`) produce the same three things: a [`ModelConfig`], a [`TensorTable`] and a
//! [`VocabularySource`]. A [`Family`] turns configuration and table into a verified `ir::Graph`. Weights stay in the
//! mapped files and are lent by name of the graph's weight. A [`HiddenStateModel`] is a drafter that is no model by
//! itself.
//!
//! Invariant: files are hostile until proven otherwise. Whatever the bytes, opening gives a model or a [`ModelError`]
//! that names key, tensor or field, what was expected and what was found; it never panics, and never reserves memory
//! by a count that was not first compared with the bytes there are.
#![forbid(unsafe_code)]

mod blank;
mod block;
mod check;
mod config;
mod contents;
mod draft_vocabulary;
mod eagle3;
mod error;
mod family;
mod fingerprint;
mod float8;
pub mod gguf;
mod hidden_state;
mod inflate;
mod lent;
mod load_progress;
mod low_bit;
mod nvfp4;
mod open;
mod rope;
pub mod safetensors;
pub mod synthetic;
mod tensor_table;
mod vocabulary;

use block::BlockHead;
pub use block::MarkovTables;
pub use check::check_bytes;
use config::ConfigKeys;
pub use config::ModelConfig;
pub use contents::Contents;
use eagle3::Eagle3;
pub use error::ModelError;
pub use family::Family;
use fingerprint::Identity;
pub use fingerprint::ModelFingerprint;
pub use hidden_state::HiddenStateModel;
use hidden_state::HiddenStateParts;
pub use inflate::InflatedShape;
use lent::{LentWeight, lend, pieces};
pub use load_progress::Watch;
pub use low_bit::{LowBit, draft_formats, in_fewer_bits};
use open::Parts;
pub use open::{Container, Model};
pub use rope::{RopeConfig, RopeScaling};
pub use safetensors::outline_bytes as safetensors_outline_bytes;
use tensor_table::tensor_bytes;
pub use tensor_table::{Scaled, Scales, TensorInfo, TensorTable};
pub use vocabulary::{GgufVocabulary, VocabularySource};

#[cfg(test)]
mod tests;
