//! Products of bytes in tile registers: the class and the bits of [`int8`](super::int8()) for groups of rows.
//!
//! Weights of a block are written as bytes to memory of the thread, lines of four inputs of sixteen outputs, which are what a tile
//! register takes; the next block's are written while the tiles multiply those of this one.
//!
//! * Blocks of 32: bytes are the integers that codes stand for. A tile adds up a block, and the f32 scales follow.
//! * Blocks of 256: the product of that integer and the group's scale is told in two bytes, so that a tile adds up a block whatever the scales of its
//!   groups: the two of the product itself, or products of small codes with the low and the high bits of the scale. Sums are below
//!   `256 * 255 * 127`.

use super::{
    Ints, MANY, Operands, Sums, Vector, fetch,
    scales::{Close, Of, after_block, scales, unit},
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

/// Blocks of 32 between writing bytes and their load into a tile, which waits until they are in the cache: three are enough on Sapphire Rapids.
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

/// Memory of a thread for the weights of two blocks and for sums of products.
#[repr(align(64))]
pub(in crate::cpu) struct Room {
    /// `[block % 2][part][low or high][four inputs]`.
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

/// Writes `sums[r][n]` for the rows of a group.
///
/// # Safety
/// `operands` names a tile of the kind, and a group of at most [`MANY`] rows in its layout of codes; `registers` are configured to
/// [`shapes`] of as many rows.
#[inline(always)]
pub(in crate::cpu) unsafe fn tiled<V: TileVector, T: Tiles, K: Kind>(
    v: V,
    registers: &mut T,
    operands: Operands,
    room: &mut Room,
    sums: &mut Sums,
) {
    assert!(operands.rows <= MANY);
    sums.0[..operands.rows].fill([0.0; TILE]);
    // SAFETY: promised by the caller.
    unsafe {
        if const { K::CODING.has_groups() } {
            blocks_of_256::<V, T, K>(v, registers, operands, room, sums);
        } else {
            blocks_of_32::<V, T, K>(v, registers, operands, room, sums);
        }
    }
}

/// First row of tile `g` of activations: the last tile may share rows with the one before, and finds the same for them.
#[inline(always)]
fn first_of(g: usize, rows: usize) -> usize {
    (g * ROWS).min(rows.saturating_sub(ROWS))
}

/// # Safety
/// As [`tiled`], for a kind without groups.
#[inline(always)]
unsafe fn blocks_of_32<V: TileVector, T: Tiles, K: Kind>(
    v: V,
    registers: &mut T,
    operands: Operands,
    room: &mut Room,
    sums: &mut Sums,
) {
    let Operands { tile, blocks, x, rows, ahead } = operands;
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let Room { weights: [weights, _], ints: [ints, _] } = room;
    let block = |b: usize| tile.wrapping_add(b * layout.bytes);
    let rows_of = |b: usize| x.wrapping_add(b * rows * row);
    let groups = rows.div_ceil(ROWS);
    // Product `i` is of block `i / groups`. It is stored two products later, so that no later load waits for a store that waits for it.
    let products = blocks * groups;
    let (mut b, mut g) = (0, 0);
    let mut closing = (0, 0);
    // SAFETY: blocks and their rows are inside what the caller named; 16 rows from each first one, or as many as there are, are
    // rows of the group, and totals and integers have room for them.
    unsafe {
        for b in 0..blocks.min(EARLY) {
            write::<V, K>(v, block(b), ahead, &mut weights[b][0]);
        }
        for i in 0..products + 3 {
            if i < products {
                if g == 0 && b + EARLY < blocks {
                    write::<V, K>(v, block(b + EARLY), ahead, &mut weights[(b + EARLY) % 8][0]);
                }
                let weights = weights[b % 8][0].as_ptr().cast();
                let x = rows_of(b).add(first_of(g, rows) * row);
                match i % 4 {
                    0 => multiply::<T, 0, 4, 6>(registers, weights, x, row),
                    1 => multiply::<T, 1, 5, 7>(registers, weights, x, row),
                    2 => multiply::<T, 2, 4, 6>(registers, weights, x, row),
                    _ => multiply::<T, 3, 5, 7>(registers, weights, x, row),
                }
                g += 1;
                if g == groups {
                    (b, g) = (b + 1, 0);
                }
            }
            if (2..products + 2).contains(&i) {
                let to = ints.0[(i - 2) % 4 * ROWS].as_mut_ptr().cast();
                match i % 4 {
                    0 => registers.store::<2>(to),
                    1 => registers.store::<3>(to),
                    2 => registers.store::<0>(to),
                    _ => registers.store::<1>(to),
                }
            }
            if i >= 3 {
                let (b, g) = closing;
                let (first, ints) = (first_of(g, rows), &ints.0[(i - 3) % 4 * ROWS..][..ROWS]);
                let new = g * ROWS..rows.min((g + 1) * ROWS);
                let x = rows_of(b).add(new.start * row);
                close::<V, K>(v, block(b), x, &ints[new.start - first..], &mut sums.0[new]);
                closing = if g + 1 == groups { (b + 1, 0) } else { (b, g + 1) };
            }
        }
    }
}

/// A result of its own for the products of a block and 16 rows, or as many as there are.
///
/// # Safety
/// The tiles' rows are readable, `row` bytes apart in `x`.
#[inline(always)]
unsafe fn multiply<T: Tiles, const C: usize, const A: usize, const B: usize>(
    registers: &mut T,
    weights: *const u8,
    x: *const u8,
    row: usize,
) {
    // SAFETY: promised by the caller.
    unsafe {
        registers.zero::<C>();
        registers.load::<B>(weights, ROW_BYTES);
        registers.load::<A>(x, row);
    }
    registers.multiply_signed::<C, A, B>();
}

/// The integers of a block of 32.
///
/// # Safety
/// `block` is a packed block without groups.
#[inline(always)]
unsafe fn write<V: TileVector, K: Kind>(v: V, block: *const u8, ahead: usize, to: &mut [Line; LINES]) {
    let layout = Of::<V, K>::LAYOUT;
    fetch(layout, block, 0, ahead);
    for (q, line) in to.iter_mut().enumerate() {
        // SAFETY: promised by the caller; a line has 64 bytes.
        unsafe {
            let bytes = quad::<V, K>(v, block.add(layout.codes), q);
            v.store_bytes(line.as_mut_ptr(), v.minus(bytes, K::BIAS));
        }
    }
}

/// Adds a block of 32 to the totals of rows.
///
/// # Safety
/// `block` is a packed block without groups, and `x` are its prepared rows.
#[inline(always)]
unsafe fn close<V: TileVector, K: Kind>(
    v: V,
    block: *const u8,
    x: *const u8,
    ints: &[[i32; TILE]],
    totals: &mut [[f32; TILE]],
) {
    let row = const { Coded::row_bytes(K::CODING) };
    // SAFETY: promised by the caller.
    unsafe {
        let unit = unit::<V, K>(v, block, 0);
        for (r, (total, ints)) in totals.iter_mut().zip(ints).enumerate() {
            let (before, ints) = (v.load(total.as_ptr()), v.load_ints(ints.as_ptr()));
            v.store(total.as_mut_ptr(), after_block::<V, K>(v, before, ints, unit, x.add(r * row)));
        }
    }
}

/// How products of codes and scales are told in two bytes.
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
        Scales::WithMins { .. } | Scales::Signed { .. } | Scales::Block { .. } => Bytes::OfProduct,
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

/// # Safety
/// As [`tiled`], for a kind with groups.
#[inline(always)]
unsafe fn blocks_of_256<V: TileVector, T: Tiles, K: Kind>(
    v: V,
    registers: &mut T,
    operands: Operands,
    room: &mut Room,
    sums: &mut Sums,
) {
    let Operands { tile, blocks, x, rows, ahead } = operands;
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let Room { weights, ints: [low, high] } = room;
    let block = |b: usize| tile.wrapping_add(b * layout.bytes);
    let rows_of = |b: usize| x.wrapping_add(b * rows * (8 * row + SUMS));
    for (p, to) in weights[0].iter_mut().enumerate() {
        // SAFETY: the block is inside what the caller named.
        unsafe { write_scaled::<V, K>(v, block(0), p, ahead, to) };
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
                if pair == 0 && b + 1 < blocks {
                    // SAFETY: as above.
                    unsafe { write_scaled::<V, K>(v, block(b + 1), p, ahead, next) };
                }
                let x = rows_of(b).wrapping_add(p * rows * row);
                // SAFETY: 16 rows from each first one, or as many as there are, are rows of the group.
                unsafe {
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
        // SAFETY: the block and what follows its rows are inside what the caller named; totals and integers have room for `MANY` rows.
        unsafe {
            let close = Close::new::<K>(v, block(b), 0);
            let tails = rows_of(b).add(8 * rows * row);
            for (r, total) in sums.0[..rows].iter_mut().enumerate() {
                let (low, high) = (v.load_ints(low.0[r].as_ptr()), v.load_ints(high.0[r].as_ptr()));
                let ints = v.joined(low, high, K::LOW_BITS);
                let after = close.total::<K>(v, v.load(total.as_ptr()), ints, tails.add(r * SUMS));
                v.store(total.as_mut_ptr(), after);
            }
        }
    }
}

/// The products of codes and scales of part `p`.
///
/// # Safety
/// `block` is a packed block with groups, and `p` below 8.
#[inline(always)]
unsafe fn write_scaled<V: TileVector, K: Kind>(
    v: V,
    block: *const u8,
    p: usize,
    ahead: usize,
    to: &mut [[Line; LINES]; 2],
) {
    let layout = Of::<V, K>::LAYOUT;
    fetch(layout, block, p, ahead);
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
