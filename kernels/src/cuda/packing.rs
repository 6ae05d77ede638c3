//! The layout of weights for tensor cores: tiles of 16 outputs and 64 inputs, in which the part of every lane of a warp
//! is contiguous.
//!
//! `mma.m16n8k16` gives lane `l` the outputs `g = l / 4` and `g + 8`, and of 16 inputs `2t, 2t + 1, 2t + 8, 2t + 9`
//! with `t = l % 4`: register `r` holds output `g + 8 (r % 2)`, inputs `2t + 8 (r / 2)` and the next. A tile has the
//! four such fragments of its 64 inputs, lanes next to each other. Tiles follow each other by inputs, then by outputs.
//! Outputs and inputs that the matrix has not are zero.
//!
//! | layout | of | codes of a lane | scales |
//! |---|---|---|---|
//! | [`Bf16`](Layout::Bf16), [`F16`](Layout::F16) | bf16, f16 | 4 × 16 bytes, a fragment each | none |
//! | [`Centred`](Layout::Centred) | `q4_0` | 4 words, nibbles `r` and `r + 4` are register `r`; 8 is zero | f16 scale per output and 32 inputs |
//! | [`Nibbles`](Layout::Nibbles) | `q4_1` | the same, 0 is zero | f16 scale and minimum per output and 32 inputs |
//! | [`NibblesWide`](Layout::NibblesWide) | `q4_k` | the same | f32 scale and minimum per output and 32 inputs |
//! | [`FivesWide`](Layout::FivesWide) | `q5_k`, `q5_1` | the same, then a word of fifth bits, that of element `i` of register `r` in fragment `k` at `4 k + r + 16 i` | the same |
//! | [`Floats`](Layout::Floats) | `mxfp4`, `nvfp4` | the same | bf16 scale per output and 16 inputs |
//! | [`Steps`](Layout::Steps) | `iq4_nl`, `iq4_xs` | the same | f32 scale per output and 32 inputs |
//! | [`Twos`](Layout::Twos) | `q2_k` | 2 words, bit pair `4 (k % 2) + r + 8 i` of word `k / 2` is element `i` of register `r` in fragment `k` | 4 bits of scale and of minimum per output and 16 inputs, f16 factors of both per output |
//! | [`Bytes`](Layout::Bytes) | `q8_0`, `q5_0` | 8 words, registers 0 and 1, then 2 and 3 | f16 scale per output and 32 inputs |
//! | [`BytesWide`](Layout::BytesWide) | `q6_k`, `q3_k`, `iq1`, `iq2`, `iq3` | the same, of at most 7 bits | f32 scale per output and 16 inputs |
//! | [`F32`](Layout::F32) | f32 | rows as they are | none |

use half::{bf16, f16};

use crate::{
    Matrix, WeightFormat,
    cuda::abi,
    format::{Block, Coding, Elements},
};

/// Where codes and scales begin in device memory: lanes load 16 bytes, and lines of the cache are 128.
pub const ALIGNMENT: usize = 256;
/// Inputs of a tile.
const TILE_K: usize = abi::YGG_TILE_K as usize;
/// Outputs of a tile.
const TILE_N: usize = abi::YGG_TILE_N as usize;
const LANES: usize = abi::YGG_WARP as usize;
/// Inputs of a fragment.
const FRAGMENT_K: usize = 16;
/// Inputs with one scale in most layouts; in the others [`FRAGMENT_K`].
const SCALED: usize = 32;
/// Bytes of a tile's nibbles.
const NIBBLES: usize = TILE_K * TILE_N / 2;

/// How a packed matrix lies in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// Rows of f32.
    F32,
    /// Upper halves of f32.
    Bf16,
    /// IEEE halves.
    F16,
    /// 4 bits of which 8 is zero, scale as a half.
    Centred,
    /// 4 bits, scale and minimum as halves.
    Nibbles,
    /// 4 bits, scale and minimum as f32.
    NibblesWide,
    /// 5 bits, scale and minimum as f32.
    FivesWide,
    /// 2 bits, scale and minimum as 4 bits each of 16 inputs, with halves that multiply them.
    Twos,
    /// 4 bits that are floats (E2M1), scales as bf16 of 16 inputs each.
    Floats,
    /// 4 bits that choose one of 16 uneven steps, scales as f32.
    Steps,
    /// 8 bits, scales as halves.
    Bytes,
    /// 8 bits, scales as f32 of 16 inputs each.
    BytesWide,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 12] = [
        Self::F32,
        Self::Bf16,
        Self::F16,
        Self::Centred,
        Self::Nibbles,
        Self::NibblesWide,
        Self::FivesWide,
        Self::Twos,
        Self::Floats,
        Self::Steps,
        Self::Bytes,
        Self::BytesWide,
    ];

    /// The layout of a format. It loses nothing: every value of the file can be computed from it.
    pub fn of(format: WeightFormat) -> Self {
        match format {
            WeightFormat::F32 => Self::F32,
            WeightFormat::BF16 => Self::Bf16,
            WeightFormat::F16 => Self::F16,
            WeightFormat::Q4_0 => Self::Centred,
            WeightFormat::Q4_1 => Self::Nibbles,
            WeightFormat::Q4_K => Self::NibblesWide,
            WeightFormat::Q5_K | WeightFormat::Q5_1 => Self::FivesWide,
            WeightFormat::MXFP4 | WeightFormat::NVFP4 => Self::Floats,
            WeightFormat::IQ4_NL | WeightFormat::IQ4_XS => Self::Steps,
            WeightFormat::Q2_K => Self::Twos,
            WeightFormat::Q8_0 | WeightFormat::Q5_0 => Self::Bytes,
            WeightFormat::Q6_K
            | WeightFormat::Q3_K
            | WeightFormat::IQ3_XXS
            | WeightFormat::IQ3_S
            | WeightFormat::IQ2_XXS
            | WeightFormat::IQ2_XS
            | WeightFormat::IQ2_S
            | WeightFormat::IQ1_S
            | WeightFormat::IQ1_M => Self::BytesWide,
        }
    }

    /// The format that rows of an embedding lie in, which are read one by one: the file's where a kernel decodes it, else
    /// F32.
    pub fn of_rows(format: WeightFormat) -> WeightFormat {
        match format {
            // Those of `embedding_element` of the kernels.
            WeightFormat::F16
            | WeightFormat::BF16
            | WeightFormat::Q8_0
            | WeightFormat::Q5_0
            | WeightFormat::Q4_0
            | WeightFormat::Q4_1
            | WeightFormat::Q4_K
            | WeightFormat::Q5_K
            | WeightFormat::Q6_K => format,
            _ => WeightFormat::F32,
        }
    }

    /// As kernels are named.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Centred => "centred",
            Self::Nibbles => "nibbles",
            Self::NibblesWide => "nibbles_wide",
            Self::FivesWide => "fives_wide",
            Self::Twos => "twos",
            Self::Floats => "floats",
            Self::Steps => "steps",
            Self::Bytes => "bytes",
            Self::BytesWide => "bytes_wide",
        }
    }

    /// Bit in `YGG_LAYOUTS`, which says for which layouts kernels are compiled; 0 where there is nothing to choose.
    pub const fn bit(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::Bf16 => 1,
            Self::F16 => 2,
            Self::Nibbles => 4,
            Self::NibblesWide => 8,
            Self::Bytes => 16,
            Self::BytesWide => 32,
            Self::Centred => 64,
            Self::FivesWide => 128,
            Self::Floats => 256,
            Self::Steps => 512,
            Self::Twos => 1024,
        }
    }

    /// Rows of tiles of so many outputs; of f32, single outputs.
    fn tile_rows(self, outputs: usize) -> usize {
        match self {
            Self::F32 => outputs,
            _ => outputs.div_ceil(TILE_N),
        }
    }

    /// Bytes of the codes of a row of tiles of so many inputs, and of its scales.
    fn tile_row_bytes(self, columns: usize) -> (usize, usize) {
        let tiles_k = columns.div_ceil(TILE_K);
        let (codes, scales) = self.tile_bytes();
        match self {
            Self::F32 => (size_of::<f32>() * columns, 0),
            _ => (tiles_k * codes, tiles_k * scales),
        }
    }

    /// Bytes of all codes of a stack `[outputs, columns]`, and of its scales, each aligned.
    pub fn stack_bytes(self, outputs: usize, columns: usize) -> (usize, usize) {
        let (codes, scales) = self.tile_row_bytes(columns);
        let aligned = |bytes: usize| (self.tile_rows(outputs) * bytes).next_multiple_of(ALIGNMENT);
        (aligned(codes), aligned(scales))
    }

    /// Bytes of a tile's codes, and of its scales.
    const fn tile_bytes(self) -> (usize, usize) {
        const ELEMENTS: usize = TILE_K * TILE_N;
        match self {
            Self::F32 => (4 * ELEMENTS, 0),
            Self::Bf16 | Self::F16 => (2 * ELEMENTS, 0),
            Self::Centred => (ELEMENTS / 2, ELEMENTS / SCALED * 2),
            Self::Nibbles | Self::Steps => (ELEMENTS / 2, ELEMENTS / SCALED * 4),
            Self::Floats => (ELEMENTS / 2, ELEMENTS / FRAGMENT_K * 2),
            Self::NibblesWide => (ELEMENTS / 2, ELEMENTS / SCALED * 8),
            Self::FivesWide => (NIBBLES + ELEMENTS / 8, ELEMENTS / SCALED * 8),
            Self::Twos => (ELEMENTS / 4, 2 * TILE_N * size_of::<u32>()),
            Self::Bytes => (ELEMENTS, ELEMENTS / SCALED * 2),
            Self::BytesWide => (ELEMENTS, ELEMENTS / FRAGMENT_K * 4),
        }
    }
}

/// Matrices of one format and as many columns, stacked by rows, to be packed.
#[derive(Clone, Debug)]
pub struct Stack<'a> {
    rows: Vec<&'a [u8]>,
    format: WeightFormat,
    columns: usize,
}

/// The output of the model that [`Stack::halves_together`] puts at place `n`.
pub const fn half_source(n: usize, head_dim: usize, rotated: usize) -> usize {
    let (head, in_head, in_tile) = (n / head_dim * head_dim, n % head_dim, n % TILE_N);
    let half = TILE_N / 2;
    let turned = in_tile / half * (rotated / 2) + in_head / TILE_N * half + in_tile % half;
    head + if in_head < rotated { turned } else { in_head }
}

impl<'a> Stack<'a> {
    /// # Panics
    /// If there is none, or they differ: the graph's law has it that they do not.
    pub fn new(parts: &[Matrix<'a>]) -> Self {
        let first = parts.first().expect("at least one matrix");
        let is_alike = |m: &Matrix<'_>| (m.format(), m.columns()) == (first.format(), first.columns());
        assert!(parts.iter().all(is_alike), "matrices of one format and width");
        let rows = parts.iter().flat_map(|part| {
            let row_bytes = part.bytes().len() / part.rows();
            part.bytes().chunks_exact(row_bytes)
        });
        Self { rows: rows.collect(), format: first.format(), columns: first.columns() }
    }

    /// The same outputs, heads of `head_dim` each, in another order: of every head, tile `t` has elements
    /// `8 t .. 8 t + 8` and those `rotated / 2` after them, as far as elements are below `rotated`.
    ///
    /// # Panics
    /// If heads, or what is below `rotated`, are no whole tiles.
    #[must_use]
    pub fn halves_together(self, head_dim: usize, rotated: usize) -> Self {
        assert!(
            self.rows.len().is_multiple_of(head_dim)
                && head_dim.is_multiple_of(TILE_N)
                && rotated.is_multiple_of(TILE_N)
                && rotated <= head_dim,
            "{} outputs of heads of {head_dim}, {rotated} of which turn",
            self.rows.len()
        );
        let rows = (0..self.rows.len()).map(|n| self.rows[half_source(n, head_dim, rotated)]).collect();
        Self { rows, ..self }
    }

    /// How it will lie.
    pub fn layout(&self) -> Layout {
        Layout::of(self.format)
    }

    /// Outputs, `N`.
    pub fn outputs(&self) -> usize {
        self.rows.len()
    }

    /// Inputs, `K`.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Tiles of inputs.
    pub fn tiles_k(&self) -> usize {
        self.columns.div_ceil(TILE_K)
    }

    /// Rows of tiles: what [`pack`](Self::pack) goes by. Of f32, single outputs.
    pub fn tile_rows(&self) -> usize {
        self.layout().tile_rows(self.outputs())
    }

    /// Bytes of the codes of a row of tiles, and of its scales.
    pub fn tile_row_bytes(&self) -> (usize, usize) {
        self.layout().tile_row_bytes(self.columns)
    }

    /// Writes row number `tile_row` of tiles.
    ///
    /// # Panics
    /// If it has not got it, or a buffer is not of [`tile_row_bytes`](Self::tile_row_bytes).
    pub fn pack(&self, tile_row: usize, codes: &mut [u8], scales: &mut [u8]) {
        assert!(tile_row < self.tile_rows(), "row {tile_row} of {} of tiles", self.tile_rows());
        assert_eq!((codes.len(), scales.len()), self.tile_row_bytes());
        let layout = self.layout();
        if layout == Layout::F32 {
            codes.copy_from_slice(self.rows[tile_row]);
            return;
        }
        let rows: [Option<&[u8]>; TILE_N] =
            std::array::from_fn(|i| self.rows.get(tile_row * TILE_N + i).copied());
        let (code_bytes, scale_bytes) = layout.tile_bytes();
        let mut decoded = Decoded::new(self.format);
        for t in 0..self.tiles_k() {
            decoded.read(&rows, t * TILE_K, self.columns);
            let tile = Tile { rows: &rows, columns: self.columns, first: t * TILE_K, decoded: &decoded };
            let codes = &mut codes[t * code_bytes..][..code_bytes];
            let scales = &mut scales[t * scale_bytes..][..scale_bytes];
            match layout {
                Layout::F32 => unreachable!("rows are copied"),
                Layout::Bf16 | Layout::F16 => tile.pack_halves(codes),
                Layout::Centred | Layout::Nibbles | Layout::NibblesWide | Layout::Floats | Layout::Steps => {
                    tile.pack_nibbles(codes)
                }
                Layout::FivesWide => {
                    let (nibbles, fifths) = codes.split_at_mut(NIBBLES);
                    tile.pack_nibbles(nibbles);
                    tile.pack_fifths(fifths);
                }
                Layout::Twos => tile.pack_twos(codes),
                Layout::Bytes | Layout::BytesWide => tile.pack_bytes(codes),
            }
            tile.pack_scales(layout, scales);
        }
    }
}

/// Output and first of the two inputs of register `r` of a lane, in fragment `k` of a tile.
fn place(k: usize, lane: usize, r: usize) -> (usize, usize) {
    (lane / 4 + 8 * (r % 2), FRAGMENT_K * k + 2 * (lane % 4) + 8 * (r / 2))
}

/// Codes and groups of 16 inputs of a tile's outputs, zeros where the matrix has none; nothing of dense formats.
struct Decoded {
    format: WeightFormat,
    /// Whether codes are kept as the integers that they stand for.
    is_signed: bool,
    /// The block of each output that was read last, and its number.
    blocks: [Block; TILE_N],
    number: usize,
    codes: [[u8; TILE_K]; TILE_N],
    groups: [[(f32, f32); TILE_K / FRAGMENT_K]; TILE_N],
}

impl Decoded {
    fn new(format: WeightFormat) -> Self {
        Self {
            format,
            is_signed: matches!(Layout::of(format), Layout::Bytes | Layout::BytesWide),
            blocks: [const { Block::EMPTY }; TILE_N],
            number: usize::MAX,
            codes: [[0; TILE_K]; TILE_N],
            groups: [[(0.0, 0.0); TILE_K / FRAGMENT_K]; TILE_N],
        }
    }

    /// Reads inputs `first..first + TILE_K`, as far as they are below `columns`.
    fn read(&mut self, rows: &[Option<&[u8]>; TILE_N], first: usize, columns: usize) {
        let Elements::Codes { coding, decode, .. } = &self.format.spec().elements else { return };
        let (len, bytes) = (self.format.block_len(), self.format.block_bytes());
        for group in 0..TILE_K / FRAGMENT_K {
            let (at, column) = (group * FRAGMENT_K, first + group * FRAGMENT_K);
            if column < columns && self.number != column / len {
                self.number = column / len;
                for (block, row) in self.blocks.iter_mut().zip(rows) {
                    if let Some(row) = row {
                        decode(&row[self.number * bytes..][..bytes], block);
                    }
                }
            }
            for (n, row) in rows.iter().enumerate() {
                let codes = &mut self.codes[n][at..at + FRAGMENT_K];
                if row.is_none() || column >= columns {
                    codes.fill(0);
                    self.groups[n][group] = (0.0, 0.0);
                    continue;
                }
                let in_block = column % len;
                for (to, code) in codes.iter_mut().zip(&self.blocks[n].codes[in_block..]) {
                    *to = if self.is_signed { (coding.value(*code) as i8).cast_unsigned() } else { *code };
                }
                self.groups[n][group] = scale_min(*coding, &self.blocks[n], in_block / coding.group_len());
            }
        }
    }
}

/// What a code of a group is multiplied by, and what is added, codes being unsigned.
fn scale_min(coding: Coding, block: &Block, group: usize) -> (f32, f32) {
    let group = coding.group(block, group);
    (group.scale, group.min.unwrap_or(coding.value(0) as f32 * group.scale))
}

struct Tile<'a> {
    rows: &'a [Option<&'a [u8]>; TILE_N],
    columns: usize,
    /// First input.
    first: usize,
    decoded: &'a Decoded,
}

impl Tile<'_> {
    /// The row of an output and the number of an input in it, where there are such.
    fn at(&self, output: usize, input: usize) -> Option<(&[u8], usize)> {
        let column = self.first + input;
        self.rows[output].filter(|_| column < self.columns).map(|row| (row, column))
    }

    fn pack_halves(&self, codes: &mut [u8]) {
        for (word, bytes) in codes.chunks_exact_mut(4).enumerate() {
            let (k, lane, r) = (word / (4 * LANES), word / 4 % LANES, word % 4);
            let (output, input) = place(k, lane, r);
            for (i, half) in bytes.chunks_exact_mut(2).enumerate() {
                let bits = self.at(output, input + i).map_or(&[0; 2][..], |(row, c)| &row[2 * c..][..2]);
                half.copy_from_slice(bits);
            }
        }
    }

    fn pack_nibbles(&self, codes: &mut [u8]) {
        for (word, bytes) in codes.chunks_exact_mut(4).enumerate() {
            let (lane, k) = (word / 4, word % 4);
            let mut bits = 0_u32;
            for r in 0..4 {
                let (output, input) = place(k, lane, r);
                for i in 0..2 {
                    let code = self.decoded.codes[output][input + i];
                    bits |= u32::from(code & 15) << (4 * r + 16 * i);
                }
            }
            bytes.copy_from_slice(&bits.to_le_bytes());
        }
    }

    fn pack_fifths(&self, codes: &mut [u8]) {
        for (lane, bytes) in codes.chunks_exact_mut(4).enumerate() {
            let mut bits = 0_u32;
            for (k, r) in (0..4).flat_map(|k| (0..4).map(move |r| (k, r))) {
                let (output, input) = place(k, lane, r);
                for i in 0..2 {
                    let fifth = u32::from(self.decoded.codes[output][input + i]) >> 4 & 1;
                    bits |= fifth << (4 * k + r + 16 * i);
                }
            }
            bytes.copy_from_slice(&bits.to_le_bytes());
        }
    }

    fn pack_twos(&self, codes: &mut [u8]) {
        for (word, bytes) in codes.chunks_exact_mut(4).enumerate() {
            let (lane, pair) = (word / 2, word % 2);
            let mut bits = 0_u32;
            for (k, r) in (0..2).flat_map(|k| (0..4).map(move |r| (k, r))) {
                let (output, input) = place(2 * pair + k, lane, r);
                for i in 0..2 {
                    let code = self.decoded.codes[output][input + i];
                    bits |= u32::from(code & 3) << (2 * (4 * k + r) + 16 * i);
                }
            }
            bytes.copy_from_slice(&bits.to_le_bytes());
        }
    }

    fn pack_bytes(&self, codes: &mut [u8]) {
        for (word, bytes) in codes.chunks_exact_mut(4).enumerate() {
            let (half, lane, in_half) = (word / (4 * LANES), word / 4 % LANES, word % 4);
            let (k, pair) = (2 * half + in_half / 2, in_half % 2);
            for (i, byte) in bytes.iter_mut().enumerate() {
                let (output, input) = place(k, lane, 2 * pair + i / 2);
                *byte = self.decoded.codes[output][input + i % 2];
            }
        }
    }

    fn pack_scales(&self, layout: Layout, scales: &mut [u8]) {
        match layout {
            Layout::F32 | Layout::Bf16 | Layout::F16 => {}
            // [g][g or g + 8][32 inputs] of scale and minimum
            Layout::Nibbles => {
                for (i, bytes) in scales.chunks_exact_mut(4).enumerate() {
                    let (d, m) = self.scale_min(i / 4 + i / 2 % 2 * 8, i % 2 * SCALED);
                    bytes[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
                    bytes[2..].copy_from_slice(&f16::from_f32(m).to_le_bytes());
                }
            }
            Layout::NibblesWide | Layout::FivesWide => {
                for (i, bytes) in scales.chunks_exact_mut(8).enumerate() {
                    let (d, m) = self.scale_min(i / 4 + i / 2 % 2 * 8, i % 2 * SCALED);
                    bytes[..4].copy_from_slice(&d.to_le_bytes());
                    bytes[4..].copy_from_slice(&m.to_le_bytes());
                }
            }
            Layout::Centred | Layout::Bytes => {
                for (i, bytes) in scales.chunks_exact_mut(2).enumerate() {
                    let (d, _) = self.scale_min(i / 4 + i / 2 % 2 * 8, i % 2 * SCALED);
                    bytes.copy_from_slice(&f16::from_f32(d).to_le_bytes());
                }
            }
            Layout::Steps => {
                for (i, bytes) in scales.chunks_exact_mut(4).enumerate() {
                    let (d, _) = self.scale_min(i / 4 + i / 2 % 2 * 8, i % 2 * SCALED);
                    bytes.copy_from_slice(&d.to_le_bytes());
                }
            }
            // [g]: of outputs g and g + 8 four bytes, then of each d and dmin
            Layout::Twos => {
                for (g, bytes) in scales.chunks_exact_mut(16).enumerate() {
                    let (of_groups, of_block) = bytes.split_at_mut(8);
                    let places = of_groups.chunks_exact_mut(4).zip(of_block.chunks_exact_mut(4));
                    for (output, (of_groups, of_block)) in [g, g + 8].into_iter().zip(places) {
                        self.pack_factors(output, of_groups, of_block);
                    }
                }
            }
            // [g][g or g + 8][16 inputs]
            Layout::Floats => {
                for (i, bytes) in scales.chunks_exact_mut(2).enumerate() {
                    let (d, _) = self.scale_min(i / 8 + i / 4 % 2 * 8, i % 4 * FRAGMENT_K);
                    bytes.copy_from_slice(&bf16::from_f32(d).to_le_bytes());
                }
            }
            Layout::BytesWide => {
                for (i, bytes) in scales.chunks_exact_mut(4).enumerate() {
                    let (d, _) = self.scale_min(i / 8 + i / 4 % 2 * 8, i % 4 * FRAGMENT_K);
                    bytes.copy_from_slice(&d.to_le_bytes());
                }
            }
        }
    }

    /// Scales and minima of an output's groups, and the factors of its block; zeros where the matrix has none.
    fn pack_factors(&self, output: usize, of_groups: &mut [u8], of_block: &mut [u8]) {
        if self.at(output, 0).is_none() {
            of_groups.fill(0);
            of_block.fill(0);
            return;
        }
        let block = &self.decoded.blocks[output];
        // Blocks are whole tiles.
        let first = self.first % self.decoded.format.block_len() / FRAGMENT_K;
        for (group, byte) in (first..).zip(of_groups) {
            *byte = block.scales[group] | block.mins[group] << 4;
        }
        of_block[..2].copy_from_slice(&block.d.to_le_bytes());
        of_block[2..].copy_from_slice(&block.dmin.to_le_bytes());
    }

    fn scale_min(&self, output: usize, input: usize) -> (f32, f32) {
        self.decoded.groups[output][input / FRAGMENT_K]
    }
}

#[cfg(test)]
mod tests;
