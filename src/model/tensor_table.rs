//! Where every tensor of a model lies: the table both containers produce.

use std::{collections::BTreeMap, ops::Range};

use ygg_kernels::WeightFormat;

use super::ModelError;

/// One tensor of a model file. Its bytes, with those of its scales, have exactly the size its shape and format take.
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
    /// File and place of the scales of its blocks, if they do not lie in front of the blocks' codes.
    pub scales: Option<(usize, Range<usize>)>,
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
