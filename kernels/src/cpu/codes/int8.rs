//! Products of codes with activations as bytes: the class of [`linear_int8`](crate::reference::linear_int8).
//!
//! Where sums have 16 bits, no sum leaves them: codes of up to four bits make at most `8 * 2 * 15 * 127` in 32 inputs; those of
//! 5 and 6 bits with a bias wrap, and come back in range as sums start at what the bias adds, negated; those of 5 bits
//! without one are summed by 16 inputs; bytes are multiplied with their signs and summed in 32 bits.

use super::{
    Ints, MANY, Operands, Sums, TOGETHER, Vector, fetch,
    scales::{Close, Of, after_block, scales, unit},
    unpack::{Codes, quad, quad_with_signs},
};
use crate::{
    cpu::{
        activations::{Coded, SUMS},
        packing::{PART, TILE},
    },
    format::Kind,
};

/// Writes `sums[t][r][n]` for the rows of a group.
///
/// # Safety
/// `operands` names tiles of the kind, and a group of at most [`MANY`] rows in its layout of codes.
#[inline(always)]
pub(in crate::cpu) unsafe fn int8<V: Vector, K: Kind>(v: V, operands: Operands, sums: &mut [Sums]) {
    for (i, sums) in sums.chunks_mut(operands.streams).enumerate() {
        let operands = operands.of_tile(Of::<V, K>::LAYOUT, i * operands.streams);
        // SAFETY: promised by the caller.
        unsafe {
            match (operands.rows, sums.len()) {
                (rows, _) if rows > Of::<V, K>::FEW => many::<V, K>(v, operands, sums),
                (1, 1) => few::<V, K, 1, false>(v, operands, sums),
                (2, 1) => few::<V, K, 2, false>(v, operands, sums),
                (3, 1) => few::<V, K, 3, false>(v, operands, sums),
                (_, 1) => few::<V, K, 4, false>(v, operands, sums),
                (1, _) => few::<V, K, 1, true>(v, operands, sums),
                (2, _) => few::<V, K, 2, true>(v, operands, sums),
                (3, _) => few::<V, K, 3, true>(v, operands, sums),
                _ => few::<V, K, 4, true>(v, operands, sums),
            }
        }
    }
}

/// Sums of one row over a part: whole, or by halves.
type Two<V> = [<V as Vector>::Sum; 2];

/// What a row's sums start from: what the bias adds, negated.
///
/// # Safety
/// `row` is a row of a part of a prepared group.
#[inline(always)]
unsafe fn start<V: Vector, K: Kind>(v: V, row: *const u8) -> Two<V> {
    if const { K::BIAS == 0 || Of::<V, K>::SIGNED } {
        return [v.no_sum(); 2];
    }
    // SAFETY: promised by the caller.
    unsafe {
        let first = v.start(row.add(Coded::START));
        if const { K::CODING.group_len() == 16 } {
            [first, v.start(row.add(Coded::START + 4))]
        } else {
            [first, v.no_sum()]
        }
    }
}

/// Sums of `R` rows over a part.
///
/// # Safety
/// `codes` points to a part's codes for the vector's outputs, `x` to row 0 of that part, `stride` is from row to row.
#[inline(always)]
unsafe fn part<V: Vector, K: Kind, const R: usize>(
    v: V,
    codes: *const u8,
    x: *const u8,
    stride: usize,
) -> [Two<V>; R] {
    let mut sums = [[v.no_sum(); 2]; R];
    // SAFETY: promised by the caller.
    unsafe {
        for (r, sums) in sums.iter_mut().enumerate() {
            *sums = start::<V, K>(v, x.add(r * stride));
        }
        for q in 0..PART / 4 {
            if const { Of::<V, K>::SIGNED } {
                let bytes = quad_with_signs::<V, K>(v, codes, q);
                for (r, sums) in sums.iter_mut().enumerate() {
                    sums[0] = v.dot_signed(sums[0], bytes, x.add(r * stride + 4 * q));
                }
            } else {
                let bytes = quad::<V, K>(v, codes, q);
                let half = if const { Of::<V, K>::HALVES } { q / 4 } else { 0 };
                for (r, sums) in sums.iter_mut().enumerate() {
                    sums[half] = v.dot(sums[half], bytes, x.add(r * stride + 4 * q));
                }
            }
        }
    }
    sums
}

/// The sum over a part, not scaled.
#[inline(always)]
fn whole<V: Vector, K: Kind>(v: V, sums: Two<V>) -> V::Ints {
    if const { Of::<V, K>::SIGNED } {
        v.total_signed(sums[0])
    } else if const { Of::<V, K>::HALVES } {
        v.add(v.total(sums[0]), v.total(sums[1]))
    } else {
        v.total(sums[0])
    }
}

/// The sum over a part, each group by its scale.
#[inline(always)]
fn scaled<V: Vector, K: Kind>(v: V, sums: Two<V>, scales: [V::Scale; 2]) -> V::Ints {
    if const { Of::<V, K>::SIGNED } {
        v.times(v.total_signed(sums[0]), v.scale(scales[0]))
    } else if const { Of::<V, K>::HALVES } {
        v.add(v.scaled(sums[0], scales[0]), v.scaled(sums[1], scales[1]))
    } else {
        v.scaled(sums[0], scales[0])
    }
}

/// A value of each vector of outputs of a tile, of each row: of vectors of sixteen only the first is used.
type Each<X, const R: usize> = [[X; 2]; R];

/// Adds part `p` of a block to the integers of rows.
///
/// # Safety
/// `block` is a packed block with groups, `x` are the rows of its part.
#[inline(always)]
unsafe fn add_part<V: Vector, K: Kind, const R: usize>(
    v: V,
    block: *const u8,
    p: usize,
    x: *const u8,
    ahead: usize,
    ints: &mut Each<V::Ints, R>,
) {
    let layout = Of::<V, K>::LAYOUT;
    fetch(layout, block, p, ahead);
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let codes = block.add(layout.codes + p * layout.part_bytes + 4 * V::LANES * i);
            let found = part::<V, K, R>(v, codes, x, const { Coded::row_bytes(K::CODING) });
            let scales = scales::<V, K>(v, block, p, V::LANES * i);
            for (ints, found) in ints.iter_mut().zip(found) {
                ints[i] = v.add(ints[i], scaled::<V, K>(v, found, scales));
            }
        }
    }
}

/// Adds a block of 256, whose integers are there, to the totals of rows.
///
/// # Safety
/// `block` is a packed block with groups, `x` is what follows the rows of its parts.
#[inline(always)]
unsafe fn add_closed<V: Vector, K: Kind, const R: usize>(
    v: V,
    block: *const u8,
    x: *const u8,
    ints: &Each<V::Ints, R>,
    totals: &mut Each<V::Floats, R>,
) {
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let close = Close::new::<K>(v, block, V::LANES * i);
            for (r, total) in totals.iter_mut().enumerate() {
                total[i] = close.total::<K>(v, total[i], ints[r][i], x.add(r * SUMS));
            }
        }
    }
}

/// Adds a block of 32 to the totals of rows.
///
/// # Safety
/// `block` is a packed block without groups, `x` are its rows.
#[inline(always)]
unsafe fn add_block<V: Vector, K: Kind, const R: usize>(
    v: V,
    block: *const u8,
    x: *const u8,
    ahead: usize,
    totals: &mut Each<V::Floats, R>,
) {
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    fetch(layout, block, 0, ahead);
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let found = part::<V, K, R>(v, block.add(layout.codes + 4 * V::LANES * i), x, row);
            let unit = unit::<V, K>(v, block, V::LANES * i);
            for (r, total) in totals.iter_mut().enumerate() {
                let ints = whole::<V, K>(v, found[r]);
                total[i] = after_block::<V, K>(v, total[i], ints, unit, x.add(r * row));
            }
        }
    }
}

/// `R` rows of one or two tiles, with all sums in registers. Two tiles are read in turn: two streams of memory.
///
/// # Safety
/// As [`int8`], for `R` rows and as many tiles.
#[inline(always)]
unsafe fn few<V: Vector, K: Kind, const R: usize, const TWO: bool>(
    v: V,
    operands: Operands,
    sums: &mut [Sums],
) {
    let Operands { tile: mut first, blocks, mut x, ahead, .. } = operands;
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let to_second = blocks * layout.bytes;
    let (mut totals, mut second_totals) = ([[v.zero(); 2]; R], [[v.zero(); 2]; R]);
    for _ in 0..blocks {
        let second = first.wrapping_add(to_second);
        // SAFETY: the block of the tiles and its rows are inside what the caller named.
        unsafe {
            if const { K::CODING.has_groups() } {
                let (mut ints, mut second_ints) = ([[v.no_ints(); 2]; R], [[v.no_ints(); 2]; R]);
                for p in 0..layout.parts {
                    add_part::<V, K, R>(v, first, p, x, ahead, &mut ints);
                    if const { TWO } {
                        add_part::<V, K, R>(v, second, p, x, ahead, &mut second_ints);
                    }
                    x = x.add(R * row);
                }
                add_closed::<V, K, R>(v, first, x, &ints, &mut totals);
                if const { TWO } {
                    add_closed::<V, K, R>(v, second, x, &second_ints, &mut second_totals);
                }
                x = x.add(R * SUMS);
            } else {
                add_block::<V, K, R>(v, first, x, ahead, &mut totals);
                if const { TWO } {
                    add_block::<V, K, R>(v, second, x, ahead, &mut second_totals);
                }
                x = x.add(R * row);
            }
        }
        first = first.wrapping_add(layout.bytes);
    }
    for (totals, sums) in [totals, second_totals].iter().zip(sums) {
        for (total, sums) in totals.iter().zip(&mut sums.0) {
            for (i, total) in total.iter().take(Of::<V, K>::VECTORS).enumerate() {
                // SAFETY: a row has the outputs of a tile.
                unsafe { v.store(sums.as_mut_ptr().add(V::LANES * i), *total) };
            }
        }
    }
}

/// Eight vectors of codes: those of a part, or of one of its halves with their signs.
///
/// # Safety
/// `codes` points to a part's codes for the vector's outputs.
#[inline(always)]
unsafe fn eight<V: Vector, K: Kind>(v: V, codes: *const u8, half: usize) -> [V::Bytes; 8] {
    // SAFETY: promised by the caller.
    unsafe {
        let mut bytes = [v.bytes(codes); 8];
        if const { Of::<V, K>::SIGNED } {
            for q in 0..4 {
                [bytes[2 * q], bytes[2 * q + 1]] = quad_with_signs::<V, K>(v, codes, 4 * half + q);
            }
        } else {
            for (q, bytes) in bytes.iter_mut().enumerate() {
                *bytes = quad::<V, K>(v, codes, q);
            }
        }
        bytes
    }
}

/// Sums of one row with [`eight`] vectors.
///
/// # Safety
/// `row` is a row of the part.
#[inline(always)]
unsafe fn turn<V: Vector, K: Kind>(v: V, bytes: &[V::Bytes; 8], row: *const u8, half: usize) -> Two<V> {
    // SAFETY: promised by the caller.
    unsafe {
        if const { Of::<V, K>::SIGNED } {
            let mut sum = v.no_sum();
            for q in 0..4 {
                sum = v.dot_signed(sum, [bytes[2 * q], bytes[2 * q + 1]], row.add(16 * half + 4 * q));
            }
            [sum, v.no_sum()]
        } else {
            let mut sums = start::<V, K>(v, row);
            for (q, bytes) in bytes.iter().enumerate() {
                let half = if const { Of::<V, K>::HALVES } { q / 4 } else { 0 };
                sums[half] = v.dot(sums[half], *bytes, row.add(4 * q));
            }
            sums
        }
    }
}

/// Any number of rows up to [`MANY`], in turn over vectors of codes that stay in registers; two tiles in turn, block by block.
///
/// # Safety
/// As [`int8`].
#[inline(always)]
unsafe fn many<V: Vector, K: Kind>(v: V, operands: Operands, sums: &mut [Sums]) {
    let Operands { mut tile, blocks, mut x, rows, ahead, .. } = operands;
    assert!(rows <= MANY);
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let mut memory = [Ints::ZERO; TOGETHER];
    sums.iter_mut().for_each(|sums| sums.0[..rows].fill([0.0; TILE]));
    for _ in 0..blocks {
        let block = |t: usize| tile.wrapping_add(t * blocks * layout.bytes);
        // SAFETY: the block of the tiles and its rows are inside what the caller named, totals and integers have room for
        // `MANY` rows.
        unsafe {
            if const { K::CODING.has_groups() } {
                for p in 0..layout.parts {
                    for (t, ints) in memory.iter_mut().enumerate().take(sums.len()) {
                        add_part_to_many::<V, K>(v, block(t), p, x, rows, ahead, ints);
                    }
                    x = x.add(rows * row);
                }
                for (t, sums) in sums.iter_mut().enumerate() {
                    add_closed_to_many::<V, K>(v, block(t), x, rows, &mut memory[t], sums);
                }
                x = x.add(rows * SUMS);
            } else {
                for (t, sums) in sums.iter_mut().enumerate() {
                    add_block_to_many::<V, K>(v, block(t), x, rows, ahead, &mut memory[t], sums);
                }
                x = x.add(rows * row);
            }
        }
        tile = tile.wrapping_add(layout.bytes);
    }
}

/// Turns over the codes of a part, or of half of it with their signs.
const fn turns<V: Vector, K: Kind>() -> usize {
    if Of::<V, K>::SIGNED { 2 } else { 1 }
}

/// As [`add_part`].
///
/// # Safety
/// As `add_part`, for at most [`MANY`] rows.
#[inline(always)]
unsafe fn add_part_to_many<V: Vector, K: Kind>(
    v: V,
    block: *const u8,
    p: usize,
    x: *const u8,
    rows: usize,
    ahead: usize,
    ints: &mut Ints,
) {
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let ints = ints.0.as_mut_ptr().cast::<i32>();
    fetch(layout, block, p, ahead);
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let codes = block.add(layout.codes + p * layout.part_bytes + 4 * V::LANES * i);
            let scales = scales::<V, K>(v, block, p, V::LANES * i);
            for half in 0..turns::<V, K>() {
                let bytes = eight::<V, K>(v, codes, half);
                for r in 0..rows {
                    let found = turn::<V, K>(v, &bytes, x.add(r * row), half);
                    let at = ints.add(r * TILE + V::LANES * i);
                    let sum = v.add(v.load_ints(at), scaled::<V, K>(v, found, scales));
                    v.store_ints(at, sum);
                }
            }
        }
    }
}

/// As [`add_closed`]; leaves zeros as integers.
///
/// # Safety
/// As `add_closed`, for at most [`MANY`] rows.
#[inline(always)]
unsafe fn add_closed_to_many<V: Vector, K: Kind>(
    v: V,
    block: *const u8,
    x: *const u8,
    rows: usize,
    ints: &mut Ints,
    sums: &mut Sums,
) {
    let (totals, ints) = (sums.0.as_mut_ptr().cast::<f32>(), ints.0.as_mut_ptr().cast::<i32>());
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let close = Close::new::<K>(v, block, V::LANES * i);
            for r in 0..rows {
                let at = r * TILE + V::LANES * i;
                let (total, sum) = (v.load(totals.add(at)), v.load_ints(ints.add(at)));
                v.store(totals.add(at), close.total::<K>(v, total, sum, x.add(r * SUMS)));
                v.store_ints(ints.add(at), v.no_ints());
            }
        }
    }
}

/// As [`add_block`], by integers of any value.
///
/// # Safety
/// As `add_block`, for at most [`MANY`] rows.
#[inline(always)]
unsafe fn add_block_to_many<V: Vector, K: Kind>(
    v: V,
    block: *const u8,
    x: *const u8,
    rows: usize,
    ahead: usize,
    ints: &mut Ints,
    sums: &mut Sums,
) {
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let (totals, ints) = (sums.0.as_mut_ptr().cast::<f32>(), ints.0.as_mut_ptr().cast::<i32>());
    fetch(layout, block, 0, ahead);
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let codes = block.add(layout.codes + 4 * V::LANES * i);
            let unit = unit::<V, K>(v, block, V::LANES * i);
            for half in 0..turns::<V, K>() {
                let bytes = eight::<V, K>(v, codes, half);
                for r in 0..rows {
                    let at = r * TILE + V::LANES * i;
                    let x = x.add(r * row);
                    let mut sum = whole::<V, K>(v, turn::<V, K>(v, &bytes, x, half));
                    if half == 1 {
                        sum = v.add(sum, v.load_ints(ints.add(at)));
                    } else if turns::<V, K>() == 2 {
                        v.store_ints(ints.add(at), sum);
                        continue;
                    }
                    let total = v.load(totals.add(at));
                    v.store(totals.add(at), after_block::<V, K>(v, total, sum, unit, x));
                }
            }
        }
    }
}
