//! Prepared activations: rows laid out for the linear kernels in a thread's scratch.
//!
//! Rows come in groups. Inside a group, blocks of 32 inputs follow each other, and inside a block the rows of the
//! group: a kernel walks one pointer, whatever the width. By numeric class:
//!
//! * `F32`: the values, `[group][block][row][32]`.
//! * `F32Sums`: the values, then the sums of the first and of the last 16, 136 bytes in all.
//! * `Bf16`: the values rounded to nearest even in bf16.
//! * `Bf16Tiles`: as `Bf16`, in groups of 16 rows.
//! * `Coded`: bytes of a [`CodedBlock`](crate::reference::CodedBlock), and what kernels want to know of them: see
//!   [`Coded`].
//!
//! Inputs past `K` in the last block are zeros.

use super::{
    PackedLinear,
    codes::{ByteProducts, Fetching, MANY, Operands, TOGETHER, bias, is_wide},
    packing::{BLOCK, TILE},
    tuning::{Reading, Tuning},
};
use crate::{Activations, Tier, WeightFormat, format::Coding};
use std::ops::Range;

/// Rows in a full group of a dense format. Each keeps two chains of sums, which together take half of AVX-512's
/// registers; AVX2 takes a group in parts.
pub(super) const GROUP: usize = 8;

/// Bytes of a row of a block of `F32Sums`, and the place of its sums.
pub(super) const F32_ROW: usize = F32_SUMS + 8;
pub(super) const F32_SUMS: usize = 4 * BLOCK;

/// Bytes that a row of codes has after each 256 inputs if they share a scale: the f32 scale, then the sums of the codes
/// of each group, 16 bits each.
pub(super) const SUMS: usize = 4 + 2 * 16;

/// How activations lie in scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    F32,
    F32Sums,
    Bf16,
    Bf16Tiles,
    Coded(Coded),
}

/// Activations as bytes. A row of a block is 32 codes, then what sums of products start from: minus the product of the
/// weights' bias and the sum of the codes. Where a scale is for 32 inputs, the f32 scale follows, then the f32 product of
/// the scale and the sum of the codes, or, if weights have groups of 16, the start of the second of them. Where it is for
/// 256, there are two starts, for 16 inputs each if weights have groups of 16, else the first for all 32; and [`SUMS`]
/// bytes a row follow the eight blocks of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coded {
    /// Whether activations share a scale by 256, else by 32.
    pub(super) by_256: bool,
    /// Weights that share a scale.
    pub(super) group_len: usize,
    /// What weights' codes are above their values.
    pub(super) bias: u8,
    /// Whether a start is two numbers of 16 bits: for the first two and the last two of every four inputs.
    pub(super) is_split: bool,
}

impl Coded {
    /// Place of the first start.
    pub(super) const START: usize = BLOCK;
    /// Place of the scale of 32 inputs.
    pub(super) const SCALE: usize = BLOCK + 4;
    /// Place of the product of the scale and the sum of the codes.
    pub(super) const SCALED_SUM: usize = BLOCK + 8;

    /// Place of the start of a second group of 16 inputs.
    pub(super) const fn second_start(by_256: bool) -> usize {
        if by_256 { Self::START + 4 } else { Self::SCALED_SUM }
    }

    fn of(coding: Coding, products: ByteProducts) -> Self {
        let is_signed = products.signs_wide() && is_wide(coding.bits, coding.meaning);
        let bias = if is_signed { 0 } else { bias(coding.meaning) };
        Self {
            by_256: coding.has_groups(),
            group_len: coding.group_len(),
            bias,
            is_split: products.is_split(),
        }
    }

    /// Bytes of a row of a block of 32.
    pub(super) const fn row_bytes(coding: Coding) -> usize {
        if coding.has_groups() { Self::SCALE + 4 } else { Self::SCALED_SUM + 4 }
    }
}

impl Layout {
    /// The layout of a numeric class, for a processor that multiplies bytes so.
    pub(super) fn of(
        format: WeightFormat,
        activations: Activations,
        tier: Tier,
        products: ByteProducts,
    ) -> Self {
        match (format.coding(), activations) {
            (Some(coding), Activations::Int8) => Self::Coded(Coded::of(coding, products)),
            (Some(_), Activations::Native) => Self::F32Sums,
            (None, _) => match (format, tier) {
                (WeightFormat::BF16, Tier::Avx512Bf16) => Self::Bf16,
                (WeightFormat::BF16, Tier::Amx) => Self::Bf16Tiles,
                _ => Self::F32,
            },
        }
    }

    /// Bytes of one row of one block, without what follows 256 inputs.
    pub(super) const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4 * BLOCK,
            Self::F32Sums => F32_ROW,
            Self::Bf16 | Self::Bf16Tiles => 2 * BLOCK,
            Self::Coded(Coded { by_256: false, .. }) => Coded::SCALED_SUM + 4,
            Self::Coded(Coded { by_256: true, .. }) => Coded::SCALE + 4,
        }
    }

    /// Bytes of one row after each eight blocks.
    pub(super) const fn tail_bytes(self) -> usize {
        match self {
            Self::Coded(Coded { by_256: true, .. }) => SUMS,
            _ => 0,
        }
    }

    /// Bytes of a row.
    pub(super) const fn row_bytes(self, columns: usize) -> usize {
        columns.div_ceil(BLOCK) * self.block_bytes() + columns / 256 * self.tail_bytes()
    }

    /// Rows that share the unpacking of a weight, at most.
    pub(super) const fn most_rows(self) -> usize {
        match self {
            Self::F32 | Self::Bf16 => GROUP,
            Self::F32Sums | Self::Coded(_) => MANY,
            Self::Bf16Tiles => 16,
        }
    }
}

/// Activations ready for linears of one class, borrowed from scratch.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<'s> {
    pub(super) layout: Layout,
    pub(super) width: usize,
    pub(super) columns: usize,
    pub(super) tuning: Tuning,
    pub(super) bytes: &'s [u8],
}

impl Prepared<'_> {
    /// Rows, `W`.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Inputs, `K`.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The products of the given tiles of outputs, in the order of the tuning: of a pass over tiles, the tiles of a
    /// group follow each other.
    pub(super) fn products_with<'a>(
        &'a self,
        weights: &'a PackedLinear,
        tiles: Range<usize>,
    ) -> impl Iterator<Item = ProductOperands<'a>> {
        let together = if weights.is_gated() { 1 } else { TOGETHER };
        let of_pass = move |pass: Range<usize>| {
            let of_group = move |(first_row, rows, group)| {
                let reading = self.tuning.reading(weights, self.layout, rows);
                let end = pass.end;
                pass.clone().step_by(together).map(move |tile| {
                    let tiles = tile..end.min(tile + together);
                    ProductOperands { weights, tiles, layout: self.layout, first_row, rows, group, reading }
                })
            };
            self.groups().flat_map(of_group)
        };
        self.tuning.passes(tiles).flat_map(of_pass)
    }

    /// First row, rows and bytes of each group.
    fn groups(&self) -> impl Iterator<Item = (usize, usize, &[u8])> {
        let row_bytes = self.layout.row_bytes(self.columns);
        let most = self.tuning.rows(self.layout);
        (0..self.width).step_by(most).map(move |first| {
            let rows = most.min(self.width - first);
            (first, rows, &self.bytes[first * row_bytes..][..rows * row_bytes])
        })
    }
}

/// Operands of one product: a group of rows, and the tiles that multiply it.
#[derive(Clone, Debug)]
pub(super) struct ProductOperands<'a> {
    pub(super) weights: &'a PackedLinear,
    /// Tiles of outputs, up to [`TOGETHER`]; one of a gated pair.
    pub(super) tiles: Range<usize>,
    pub(super) layout: Layout,
    /// Where the rows begin in `x` and in the results.
    pub(super) first_row: usize,
    pub(super) rows: usize,
    /// The rows, prepared.
    pub(super) group: &'a [u8],
    reading: Reading,
}

impl ProductOperands<'_> {
    /// Stored tile `t`. A tile of a gated pair is stored as two.
    pub(super) fn stored(&self, t: usize) -> &[u8] {
        let first = if self.weights.is_gated() { 2 * self.tiles.start } else { self.tiles.start };
        self.weights.tile(first + t)
    }

    /// The operands of a kernel, from stored tile `t` on.
    pub(super) fn operands(&self, t: usize) -> Operands {
        let Reading { streams, ahead, in_pairs } = self.reading;
        Operands {
            tile: self.stored(t).as_ptr(),
            blocks: self.weights.blocks(),
            x: self.group.as_ptr(),
            rows: self.rows,
            streams,
            fetching: Fetching { ahead, in_pairs },
        }
    }

    /// Columns of the results of a tile.
    pub(super) fn outputs(&self, tile: usize) -> Range<usize> {
        tile * TILE..self.weights.outputs().min((tile + 1) * TILE)
    }
}

/// Where a row lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    layout: Layout,
    /// Byte at which the row's group begins.
    group: usize,
    /// Rows of the group.
    rows: usize,
    /// The row in its group.
    row: usize,
}

impl Place {
    /// Of row `w` of `width`, in groups of `group`.
    pub(super) fn new(layout: Layout, group: usize, width: usize, columns: usize, w: usize) -> Self {
        let first = w / group * group;
        Self {
            layout,
            group: first * layout.row_bytes(columns),
            rows: group.min(width - first),
            row: w - first,
        }
    }

    /// Bytes of block `b` of the row.
    #[inline(always)]
    pub(super) fn block(self, b: usize) -> Range<usize> {
        let (bytes, tail) = (self.layout.block_bytes(), self.layout.tail_bytes());
        let start = self.group + self.rows * (b * bytes + b / 8 * tail) + self.row * bytes;
        start..start + bytes
    }

    /// What follows the eight blocks `8 i .. 8 i + 8`.
    #[inline(always)]
    pub(super) fn tail(self, i: usize) -> Range<usize> {
        let (bytes, tail) = (self.layout.block_bytes(), self.layout.tail_bytes());
        let start = self.group + self.rows * (8 * (i + 1) * bytes + i * tail) + self.row * tail;
        start..start + tail
    }
}

/// A scratch of f32 as numbers.
pub(super) fn floats(bytes: &[u8]) -> &[f32] {
    // SAFETY: every bit pattern is an f32.
    let (before, floats, after) = unsafe { bytes.align_to() };
    assert!(before.is_empty() && after.is_empty(), "scratch must be aligned");
    floats
}

/// As [`floats`], to write.
pub(super) fn floats_mut(bytes: &mut [u8]) -> &mut [f32] {
    // SAFETY: every bit pattern is an f32, and its bytes are plain bytes.
    let (before, floats, after) = unsafe { bytes.align_to_mut() };
    assert!(before.is_empty() && after.is_empty(), "scratch must be aligned");
    floats
}
