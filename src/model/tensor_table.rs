//! Where every tensor of a model lies: the table both containers produce.

use std::{collections::BTreeMap, ops::Range};

use ygg_kernels::WeightFormat;

use super::ModelError;

/// One tensor of a model file. Its bytes, with those of its scales, have exactly the size its shape and format take;
/// floats of 8 and of 4 bits have less, as they are read as BF16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Dimensions, outermost first: a matrix is `[rows, columns]`.
    pub shape: Vec<usize>,
    /// How elements are stored.
    pub format: WeightFormat,
    /// Which of the model's files, in order of name.
    pub file: usize,
    /// Place in that file.
    pub bytes: Range<usize>,
    /// The scales of its blocks, if they do not lie in front of the blocks' codes.
    pub scales: Option<Scales>,
}

/// Scales of a tensor that lie elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scales {
    /// Which of the model's files.
    pub file: usize,
    /// Place in that file.
    pub bytes: Range<usize>,
    /// What they scale.
    pub of: Scaled,
}

/// What scales that lie elsewhere are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaled {
    /// Blocks of MXFP4: a byte for each.
    Mxfp4,
    /// Floats of 8 bits (E4M3), which are read as BF16: a number for each block of as many rows and columns.
    Float8 {
        /// How scales are stored.
        format: WeightFormat,
        /// Rows of a block, at most those of a matrix.
        rows: usize,
        /// Columns of a block.
        columns: usize,
    },
    /// NVFP4: a float of 8 bits for each 16 elements of a row, and an F32 for all.
    Nvfp4 {
        /// Which of the model's files the number for all lies in.
        file: usize,
        /// Where it begins there, bytes.
        start: usize,
        /// Whether scales are divided by it, else multiplied.
        is_divisor: bool,
    },
    /// NVFP4 with its scales in front of the codes of its blocks: an F32 for each matrix, or none.
    Nvfp4InBlocks,
}

/// All tensors by name.
pub type TensorTable = BTreeMap<String, TensorInfo>;

/// Bytes of a tensor of `shape`; the error names the tensor.
pub(super) fn tensor_bytes(name: &str, shape: &[usize], format: WeightFormat) -> Result<usize, ModelError> {
    let what = || format!("tensor `{name}`");
    if shape.contains(&0) {
        return Err(ModelError::invalid(what(), "dimensions above 0", format_args!("{shape:?}")));
    }
    let (columns, outer) = shape.split_last().map_or((1, &[][..]), |(c, outer)| (*c, outer));
    let block = format.block_len();
    if !columns.is_multiple_of(block) {
        let expected = format!("rows of whole {format:?} blocks of {block}");
        return Err(ModelError::invalid(what(), expected, format_args!("{columns} columns")));
    }
    outer
        .iter()
        .try_fold(1usize, |product, n| product.checked_mul(*n))
        .and_then(|rows| format.row_bytes(columns)?.checked_mul(rows))
        .ok_or_else(|| ModelError::invalid(what(), "a size below 2^64 bytes", format_args!("{shape:?}")))
}
