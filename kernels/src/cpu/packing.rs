//! Weights laid out for vector kernels: tiles of 16 outputs, inside a tile blocks of 32 inputs.
//!
//! Bytes of one block, for outputs `n` of the tile and inputs `k` of the block:
//!
//! | format | layout |
//! |---|---|
//! | q4_1 | f16 `d[n]`, f16 `m[n]`, then codes |
//! | q4_0 | f16 `d[n]`, then codes |
//! | q8_0 | f16 `d[n]`, then bytes `[k/2][n][k%2]` |
//! | bf16 | `[k/2][n][k%2]` |
//! | f16, f32 | `[k][n]` |
//!
//! Codes of 4 bits are 16-bit words `[k/8][n][k%2]`, each with the four nibbles `k%8/2`, lowest first: one shift and
//! one table look-up give the 16 x 2 operand of a BF16 product. The last tile and the last block are padded with
//! zeros, which add nothing. The blocks of the K formats are as wide as the file's: see [`superblocks`].

pub(super) mod superblocks;

use super::memory::{AlignedBytes, Reserved};
use crate::{Matrix, WeightFormat, format};
use std::{fmt, mem};
use superblocks::{Q4_K_SUBS, Q6_K_SUBS, q4_k_values, q6_k_values};

/// Outputs in a tile.
pub const TILE: usize = 16;
/// Inputs in a block.
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
        let sources = parts.iter().flat_map(|part| (0..part.rows()).map(|n| part.row(n)));
        for (n, source) in sources.enumerate() {
            packed.write_row(n, source);
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
        for n in 0..gate.rows() {
            let (tile, lane) = (n / TILE, n % TILE);
            packed.write_row(2 * tile * TILE + lane, gate.row(n));
            packed.write_row((2 * tile + 1) * TILE + lane, up.row(n));
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
        for (block, out) in blocks.zip(out.chunks_mut(block_columns(self.format))) {
            let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
            let d = || format::f16_to_f32(word(2 * lane));
            match self.format {
                WeightFormat::Q4_1 => {
                    let (d, m) = (d(), format::f16_to_f32(word(32 + 2 * lane)));
                    for (k, out) in out.iter_mut().enumerate() {
                        *out = f32::from(nibble(&block[64..], lane, k)) * d + m;
                    }
                }
                WeightFormat::Q4_0 => {
                    let d = d();
                    for (k, out) in out.iter_mut().enumerate() {
                        *out = (f32::from(nibble(&block[32..], lane, k)) - 8.0) * d;
                    }
                }
                WeightFormat::Q8_0 => {
                    let d = d();
                    for (k, out) in out.iter_mut().enumerate() {
                        *out = f32::from(block[32 + pair_at(lane, k)].cast_signed()) * d;
                    }
                }
                WeightFormat::BF16 => {
                    for (k, out) in out.iter_mut().enumerate() {
                        *out = format::bf16_to_f32(word(2 * pair_at(lane, k)));
                    }
                }
                WeightFormat::F16 => {
                    for (k, out) in out.iter_mut().enumerate() {
                        *out = format::f16_to_f32(word(2 * (k * TILE + lane)));
                    }
                }
                WeightFormat::F32 => {
                    for (k, out) in out.iter_mut().enumerate() {
                        let at = 4 * (k * TILE + lane);
                        *out = f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
                    }
                }
                WeightFormat::Q4_K => {
                    let values = (0..Q4_K_SUBS).flat_map(|s| q4_k_values(block, s, lane));
                    out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
                }
                WeightFormat::Q6_K => {
                    let values = (0..Q6_K_SUBS).flat_map(|s| q6_k_values(block, s, lane));
                    out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
                }
            }
        }
    }

    /// Writes a row of the file as row `n` of the stored tiles.
    fn write_row(&mut self, n: usize, source: &[u8]) {
        let (format, lane, tile_bytes) = (self.format, n % TILE, self.tile_bytes());
        let tile = &mut self.storage.as_mut_slice()[n / TILE * tile_bytes..][..tile_bytes];
        let file_bytes = format.block_bytes() * (block_columns(format) / format.block_len());
        for (source, block) in source.chunks(file_bytes).zip(tile.chunks_exact_mut(block_bytes(format))) {
            match format {
                WeightFormat::Q4_1 => {
                    block[2 * lane..][..2].copy_from_slice(&source[..2]);
                    block[32 + 2 * lane..][..2].copy_from_slice(&source[2..4]);
                    write_nibbles(&mut block[64..], lane, &source[4..]);
                }
                WeightFormat::Q4_0 => {
                    block[2 * lane..][..2].copy_from_slice(&source[..2]);
                    write_nibbles(&mut block[32..], lane, &source[2..]);
                }
                WeightFormat::Q8_0 => {
                    block[2 * lane..][..2].copy_from_slice(&source[..2]);
                    for (k, &code) in source[2..].iter().enumerate() {
                        block[32 + pair_at(lane, k)] = code;
                    }
                }
                WeightFormat::BF16 => {
                    for (k, value) in source.chunks_exact(2).enumerate() {
                        block[2 * pair_at(lane, k)..][..2].copy_from_slice(value);
                    }
                }
                WeightFormat::F16 => {
                    for (k, value) in source.chunks_exact(2).enumerate() {
                        block[2 * (k * TILE + lane)..][..2].copy_from_slice(value);
                    }
                }
                WeightFormat::F32 => {
                    for (k, value) in source.chunks_exact(4).enumerate() {
                        block[4 * (k * TILE + lane)..][..4].copy_from_slice(value);
                    }
                }
                WeightFormat::Q4_K => superblocks::write_q4_k(block, lane, source),
                WeightFormat::Q6_K => superblocks::write_q6_k(block, lane, source),
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

/// Inputs of a packed block: those of the file's where it is longer than 32.
pub(super) const fn block_columns(format: WeightFormat) -> usize {
    if format.block_len() > BLOCK { format.block_len() } else { BLOCK }
}

/// Bytes of a packed block: 16 outputs by [`block_columns`] inputs.
pub(super) const fn block_bytes(format: WeightFormat) -> usize {
    match format {
        WeightFormat::F32 => BLOCK * TILE * mem::size_of::<f32>(),
        WeightFormat::F16 | WeightFormat::BF16 => BLOCK * TILE * 2,
        WeightFormat::Q8_0 | WeightFormat::Q4_0 | WeightFormat::Q4_1 => TILE * format.block_bytes(),
        WeightFormat::Q4_K => superblocks::Q4_K_BYTES,
        WeightFormat::Q6_K => superblocks::Q6_K_BYTES,
    }
}

/// Index of element `(n, k)` in `[k/2][n][k%2]`.
pub(super) const fn pair_at(n: usize, k: usize) -> usize {
    k / 2 * 2 * TILE + 2 * n + k % 2
}

/// Byte and shift of 4-bit code `(n, k)`.
pub(super) const fn nibble_at(n: usize, k: usize) -> (usize, u32) {
    let step = k % 8 / 2;
    (k / 8 * 64 + 4 * n + 2 * (k % 2) + step / 2, 4 * (step % 2) as u32)
}

fn nibble(codes: &[u8], n: usize, k: usize) -> u8 {
    let (at, shift) = nibble_at(n, k);
    codes[at] >> shift & 15
}

fn write_nibbles(codes: &mut [u8], n: usize, source: &[u8]) {
    for k in 0..BLOCK {
        let (at, shift) = nibble_at(n, k);
        codes[at] |= format::nibble(source, k) << shift;
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
