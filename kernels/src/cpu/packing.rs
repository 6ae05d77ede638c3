//! Weights laid out for vector kernels: tiles of 16 outputs, inside a tile blocks of inputs.
//!
//! Blocks of codes are described at [`codes`]. Those of dense formats have 32 inputs; for outputs `n` of the tile and
//! inputs `k` of the block they are `[k/2][n][k%2]` of bf16, and `[k][n]` of f16 and f32. The last tile and the last
//! dense block are padded with zeros, which add nothing.

mod codes;
mod tiles;

use super::memory::Storage;
use crate::{
    WeightFormat,
    format::{Block, Matrix, bf16_to_f32, f16_to_f32},
};
use std::fmt;

pub(super) use codes::{CodeLayout, PART};
pub use tiles::{Packing, Piece, Target};

/// Outputs in a tile: an AVX-512 vector of results, or the columns of an AMX tile.
pub const TILE: usize = 16;
/// Inputs in a dense block: in bf16 a row of an AMX tile, and the inputs that share a scale in formats of blocks of 32.
pub(super) const BLOCK: usize = 32;

/// Names the layouts of this version: others' bytes mean something else. A hash of the sources that write them, so that
/// no change of them goes unnoticed.
pub const PACKED_LAYOUT: &str = env!("YGG_PACKED_LAYOUT");

/// A weight matrix, or several that share their input, packed once at load.
pub struct PackedLinear {
    format: WeightFormat,
    gated: bool,
    rows: usize,
    columns: usize,
    storage: Storage,
}

impl PackedLinear {
    /// One matrix, or several stacked by rows (fused q|k|v): outputs follow each other in the order given.
    ///
    /// # Errors
    /// If there is no part, or the parts differ in format or columns.
    pub fn stack(parts: &[Matrix<'_>]) -> Result<Self, PackError> {
        Ok(Packing::stack(parts)?.on_one_thread())
    }

    /// Gate and up projections, their tiles in turn, for `linear_gated`.
    ///
    /// # Errors
    /// If the two differ in format or shape.
    pub fn gated(gate: &Matrix<'_>, up: &Matrix<'_>) -> Result<Self, PackError> {
        Ok(Packing::gated(gate, up)?.on_one_thread())
    }

    /// Format of the codes.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Whether this is a gate and up pair.
    pub fn is_gated(&self) -> bool {
        self.gated
    }

    /// Outputs, `N` (of the gate, for a pair).
    pub fn outputs(&self) -> usize {
        self.rows
    }

    /// Inputs, `K`.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Tiles of work: tile `t` gives outputs `16 t .. min(16 t + 16, N)`.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    /// Bytes that products read, in memory of its own or lent.
    pub fn resident_bytes(&self) -> usize {
        self.storage.as_slice().len()
    }

    /// All of it, as it lies in memory.
    pub fn bytes(&self) -> &[u8] {
        self.storage.as_slice()
    }

    /// Packed blocks of a tile.
    pub(super) fn blocks(&self) -> usize {
        self.columns.div_ceil(block_columns(self.format))
    }

    /// Bytes of a stored tile.
    pub(super) fn tile_bytes(&self) -> usize {
        tile_bytes(self.format, self.columns)
    }

    /// Stored tile `t`; a gated pair stores gate tile `t` at `2 t` and up tile `t` at `2 t + 1`.
    pub(super) fn tile(&self, t: usize) -> &[u8] {
        let bytes = self.tile_bytes();
        &self.storage.as_slice()[t * bytes..][..bytes]
    }

    /// Writes the f32 values of output row `n`, equal to [`WeightFormat::dequantise_row`] bit for bit.
    ///
    /// # Panics
    /// If there is no such row, `out` has not `K` elements, or this is a gated pair.
    pub fn dequantise_row(&self, n: usize, out: &mut [f32]) {
        assert!(!self.gated, "a gated pair has no single rows");
        assert!(n < self.rows && out.len() == self.columns, "row {n} of [{}, {}]", self.rows, self.columns);
        let (tile, lane) = (self.tile(n / TILE), n % TILE);
        let blocks = tile.chunks_exact(block_bytes(self.format));
        let (mut buffer, mut values) = (Block::EMPTY, [[0.0; TILE]; BLOCK]);
        for (block, out) in blocks.zip(out.chunks_mut(block_columns(self.format))) {
            match self.format.coding() {
                Some(coding) => {
                    codes::read(coding, block, lane, &mut buffer);
                    coding.values(&buffer, out);
                }
                None => {
                    dense_block(self.format, block, &mut values);
                    for (out, values) in out.iter_mut().zip(&values) {
                        *out = values[lane];
                    }
                }
            }
        }
    }

    /// How the weights lie, for people.
    pub fn layout_name(format: WeightFormat) -> String {
        format.coding().map_or_else(|| format!("{format} values"), codes::describe)
    }
}

impl fmt::Debug for PackedLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gated = if self.gated { ", gated" } else { "" };
        write!(f, "PackedLinear({} [{}, {}]{gated})", self.format, self.rows, self.columns)
    }
}

/// Bytes of a matrix `[rows, columns]` when it is packed; a gated pair takes twice those of its gate.
pub fn packed_bytes(format: WeightFormat, rows: usize, columns: usize) -> usize {
    rows.div_ceil(TILE) * tile_bytes(format, columns)
}

fn tile_bytes(format: WeightFormat, columns: usize) -> usize {
    columns.div_ceil(block_columns(format)) * block_bytes(format)
}

/// Inputs of a packed block.
pub(super) const fn block_columns(format: WeightFormat) -> usize {
    match format.coding() {
        Some(coding) => CodeLayout::of(coding).inputs(),
        None => BLOCK,
    }
}

/// Bytes of a packed block: 16 outputs by [`block_columns`] inputs.
pub(super) const fn block_bytes(format: WeightFormat) -> usize {
    match format.coding() {
        Some(coding) => CodeLayout::of(coding).bytes,
        None => BLOCK * TILE * format.block_bytes(),
    }
}

/// Index of element `(n, k)` in `[k/2][n][k%2]`.
pub(super) const fn pair_at(n: usize, k: usize) -> usize {
    k / 2 * 2 * TILE + 2 * n + k % 2
}

/// Values of a dense block, `[k][n]`.
pub(super) fn dense_block(format: WeightFormat, block: &[u8], values: &mut [[f32; TILE]; BLOCK]) {
    let half = |at: &[u8]| u16::from_le_bytes([at[0], at[1]]);
    match format {
        // Two inputs of an output lie together.
        WeightFormat::BF16 => {
            let (pairs, _) = values.as_chunks_mut::<2>();
            for ([first, second], block) in pairs.iter_mut().zip(block.chunks_exact(4 * TILE)) {
                for ((first, second), at) in first.iter_mut().zip(second).zip(block.chunks_exact(4)) {
                    (*first, *second) = (bf16_to_f32(half(at)), bf16_to_f32(half(&at[2..])));
                }
            }
        }
        WeightFormat::F16 => {
            let values = values.as_flattened_mut().iter_mut();
            values.zip(block.chunks_exact(2)).for_each(|(value, at)| *value = f16_to_f32(half(at)));
        }
        _ => {
            let values = values.as_flattened_mut().iter_mut();
            values.zip(block.as_chunks::<4>().0).for_each(|(value, at)| *value = f32::from_le_bytes(*at));
        }
    }
}

/// Why matrices cannot be packed together: they should not have been fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// Nothing to pack.
    #[error("no matrix to pack; expected at least one")]
    NoParts,
    /// Formats differ.
    #[error("cannot pack {first} and {other} weights together; keep these linears apart")]
    MixedFormats {
        /// Format of the first part.
        first: WeightFormat,
        /// Another format found.
        other: WeightFormat,
    },
    /// Inputs differ.
    #[error("cannot pack weights of {first} and {other} columns together; they do not share an input")]
    MixedColumns {
        /// Columns of the first part.
        first: usize,
        /// Other columns found.
        other: usize,
    },
    /// Gate and up differ in outputs.
    #[error("a gate of {gate} outputs cannot be paired with {up} up outputs; expected equal numbers")]
    GatedRows {
        /// Outputs of the gate.
        gate: usize,
        /// Outputs of the up projection.
        up: usize,
    },
}

#[cfg(test)]
mod tests;
