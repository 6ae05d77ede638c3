//! Products of bytes in tile registers: the class and the bits of [`int8`](super::int8()) for groups of rows, over
//! kinds with blocks of 256.
//!
//! Weights are written as bytes to memory of the thread, lines of four inputs of sixteen outputs, which are what a tile
//! register takes; those of the next parts are written while the tiles multiply. A byte is no code: the product of its
//! integer and the group's scale is split into two, so that a tile adds up a block whatever the scales of its groups.
//! They are the bytes of the product itself, or products of small codes with the low and with the high bits of the
//! scale. Sums are below `256 * 255 * 127`.
//!
//! Blocks of 32 would leave a tile at every block, to be scaled. On a Xeon a load of a tile takes 8 cycles and a store
//! 17, whatever its rows: as many as vectors need for the products of eight rows. Twice measured, tiles lost below
//! twelve rows, and gained a tenth at most above, so vectors multiply such blocks.

use super::{
    Distances, Fetching, Ints, MANY, Operands, Sums, Vector, fetch,
    scales::{Close, Of, scales},
    unpack::{Codes, quad},
};
use crate::{
    cpu::{
        activations::{Coded, SUMS},
        amx::{ROW_BYTES, ROWS, Shape, Tiles},
        packing::{PART, TILE},
    },
    format::{Kind, Scales},
};

/// Lines of a part.
const LINES: usize = PART / 4;

/// Parts between writing bytes and their load into a tile, which waits until they are in the cache: three are enough on
/// the Xeon that it was measured on.
const EARLY: usize = 4;

/// What writing bytes for tiles asks of vectors of sixteen outputs.
pub(in crate::cpu) trait TileVector: Vector {
    /// A scale of a group for each output, to multiply bytes by.
    type Factor: Copy;
    /// A scale of a group for each output, and what it makes of a bias.
    type Biased: Copy;

    /// # Safety
    /// 64 bytes are writable.
    unsafe fn store_bytes(self, at: *mut u8, bytes: Self::Bytes);
    /// The low `bits` bits of scales that are not negative, and the others.
    fn parts(self, scale: Self::Scale, bits: u32) -> [Self::Factor; 2];
    /// Products below 256 of unsigned bytes and a factor.
    fn products(self, bytes: Self::Bytes, factor: Self::Factor) -> Self::Bytes;
    /// Of scales that fit into signed bytes.
    fn biased(self, scale: Self::Scale, bias: u8) -> Self::Biased;
    /// The low and the high bytes of the 16-bit products of the scale and unsigned bytes less the bias.
    fn long_products(self, bytes: Self::Bytes, scale: Self::Biased) -> [Self::Bytes; 2];
    /// `low + (high << bits)`.
    fn joined(self, low: Self::Ints, high: Self::Ints, bits: u32) -> Self::Ints;
}

/// A line of weights: four bytes of each output.
type Line = [u8; ROW_BYTES];

/// Memory of a thread for weights and for sums of products.
#[repr(align(64))]
pub(in crate::cpu) struct Room {
    /// Of two tiles or two blocks: `[part % 8][low or high][four inputs]`.
    weights: [[[[Line; LINES]; 2]; 8]; 2],
    ints: [Ints; 2],
}

impl Room {
    pub(in crate::cpu) const EMPTY: Self =
        Self { weights: [[[[[0; ROW_BYTES]; LINES]; 2]; 8]; 2], ints: [Ints::ZERO, Ints::ZERO] };
}

/// Shapes of the tile registers for a group of `rows` rows: results 0 to 3, activations 4 and 5, weights 6 and 7.
pub(in crate::cpu) fn shapes(rows: usize) -> [Shape; 8] {
    let rows = rows.min(ROWS) as u8;
    let (results, x) = (Shape::of_rows(rows), Shape { rows, row_bytes: PART as u8 });
    let weights = Shape::of_rows(LINES as u8);
    [results, results, results, results, x, x, weights, weights]
}

/// Writes `sums[t][r][n]` for the rows of a group.
///
/// # Safety
/// The kind has groups; `operands` names as many tiles of it as there are sums, and a group of at most [`MANY`] rows in
/// its layout of codes; `registers` are configured to [`shapes`] of as many rows.
#[inline(always)]
pub(in crate::cpu) unsafe fn tiled<V: TileVector, T: Tiles, K: Kind>(
    v: V,
    registers: &mut T,
    operands: Operands,
    room: &mut Room,
    sums: &mut [Sums],
) {
    assert!(operands.rows <= MANY);
    sums.iter_mut().for_each(|sums| sums.0[..operands.rows].fill([0.0; TILE]));
    // SAFETY: promised by the caller.
    unsafe {
        if operands.rows <= ROWS {
            return one_group::<V, T, K>(v, registers, operands, room, sums);
        }
        for (t, sums) in sums.iter_mut().enumerate() {
            groups::<V, T, K>(v, registers, operands.of_tile(Of::<V, K>::LAYOUT, t), room, sums);
        }
    }
}

/// First row of tile `g` of activations: the last tile may share rows with the one before, and finds the same for them.
#[inline(always)]
fn first_of(g: usize, rows: usize) -> usize {
    (g * ROWS).min(rows.saturating_sub(ROWS))
}

/// How products of codes and scales are split into two bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bytes {
    /// Unsigned ones: the products with the low bits of the scale, so many, and with its other bits.
    OfScale(u32),
    /// The low and the high byte, which is signed.
    OfProduct,
}

trait InBytes: Codes {
    const BYTES: Bytes = match Self::CODING.scales {
        Scales::WithMins { .. } if Self::BIAS == 0 && Self::LARGEST * 15 < 256 => Bytes::OfScale(4),
        // Scales of groups of 32 have six bits.
        Scales::WithMins { .. } if Self::BIAS == 0 && Self::LARGEST * 7 < 256 => Bytes::OfScale(3),
        Scales::WithMins { .. } | Scales::Signed { .. } | Scales::Block { .. } | Scales::Halves => {
            Bytes::OfProduct
        }
    };
    /// Bits of the scale or the product in the first byte.
    const LOW_BITS: u32 = match Self::BYTES {
        Bytes::OfScale(bits) => bits,
        Bytes::OfProduct => 8,
    };
    /// Whether the first byte tells all: scales of groups of 16 with minima have four bits.
    const HAS_ONE: bool =
        matches!((Self::BYTES, Self::CODING.scales), (Bytes::OfScale(4), Scales::WithMins { len: 16 }));
}

impl<K: Codes> InBytes for K {}

/// The tiles of weights in turn, part by part.
///
/// # Safety
/// As [`tiled`], for at most 16 rows.
#[inline(always)]
unsafe fn one_group<V: TileVector, T: Tiles, K: Kind>(
    v: V,
    registers: &mut T,
    operands: Operands,
    room: &mut Room,
    sums: &mut [Sums],
) {
    let Operands { tile, blocks, x, rows, .. } = operands;
    let row = const { Coded::row_bytes(K::CODING) };
    let layout = Of::<V, K>::LAYOUT;
    let distances = Distances::new(layout, &operands, sums.len());
    let block = |t: usize, b: usize| tile.wrapping_add((t * blocks + b) * layout.bytes);
    let rows_of = |b: usize| x.wrapping_add(b * rows * (8 * row + SUMS));
    let Room { weights, ints: [low, high] } = room;
    // SAFETY: blocks and their rows are inside what the caller named; totals and integers have room for the rows.
    unsafe {
        for (t, weights) in weights.iter_mut().enumerate().take(sums.len()) {
            for (p, weights) in weights.iter_mut().enumerate().take(EARLY) {
                write::<V, K>(v, block(t, 0), p, distances.at(0), weights);
            }
        }
        for b in 0..blocks {
            registers.zero::<0>();
            registers.zero::<1>();
            registers.zero::<2>();
            registers.zero::<3>();
            for p in 0..8 {
                let early = 8 * b + p + EARLY;
                if early < 8 * blocks {
                    let fetching = distances.at(early / 8);
                    for (t, weights) in weights.iter_mut().enumerate().take(sums.len()) {
                        let weights = &mut weights[early % 8];
                        write::<V, K>(v, block(t, early / 8), early % 8, fetching, weights);
                    }
                }
                registers.load::<4>(rows_of(b).add(p * rows * row), row);
                registers.load::<6>(weights[0][p][0].as_ptr().cast(), ROW_BYTES);
                registers.multiply_unsigned::<0, 4, 6>();
                if const { !K::HAS_ONE } {
                    registers.load::<7>(weights[0][p][1].as_ptr().cast(), ROW_BYTES);
                    multiply_second::<T, K, 1, 4>(registers);
                }
                if sums.len() > 1 {
                    registers.load::<6>(weights[1][p][0].as_ptr().cast(), ROW_BYTES);
                    registers.multiply_unsigned::<2, 4, 6>();
                    if const { !K::HAS_ONE } {
                        registers.load::<7>(weights[1][p][1].as_ptr().cast(), ROW_BYTES);
                        multiply_second::<T, K, 3, 4>(registers);
                    }
                }
            }
            registers.store::<0>(low.0[0].as_mut_ptr().cast());
            registers.store::<1>(high.0[0].as_mut_ptr().cast());
            registers.store::<2>(low.0[ROWS].as_mut_ptr().cast());
            registers.store::<3>(high.0[ROWS].as_mut_ptr().cast());
            let tails = rows_of(b).add(8 * rows * row);
            for (t, sums) in sums.iter_mut().enumerate() {
                let (low, high) = (&low.0[t * ROWS..], &high.0[t * ROWS..]);
                close::<V, K>(v, block(t, b), tails, [low, high], &mut sums.0[..rows]);
            }
        }
    }
}

/// Adds a block to the totals of rows.
///
/// # Safety
/// `block` is a packed block with groups, and `x` is what follows the prepared rows of its parts.
#[inline(always)]
unsafe fn close<V: TileVector, K: Kind>(
    v: V,
    block: *const u8,
    x: *const u8,
    [low, high]: [&[[i32; TILE]]; 2],
    totals: &mut [[f32; TILE]],
) {
    // SAFETY: promised by the caller.
    unsafe {
        let close = Close::new::<K>(v, block, 0);
        for (r, ((total, low), high)) in totals.iter_mut().zip(low).zip(high).enumerate() {
            let (low, high) = (v.load_ints(low.as_ptr()), v.load_ints(high.as_ptr()));
            let ints = v.joined(low, high, K::LOW_BITS);
            let after = close.total::<K>(v, v.load(total.as_ptr()), ints, x.add(r * SUMS));
            v.store(total.as_mut_ptr(), after);
        }
    }
}

/// One tile of weights: a block's bytes serve two groups of 16 rows after the other two.
///
/// # Safety
/// As [`tiled`].
#[inline(always)]
unsafe fn groups<V: TileVector, T: Tiles, K: Kind>(
    v: V,
    registers: &mut T,
    operands: Operands,
    room: &mut Room,
    sums: &mut Sums,
) {
    let Operands { tile, blocks, x, rows, fetching, .. } = operands;
    let row = const { Coded::row_bytes(K::CODING) };
    let block = |b: usize| tile.wrapping_add(b * Of::<V, K>::LAYOUT.bytes);
    let rows_of = |b: usize| x.wrapping_add(b * rows * (8 * row + SUMS));
    let Room { weights, ints: [low, high] } = room;
    for (p, to) in weights[0].iter_mut().enumerate() {
        // SAFETY: the block is inside what the caller named.
        unsafe { write::<V, K>(v, block(0), p, fetching, to) };
    }
    for b in 0..blocks {
        let [even, odd] = &mut *weights;
        let (now, next) = if b % 2 == 0 { (even, odd) } else { (odd, even) };
        for pair in (0..rows.div_ceil(ROWS)).step_by(2) {
            let first = first_of(pair, rows);
            let second = ((pair + 1) * ROWS < rows).then(|| first_of(pair + 1, rows));
            registers.zero::<0>();
            registers.zero::<1>();
            registers.zero::<2>();
            registers.zero::<3>();
            for (p, (now, next)) in now.iter().zip(next.iter_mut()).enumerate() {
                // SAFETY: the block is inside what the caller named; 16 rows from each first one are rows of the group.
                unsafe {
                    if pair == 0 && b + 1 < blocks {
                        write::<V, K>(v, block(b + 1), p, fetching, next);
                    }
                    let x = rows_of(b).add(p * rows * row);
                    registers.load::<6>(now[0].as_ptr().cast(), ROW_BYTES);
                    registers.load::<4>(x.add(first * row), row);
                    registers.multiply_unsigned::<0, 4, 6>();
                    if const { !K::HAS_ONE } {
                        registers.load::<7>(now[1].as_ptr().cast(), ROW_BYTES);
                        multiply_second::<T, K, 1, 4>(registers);
                    }
                    if let Some(second) = second {
                        registers.load::<5>(x.add(second * row), row);
                        registers.multiply_unsigned::<2, 5, 6>();
                        if const { !K::HAS_ONE } {
                            multiply_second::<T, K, 3, 5>(registers);
                        }
                    }
                }
            }
            // SAFETY: integers have room for 16 rows from each first one.
            unsafe {
                registers.store::<0>(low.0[first].as_mut_ptr().cast());
                registers.store::<1>(high.0[first].as_mut_ptr().cast());
                if let Some(second) = second {
                    registers.store::<2>(low.0[second].as_mut_ptr().cast());
                    registers.store::<3>(high.0[second].as_mut_ptr().cast());
                }
            }
        }
        // SAFETY: the block and what follows its rows are inside what the caller named.
        unsafe {
            let tails = rows_of(b).add(8 * rows * row);
            close::<V, K>(v, block(b), tails, [&low.0, &high.0], &mut sums.0[..rows]);
        }
    }
}

/// The products of codes and scales of part `p`.
///
/// # Safety
/// `block` is a packed block with groups, and `p` below 8.
#[inline(always)]
unsafe fn write<V: TileVector, K: Kind>(
    v: V,
    block: *const u8,
    p: usize,
    fetching: Fetching,
    to: &mut [[Line; LINES]; 2],
) {
    let layout = Of::<V, K>::LAYOUT;
    fetch(layout, block, p, fetching);
    // SAFETY: promised by the caller; a line has 64 bytes.
    unsafe {
        let codes = block.add(layout.codes + p * layout.part_bytes);
        let [first, second] = scales::<V, K>(v, block, p, 0);
        match const { K::BYTES } {
            Bytes::OfScale(bits) => {
                let factors = [v.parts(first, bits), v.parts(second, bits)];
                for q in 0..LINES {
                    let (bytes, factors) = (quad::<V, K>(v, codes, q), factors[2 * q / LINES]);
                    v.store_bytes(to[0][q].as_mut_ptr(), v.products(bytes, factors[0]));
                    if const { !K::HAS_ONE } {
                        v.store_bytes(to[1][q].as_mut_ptr(), v.products(bytes, factors[1]));
                    }
                }
            }
            Bytes::OfProduct => {
                let scales = [v.biased(first, K::BIAS), v.biased(second, K::BIAS)];
                for q in 0..LINES {
                    let bytes = quad::<V, K>(v, codes, q);
                    let [low, high] = v.long_products(bytes, scales[2 * q / LINES]);
                    v.store_bytes(to[0][q].as_mut_ptr(), low);
                    v.store_bytes(to[1][q].as_mut_ptr(), high);
                }
            }
        }
    }
}

/// Adds the products of activations with second bytes.
#[inline(always)]
fn multiply_second<T: Tiles, K: Kind, const C: usize, const A: usize>(registers: &mut T) {
    match const { K::BYTES } {
        Bytes::OfScale(_) => registers.multiply_unsigned::<C, A, 7>(),
        Bytes::OfProduct => registers.multiply_signed::<C, A, 7>(),
    }
}
