//! Which tile register holds what, for every number of row groups.
//!
//! Registers 0 to 3 hold results, the others activations and weights. Few groups leave registers for several blocks of
//! weights at a time, so that loads and products of one do not wait for another:
//!
//! | groups | blocks at a time | activations | weights |
//! |---|---|---|---|
//! | 1 | 4 | 4, 5 by block | 6, 7 by block |
//! | 2 | 2 | 4, 5 by group | 6, 7 by block |
//! | 3 | 1 | 4, 5, 6 by group | 7 |
//! | 4 | 1 | 4, 5, 4, 6 by group | 7 |

use crate::cpu::amx::tiles::{ROW_BYTES, ROWS, Shape, TILE_BYTES, Tiles};

/// Groups of rows in a chunk, at most, and results held at a time: half of the eight tile registers, so that the other
/// half holds operands.
pub(super) const GROUPS: usize = 4;

/// Shape of each tile register for a chunk of `groups` groups, the last of `last` rows.
pub(super) fn shapes(groups: usize, last: u8) -> [Shape; 8] {
    const FULL: u8 = ROWS as u8;
    let rows = match groups {
        1 => [last, last, last, last, last, last, FULL, FULL],
        2 => [FULL, last, FULL, last, FULL, last, FULL, FULL],
        3 => [FULL, FULL, last, FULL, FULL, FULL, last, FULL],
        4 => [FULL, FULL, FULL, last, FULL, FULL, last, FULL],
        _ => unreachable!("no kernel for {groups} groups of rows"),
    };
    rows.map(Shape::of_rows)
}

/// Operands of a kernel: one stored tile of weights, and a prepared chunk of rows.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// Stored tile of weights.
    pub(super) tile: *const u8,
    pub(super) blocks: usize,
    /// Distance from a weight to the one to fetch ahead of its use.
    pub(super) ahead: usize,
    /// Tiles of a prepared chunk.
    pub(super) x: *const u8,
    /// Rows of the last group.
    pub(super) last: usize,
}

/// `weights register = block: (results register += activations register [group]), ...;` for each block at a time.
macro_rules! multiply {
    (
        $groups:ident, $operands:ident, $registers:ident, $weights:ident, $block:ident;
        $($b:literal = $i:literal: $($c:literal += $a:literal [$g:literal]),+;)+
    ) => {{
        $(if $i == 0 || $block + $i < $operands.blocks {
            $registers.load::<$b>($weights.wrapping_add($i * TILE_BYTES), ROW_BYTES);
            $(
                let place = $operands.place::<$groups>($block + $i, $g);
                $registers.load::<$a>($operands.x.wrapping_add(ROW_BYTES * place), ROW_BYTES);
                $registers.multiply::<$c, $a, $b>();
            )+
        })+
    }};
}

impl Operands {
    /// Rows of group `g` of `G`.
    #[inline(always)]
    pub(super) fn rows<const G: usize>(&self, g: usize) -> usize {
        if g + 1 == G { self.last } else { ROWS }
    }

    /// Index of row 0 of block `b` of group `g` of `G`, among the rows of the chunk's tiles.
    #[inline(always)]
    pub(super) fn place<const G: usize>(&self, b: usize, g: usize) -> usize {
        g * ROWS * self.blocks + b * self.rows::<G>(g)
    }

    /// Adds the products of blocks `b..b + 4 / G`, as far as they exist, to results `G * (block - b) + group`.
    ///
    /// # Safety
    /// These operands are of `G` groups, `registers` are configured for them, and `weights` are bf16 pairs of the
    /// blocks.
    #[inline(always)]
    pub(super) unsafe fn multiply_apart<T: Tiles, const G: usize>(
        &self,
        registers: &mut T,
        weights: *const u8,
        b: usize,
    ) {
        // SAFETY: promised by the caller.
        unsafe {
            match G {
                1 => multiply!(G, self, registers, weights, b;
                    6 = 0: 0 += 4[0]; 7 = 1: 1 += 5[0]; 6 = 2: 2 += 4[0]; 7 = 3: 3 += 5[0];),
                2 => multiply!(G, self, registers, weights, b;
                    6 = 0: 0 += 4[0], 1 += 5[1]; 7 = 1: 2 += 4[0], 3 += 5[1];),
                3 => multiply!(G, self, registers, weights, b; 7 = 0: 0 += 4[0], 1 += 5[1], 2 += 6[2];),
                4 => {
                    multiply!(G, self, registers, weights, b; 7 = 0: 0 += 4[0], 1 += 5[1], 2 += 4[2], 3 += 6[3];)
                }
                _ => unreachable!("no kernel for {G} groups of rows"),
            }
        }
    }

    /// Adds the products of blocks `b` and `b + 1`, as far as they exist (block `b` alone for more than two groups),
    /// to results `group`, in this order.
    ///
    /// # Safety
    /// As [`Self::multiply_apart`].
    #[inline(always)]
    pub(super) unsafe fn multiply_together<T: Tiles, const G: usize>(
        &self,
        registers: &mut T,
        weights: *const u8,
        b: usize,
    ) {
        // SAFETY: promised by the caller.
        unsafe {
            match G {
                1 => multiply!(G, self, registers, weights, b; 6 = 0: 0 += 4[0]; 7 = 1: 0 += 5[0];),
                2 => multiply!(G, self, registers, weights, b;
                    6 = 0: 0 += 4[0], 1 += 5[1]; 7 = 1: 0 += 4[0], 1 += 5[1];),
                _ => self.multiply_apart::<T, G>(registers, weights, b),
            }
        }
    }
}
