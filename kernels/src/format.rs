//! Weight formats: how a matrix lies in a model file, and the f32 value of every element.

mod k_quants;

pub(crate) use k_quants::{
    K_BLOCK, Q4_K_SUB, Q6_K_BIAS, Q6_K_D, Q6_K_SUB, q4_k_code, q4_k_scale_min, q6_k_code, q6_k_scale,
};

use std::fmt;

/// Storage format of a weight matrix, as GGUF and safetensors define it.
///
/// A row is a whole number of blocks. Adding a format means a new variant here (the matches are exhaustive), a tile
/// layout in `cpu::packing` and a kernel per tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(non_camel_case_types, reason = "formats are spelled as ggml spells them")]
pub enum WeightFormat {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of an IEEE single.
    BF16,
    /// Blocks of 32: f16 scale `d`, 32 signed bytes `q`; value `q * d`.
    Q8_0,
    /// Blocks of 32: f16 scale `d`, 32 nibbles `q`; value `(q - 8) * d`.
    Q4_0,
    /// Blocks of 32: f16 scale `d`, f16 minimum `m`, 32 nibbles `q`; value `q * d + m`.
    Q4_1,
    /// Blocks of 256: f16 units `d` and `dmin`; each 32 nibbles `q` have 6-bit `s` and `m`; value `q * s * d - m * dmin`.
    Q4_K,
    /// Blocks of 256: f16 unit `d`; each 16 codes `q` of 6 bits have a signed byte `s`; value `(q - 32) * s * d`.
    Q6_K,
}

impl WeightFormat {
    /// Every format, in declaration order.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::BF16, Self::Q8_0, Self::Q4_0, Self::Q4_1, Self::Q4_K, Self::Q6_K];

    /// Elements in one block.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
            Self::Q4_K | Self::Q6_K => K_BLOCK,
        }
    }

    /// Bytes of one block in a file.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q4_K => k_quants::Q4_K_BYTES,
            Self::Q6_K => k_quants::Q6_K_BYTES,
        }
    }

    /// Bytes of a row of `columns` elements; `None` if `columns` is not a whole number of blocks or overflows.
    pub const fn row_bytes(self, columns: usize) -> Option<usize> {
        if columns.is_multiple_of(self.block_len()) {
            (columns / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }

    /// Lower-case name: `f32`, `q4_1`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q4_K => "q4_k",
            Self::Q6_K => "q6_k",
        }
    }

    /// Writes the f32 values of one row.
    ///
    /// # Panics
    /// If `bytes` is not exactly the row of `out.len()` columns.
    pub fn dequantise_row(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(
            Some(bytes.len()),
            self.row_bytes(out.len()),
            "a row of {} {} values",
            out.len(),
            self.name()
        );
        let blocks = bytes.chunks_exact(self.block_bytes());
        for (block, out) in blocks.zip(out.chunks_exact_mut(self.block_len())) {
            match self {
                Self::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
                Self::F16 => out[0] = f16_at(block, 0),
                Self::BF16 => out[0] = bf16_to_f32(u16::from_le_bytes([block[0], block[1]])),
                Self::Q8_0 => {
                    let d = f16_at(block, 0);
                    for (value, &code) in out.iter_mut().zip(&block[2..]) {
                        *value = f32::from(code.cast_signed()) * d;
                    }
                }
                Self::Q4_0 => {
                    let d = f16_at(block, 0);
                    for (i, value) in out.iter_mut().enumerate() {
                        *value = (f32::from(nibble(&block[2..], i)) - 8.0) * d;
                    }
                }
                Self::Q4_1 => {
                    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
                    for (i, value) in out.iter_mut().enumerate() {
                        *value = f32::from(nibble(&block[4..], i)) * d + m;
                    }
                }
                Self::Q4_K => k_quants::dequantise_q4_k(block, out),
                Self::Q6_K => k_quants::dequantise_q6_k(block, out),
            }
        }
    }

    /// Appends one row in this format: the encoder of the substitute drafter and of the tests. Each block is rounded
    /// to nearest as ggml's reference encoder does; the K formats without its search for better scales.
    ///
    /// # Panics
    /// If `values` is not a whole number of blocks.
    pub fn quantise_row(self, values: &[f32], out: &mut Vec<u8>) {
        assert!(values.len().is_multiple_of(self.block_len()), "{} values in {}", values.len(), self.name());
        for block in values.chunks_exact(self.block_len()) {
            match self {
                Self::F32 => out.extend(block[0].to_le_bytes()),
                Self::F16 => out.extend(half::f16::from_f32(block[0]).to_le_bytes()),
                Self::BF16 => out.extend(half::bf16::from_f32(block[0]).to_le_bytes()),
                Self::Q8_0 => {
                    let d = block.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 127.0;
                    out.extend(half::f16::from_f32(d).to_le_bytes());
                    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
                    out.extend(block.iter().map(|x| ((x * inverse).round() as i8).cast_unsigned()));
                }
                Self::Q4_0 => {
                    let extreme = block.iter().fold(0.0f32, |a, &x| if x.abs() > a.abs() { x } else { a });
                    let d = extreme / -8.0;
                    out.extend(half::f16::from_f32(d).to_le_bytes());
                    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
                    push_nibbles(block, out, |x| (x * inverse + 8.5) as u8);
                }
                Self::Q4_1 => {
                    let min = block.iter().copied().fold(f32::INFINITY, f32::min);
                    let max = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let d = (max - min) / 15.0;
                    out.extend(half::f16::from_f32(d).to_le_bytes());
                    out.extend(half::f16::from_f32(min).to_le_bytes());
                    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
                    push_nibbles(block, out, |x| ((x - min) * inverse + 0.5) as u8);
                }
                Self::Q4_K => k_quants::quantise_q4_k(block, out),
                Self::Q6_K => k_quants::quantise_q6_k(block, out),
            }
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Code `i` of a block of 32 nibbles: the first 16 in the low halves, the last 16 in the high halves.
pub(crate) fn nibble(codes: &[u8], i: usize) -> u8 {
    if i < 16 { codes[i] & 15 } else { codes[i - 16] >> 4 }
}

fn push_nibbles(block: &[f32], out: &mut Vec<u8>, encode: impl Fn(f32) -> u8) {
    let encode = |x| encode(x).min(15);
    out.extend((0..16).map(|i| encode(block[i]) | encode(block[i + 16]) << 4));
}

pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Exact value of an IEEE half, without branches so that loops over it vectorise.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let magnitude = (bits & 0x7fff) << 13;
    // 2^112 moves the exponent bias from 15 to 127 and normalises subnormals.
    let finite = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let magnitude = if bits & 0x7c00 == 0x7c00 { special } else { finite };
    f32::from_bits(magnitude | (bits & 0x8000) << 16)
}

/// Exact value of a bfloat16.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// A weight matrix as it lies in a model file: row-major `[rows = N outputs, columns = K inputs]`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    format: WeightFormat,
    rows: usize,
    columns: usize,
    bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// A view of `bytes`.
    ///
    /// # Errors
    /// If a dimension is 0, `columns` is not a whole number of blocks, or `bytes` has another length.
    pub fn new(
        format: WeightFormat,
        rows: usize,
        columns: usize,
        bytes: &'a [u8],
    ) -> Result<Self, MatrixError> {
        if rows == 0 || columns == 0 {
            return Err(MatrixError::Empty { rows, columns });
        }
        let expected = format
            .row_bytes(columns)
            .ok_or(MatrixError::PartialBlock { format, columns })?
            .checked_mul(rows)
            .ok_or(MatrixError::TooLarge { rows, columns })?;
        if bytes.len() != expected {
            return Err(MatrixError::Length { format, rows, columns, expected, found: bytes.len() });
        }
        Ok(Self { format, rows, columns, bytes })
    }

    /// Format of every row.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Outputs, `N`.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs, `K`.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The whole matrix as stored.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of row `n`.
    pub fn row(&self, n: usize) -> &'a [u8] {
        let row_bytes = self.bytes.len() / self.rows;
        &self.bytes[n * row_bytes..][..row_bytes]
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} [{}, {}])", self.format, self.rows, self.columns)
    }
}

/// Why bytes are not a matrix: the fault of the model file, or of whoever read its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// A dimension is zero.
    #[error("a weight matrix of shape [{rows}, {columns}] is empty; expected both dimensions above 0")]
    Empty {
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
    },
    /// A row would end inside a block.
    #[error("{columns} columns are not a whole number of {format} blocks of {}; store this tensor in another format", format.block_len())]
    PartialBlock {
        /// Format of the file.
        format: WeightFormat,
        /// Inputs.
        columns: usize,
    },
    /// The size overflows.
    #[error(
        "a weight matrix of shape [{rows}, {columns}] does not fit an address space; the file is damaged"
    )]
    TooLarge {
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
    },
    /// The byte count is wrong.
    #[error(
        "a {format} matrix of shape [{rows}, {columns}] takes {expected} bytes, found {found}; the file is damaged or cut"
    )]
    Length {
        /// Format of the file.
        format: WeightFormat,
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
        /// Bytes the shape needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

#[cfg(test)]
mod tests;
