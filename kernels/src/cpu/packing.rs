//! Weights laid out for vector kernels: tiles of 16 outputs, inside a tile blocks of inputs.
//!
//! Blocks of codes are described at [`codes`]. Those of dense formats have 32 inputs; for outputs `n` of the tile and inputs `k` of
//! the block they are `[k/2][n][k%2]` of bf16, and `[k][n]` of f16 and f32. The last tile and the last dense block are padded with
//! zeros, which add nothing.

mod codes;

use super::memory::{AlignedBytes, Reserved};
use crate::{
    Matrix, WeightFormat,
    format::{Block, Elements, bf16_to_f32, f16_to_f32},
};
use std::{array, fmt};

pub(super) use codes::{CodeLayout, PART};

/// Outputs in a tile.
pub const TILE: usize = 16;
/// Inputs in a dense block.
pub(super) const BLOCK: usize = 32;

/// A weight matrix, or several that share their input, packed once at load.
pub struct PackedLinear {
    format: WeightFormat,
    gated: bool,
    rows: usize,
    columns: usize,
    storage: AlignedBytes,
}

impl PackedLinear {
    /// One matrix, or several stacked by rows (fused q|k|v): outputs follow each other in the order given.
    ///
    /// # Errors
    /// If there is no part, or the parts differ in format or columns.
    pub fn stack(parts: &[Matrix<'_>]) -> Result<Self, PackError> {
        let bytes = Self::stack_bytes(parts)?;
        Self::stack_in(parts, one_place(bytes))
    }

    /// As [`PackedLinear::stack`], in memory of [`PackedLinear::stack_bytes`].
    ///
    /// # Errors
    /// As `stack`, and if the memory has another size.
    pub fn stack_in(parts: &[Matrix<'_>], memory: Reserved) -> Result<Self, PackError> {
        let bytes = Self::stack_bytes(parts)?;
        let rows = parts.iter().map(Matrix::rows).sum();
        let mut packed = Self::zeroed(&parts[0], rows, false, bytes, memory)?;
        let mut sources = parts.iter().flat_map(|part| (0..part.rows()).map(|n| part.row(n)));
        for tile in 0..packed.tiles() {
            packed.write_tile(tile, &array::from_fn(|_| sources.next()));
        }
        Ok(packed)
    }

    /// Bytes of the stacked matrices.
    ///
    /// # Errors
    /// As [`PackedLinear::stack`].
    pub fn stack_bytes(parts: &[Matrix<'_>]) -> Result<usize, PackError> {
        let first = parts.first().ok_or(PackError::NoParts)?;
        parts.iter().try_for_each(|part| same_input(first, part))?;
        Ok(stored_bytes(first, parts.iter().map(Matrix::rows).sum()))
    }

    /// Gate and up projections, their tiles in turn, for `linear_gated`.
    ///
    /// # Errors
    /// If the two differ in format or shape.
    pub fn gated(gate: &Matrix<'_>, up: &Matrix<'_>) -> Result<Self, PackError> {
        let bytes = Self::gated_bytes(gate, up)?;
        Self::gated_in(gate, up, one_place(bytes))
    }

    /// As [`PackedLinear::gated`], in memory of [`PackedLinear::gated_bytes`].
    ///
    /// # Errors
    /// As `gated`, and if the memory has another size.
    pub fn gated_in(gate: &Matrix<'_>, up: &Matrix<'_>, memory: Reserved) -> Result<Self, PackError> {
        let bytes = Self::gated_bytes(gate, up)?;
        let mut packed = Self::zeroed(gate, gate.rows(), true, bytes, memory)?;
        for tile in 0..packed.tiles() {
            for (i, part) in [gate, up].into_iter().enumerate() {
                let source = |n| Some(tile * TILE + n).filter(|n| *n < part.rows()).map(|n| part.row(n));
                packed.write_tile(2 * tile + i, &array::from_fn(source));
            }
        }
        Ok(packed)
    }

    /// Bytes of the pair.
    ///
    /// # Errors
    /// As [`PackedLinear::gated`].
    pub fn gated_bytes(gate: &Matrix<'_>, up: &Matrix<'_>) -> Result<usize, PackError> {
        same_input(gate, up)?;
        if gate.rows() != up.rows() {
            return Err(PackError::GatedRows { gate: gate.rows(), up: up.rows() });
        }
        Ok(2 * stored_bytes(gate, gate.rows()))
    }

    fn zeroed(
        first: &Matrix<'_>,
        rows: usize,
        gated: bool,
        bytes: usize,
        memory: Reserved,
    ) -> Result<Self, PackError> {
        if memory.len() != bytes {
            return Err(PackError::Memory { found: memory.len(), expected: bytes });
        }
        let (format, columns) = (first.format(), first.columns());
        Ok(Self { format, gated, rows, columns, storage: memory.zeroed() })
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

    /// Memory held.
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
        self.blocks() * block_bytes(self.format)
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
        let mut buffer = Block::EMPTY;
        for (block, out) in blocks.zip(out.chunks_mut(block_columns(self.format))) {
            match self.format.coding() {
                Some(coding) => {
                    codes::read(coding, block, lane, &mut buffer);
                    coding.values(&buffer, out);
                }
                None => {
                    for (k, out) in out.iter_mut().enumerate() {
                        *out = dense_value(self.format, block, lane, k);
                    }
                }
            }
        }
    }

    /// How the weights lie, for people.
    pub fn layout_name(format: WeightFormat) -> String {
        format.coding().map_or_else(|| format!("{format} values"), codes::describe)
    }

    /// Writes rows of the file as the outputs of stored tile `t`.
    fn write_tile(&mut self, t: usize, sources: &[Option<&[u8]>; TILE]) {
        let (format, tile_bytes) = (self.format, self.tile_bytes());
        let tile = &mut self.storage.as_mut_slice()[t * tile_bytes..][..tile_bytes];
        let blocks = tile.chunks_exact_mut(block_bytes(format));
        match &format.spec().elements {
            Elements::Codes { coding, decode, .. } => {
                let mut outputs = [const { Block::EMPTY }; TILE];
                for (b, block) in blocks.enumerate() {
                    let bytes = b * format.block_bytes()..(b + 1) * format.block_bytes();
                    for (output, source) in outputs.iter_mut().zip(sources) {
                        if let Some(source) = source {
                            decode(&source[bytes.clone()], output);
                        }
                    }
                    codes::write(*coding, &outputs, block);
                }
            }
            Elements::Dense { .. } => {
                let bytes = format.block_bytes();
                for (b, block) in blocks.enumerate() {
                    for (n, source) in sources.iter().enumerate() {
                        let Some(source) = source else { continue };
                        let values = source.chunks_exact(bytes).skip(b * BLOCK).take(BLOCK);
                        for (k, value) in values.enumerate() {
                            block[dense_at(format, n, k)..][..bytes].copy_from_slice(value);
                        }
                    }
                }
            }
        }
    }
}

impl fmt::Debug for PackedLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gated = if self.gated { ", gated" } else { "" };
        write!(f, "PackedLinear({} [{}, {}]{gated})", self.format, self.rows, self.columns)
    }
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

/// Byte of element `(n, k)` of a dense block.
fn dense_at(format: WeightFormat, n: usize, k: usize) -> usize {
    let place = if format == WeightFormat::BF16 { pair_at(n, k) } else { k * TILE + n };
    place * format.block_bytes()
}

pub(super) fn dense_value(format: WeightFormat, block: &[u8], n: usize, k: usize) -> f32 {
    let at = dense_at(format, n, k);
    let mut bytes = [0; 4];
    bytes[..format.block_bytes()].copy_from_slice(&block[at..at + format.block_bytes()]);
    let [a, b, ..] = bytes;
    match format {
        WeightFormat::BF16 => bf16_to_f32(u16::from_le_bytes([a, b])),
        WeightFormat::F16 => f16_to_f32(u16::from_le_bytes([a, b])),
        _ => f32::from_le_bytes(bytes),
    }
}

/// Bytes of the tiles of `rows` outputs.
fn stored_bytes(first: &Matrix<'_>, rows: usize) -> usize {
    rows.div_ceil(TILE)
        * first.columns().div_ceil(block_columns(first.format()))
        * block_bytes(first.format())
}

fn one_place(bytes: usize) -> Reserved {
    Reserved::together(&[bytes]).pop().expect("a place per length")
}

fn same_input(first: &Matrix<'_>, other: &Matrix<'_>) -> Result<(), PackError> {
    if first.format() != other.format() {
        return Err(PackError::MixedFormats { first: first.format(), other: other.format() });
    }
    if first.columns() != other.columns() {
        return Err(PackError::MixedColumns { first: first.columns(), other: other.columns() });
    }
    Ok(())
}

/// Why matrices cannot be packed together: the fault of whoever fused them.
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
    /// The memory given is not that of the matrices.
    #[error(
        "memory of {found} bytes for a packed matrix of {expected}; reserve what `stack_bytes` or `gated_bytes` says"
    )]
    Memory {
        /// Bytes given.
        found: usize,
        /// Bytes needed.
        expected: usize,
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
