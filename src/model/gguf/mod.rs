//! GGUF files, versions 2 and 3, little-endian: header, metadata, tensor table.
//!
//! [`parse`] trusts nothing: every count is checked against the bytes left before anything is reserved, every tensor
//! lies inside the file, on its alignment, apart from every other. What the numbers mean is read in `describe`; a model
//! may be in several files (`split`). The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod describe;
mod eagle3;
mod encode;
mod file;
mod nvfp4;
mod reader;
mod rope;
mod split;
mod tensor_type;
mod value;
mod write;

pub(super) use describe::{describe, open};
pub(super) use eagle3::{describe_hidden_state, open_hidden_state, says_hidden_state};
pub use encode::{DATA_ALIGNMENT, TensorRecord, encode_header};
pub(super) use file::MAGIC;
pub use file::{GgufFile, GgufOutline, outline, parse};
pub use split::part_names;
pub use value::{Array, Value};
pub(super) use write::{NewTensor, write_file, write_outline};

#[cfg(test)]
mod tests;
