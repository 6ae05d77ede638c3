//! How many bytes weights take in each format.

use ygg_kernels::WeightFormat;

/// Elements in one block.
pub(super) const fn block_len(format: WeightFormat) -> usize {
    match format {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 => 1,
        WeightFormat::Q8_0 | WeightFormat::Q4_0 | WeightFormat::Q4_1 => 32,
    }
}

/// Bytes of a row; `None` if `columns` is not a whole number of blocks or the size overflows.
pub(super) const fn row_bytes(format: WeightFormat, columns: usize) -> Option<usize> {
    let block_bytes = match format {
        WeightFormat::F32 => 4,
        WeightFormat::F16 | WeightFormat::BF16 => 2,
        WeightFormat::Q8_0 => 34,
        WeightFormat::Q4_0 => 18,
        WeightFormat::Q4_1 => 20,
    };
    if columns.is_multiple_of(block_len(format)) {
        (columns / block_len(format)).checked_mul(block_bytes)
    } else {
        None
    }
}
