//! Prepared activations: rows laid out for the linear kernels in a thread's scratch.
//!
//! Rows come in groups of up to 8. Inside a group, blocks of 32 inputs follow each other, and inside a block the rows
//! of the group: a kernel walks one pointer, whatever the width. Six layouts, by numeric class:
//!
//! * `F32`: the values, `[group][block][row][32]`.
//! * `F32Unplaced`: the values, each divided by the place value of its column's 4-bit code in the 32-bit word of an
//!   output, a power of two (exact for all but numbers below 2^-98); then the f32 sum of the undivided values, 132 bytes in all.
//! * `Bf16`: the values rounded to nearest even in bf16, then the f32 sum of the rounded values, 68 bytes in all.
//! * `Bf16Tiles`: the values rounded as in `Bf16`, in groups of up to 16 rows: `[group][block][row][32]`. After all of
//!   them the f32 sums of the rounded values, `[group][block][row]`; 68 bytes in all.
//! * `Int8`: the bytes of [`CodedBlock`](crate::reference::CodedBlock), then its f32 scale, the f32 product of its scale
//!   and the sum of its codes, and that sum as i32, negated; 44 bytes in all.
//! * `Int8Nibbles`: the same, every eight codes in the order in which the nibbles of a 32-bit word of packed codes come
//!   out: first the low nibbles of its bytes, then the high ones ([`NIBBLE_ORDER`]).
//!
//! Inputs past `K` in the last block are zeros.

use super::{
    packing::{BLOCK, nibble_at},
    tuning::Tuning,
};
use crate::{Activations, Tier, WeightFormat};
use std::ops::Range;

/// Rows in a full group.
pub(super) const GROUP: usize = 8;

/// How activations lie in scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    F32,
    F32Unplaced,
    Bf16,
    Bf16Tiles,
    Int8,
    Int8Nibbles,
}

/// Bytes of a row of a block in the layouts of codes.
pub(super) const CODED: usize = BLOCK + 12;
/// Place of the scale in it.
pub(super) const SCALE: usize = BLOCK;
/// Place of the scaled sum of the codes.
pub(super) const SCALED_SUM: usize = BLOCK + 4;
/// Place of the negated sum of the codes.
pub(super) const MINUS_SUM: usize = BLOCK + 8;

/// Which of eight inputs stands at each place.
pub(super) const NIBBLE_ORDER: [usize; 8] = {
    let mut order = [0; 8];
    let mut k = 0;
    while k < 8 {
        let (byte, shift) = nibble_at(0, k);
        order[byte + shift as usize] = k;
        k += 1;
    }
    order
};

impl Layout {
    /// The layout of a numeric class. Of a GPU, whose weights are packed elsewhere, that of the reference.
    pub(super) const fn of(format: WeightFormat, activations: Activations, tier: Tier) -> Self {
        use WeightFormat::{BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
        match (activations.over(format), tier, format) {
            (Activations::Native, _, _) => Self::native(format, tier),
            (Activations::Int8, Tier::Avx2 | Tier::Avx512 | Tier::Amx, Q4_0 | Q4_1 | Q4_K) => {
                Self::Int8Nibbles
            }
            (Activations::Int8, Tier::Reference | Tier::Portable | Tier::Cuda, _)
            | (Activations::Int8, _, Q8_0 | F32 | F16 | BF16 | Q6_K) => Self::Int8,
        }
    }

    /// The layout of the class with native activations.
    pub(super) const fn native(format: WeightFormat, tier: Tier) -> Self {
        use WeightFormat::{BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
        match (tier, format) {
            (Tier::Reference | Tier::Portable | Tier::Cuda, _)
            | (Tier::Avx2, F32 | F16 | BF16 | Q8_0 | Q6_K)
            | (Tier::Avx512 | Tier::Amx, F32 | F16) => Self::F32,
            (Tier::Avx2, Q4_0 | Q4_1 | Q4_K) => Self::F32Unplaced,
            (Tier::Avx512, BF16 | Q8_0 | Q4_0 | Q4_1) | (Tier::Avx512 | Tier::Amx, Q4_K | Q6_K) => Self::Bf16,
            (Tier::Amx, BF16 | Q8_0 | Q4_0 | Q4_1) => Self::Bf16Tiles,
        }
    }

    /// Bytes of one row of one block.
    pub(super) const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4 * BLOCK,
            Self::F32Unplaced => 4 * BLOCK + 4,
            Self::Bf16 | Self::Bf16Tiles => 2 * BLOCK + 4,
            Self::Int8 | Self::Int8Nibbles => CODED,
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

    /// Each of the given tiles with each group's first row, rows and bytes: the tiles of a group follow each other.
    pub(super) fn meetings(&self, tiles: Range<usize>) -> impl Iterator<Item = (usize, usize, usize, &[u8])> {
        let of_group = move |(first, rows, group)| tiles.clone().map(move |tile| (tile, first, rows, group));
        self.groups().flat_map(of_group)
    }

    /// First row, rows and bytes of each group.
    fn groups(&self) -> impl Iterator<Item = (usize, usize, &[u8])> {
        let row_bytes = self.columns.div_ceil(BLOCK) * self.layout.block_bytes();
        (0..self.width).step_by(self.tuning.rows()).map(move |first| {
            let rows = self.tuning.rows().min(self.width - first);
            (first, rows, &self.bytes[first * row_bytes..][..rows * row_bytes])
        })
    }
}

/// Byte at which block 0 of row `w` starts, and the distance to its next block.
pub(super) const fn row_place(
    layout: Layout,
    group: usize,
    width: usize,
    blocks: usize,
    w: usize,
) -> (usize, usize) {
    let first = w / group * group;
    let rows = if width - first < group { width - first } else { group };
    let block_bytes = layout.block_bytes();
    (first * blocks * block_bytes + (w - first) * block_bytes, rows * block_bytes)
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
