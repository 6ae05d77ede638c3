//! Products of codes with activations as bytes: the class of [`linear_int8`](crate::reference::linear_int8).
//!
//! Where sums have 16 bits, no sum leaves them: codes of up to four bits make at most `8 * 2 * 15 * 127` in 32 inputs; those of
//! 5 and 6 bits with a bias wrap, and come back in range as sums start at what the bias adds, negated; those of 5 bits
//! without one are summed by 16 inputs; bytes are multiplied with their signs and summed in 32 bits.

use super::{
    FEW, MANY, Operands, Sums, Vector, fetch,
    unpack::{Codes, quad, quad_with_signs},
};
use crate::{
    cpu::{
        activations::{Coded, SUMS},
        packing::{CodeLayout, PART, TILE},
    },
    format::{Kind, Scales, Unit},
};

/// Writes `sums[r][n]` for the rows of a group.
///
/// # Safety
/// `operands` names a tile of the kind, and a group of at most [`MANY`] rows in its layout of codes.
#[inline(always)]
pub(in crate::cpu) unsafe fn int8<V: Vector, K: Kind>(v: V, operands: Operands, sums: &mut Sums) {
    // SAFETY: promised by the caller.
    unsafe {
        match operands.rows {
            1 => few::<V, K, 1>(v, operands, sums),
            2 => few::<V, K, 2>(v, operands, sums),
            3 => few::<V, K, 3>(v, operands, sums),
            FEW => few::<V, K, FEW>(v, operands, sums),
            _ => many::<V, K>(v, operands, sums),
        }
    }
}

/// Constants of a kernel.
struct Of<V, K>(V, K);

impl<V: Vector, K: Kind> Of<V, K> {
    const LAYOUT: CodeLayout = K::LAYOUT;
    /// Vectors of outputs in a tile.
    const VECTORS: usize = TILE / V::LANES;
    /// Whether bytes are taken with their signs.
    const SIGNED: bool = V::SPLIT && K::IS_WIDE;
    /// Whether inputs `0..16` and `16..32` of a part are summed apart.
    const HALVES: bool =
        K::CODING.group_len() == 16 || V::SPLIT && !Self::SIGNED && K::BIAS == 0 && K::LARGEST > 15;
    const UNIT: Unit = match K::CODING.scales {
        Scales::Block { unit, .. } => unit,
        Scales::Signed { .. } | Scales::WithMins { .. } => Unit::F16,
    };
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

/// The integer scales of part `p` for outputs `n` on: of its groups of 32 or 16.
///
/// # Safety
/// `block` is a packed block with groups, and `p` below 8.
#[inline(always)]
unsafe fn scales<V: Vector, K: Kind>(v: V, block: *const u8, p: usize, n: usize) -> [V::Scale; 2] {
    let by_part = const { PART / K::CODING.group_len() };
    // SAFETY: promised by the caller.
    let scale = |g: usize| unsafe {
        let at = block.add(Of::<V, K>::LAYOUT.scales + (by_part * p + g) * TILE + n);
        match K::CODING.scales {
            Scales::Signed { .. } => v.signed(at),
            Scales::WithMins { len: 16 } => v.low_nibbles(at),
            Scales::WithMins { .. } | Scales::Block { .. } => v.unsigned(at),
        }
    };
    [scale(0), scale(by_part - 1)]
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

/// Scale and minimum of a block of 32 for outputs `n` on; the scale again without minima.
///
/// # Safety
/// `block` is a packed block without groups.
#[inline(always)]
unsafe fn unit<V: Vector, K: Kind>(v: V, block: *const u8, n: usize) -> [V::Floats; 2] {
    // SAFETY: promised by the caller.
    unsafe {
        let d = v.numbers(Of::<V, K>::UNIT, block.add(Of::<V, K>::LAYOUT.d + 2 * n));
        if const { K::CODING.has_min() } {
            [d, v.numbers(Of::<V, K>::UNIT, block.add(Of::<V, K>::LAYOUT.dmin + 2 * n))]
        } else {
            [d, d]
        }
    }
}

/// A row's total after a block of 32.
///
/// # Safety
/// `row` is the row of the block in a prepared group.
#[inline(always)]
unsafe fn after_block<V: Vector, K: Kind>(
    v: V,
    total: V::Floats,
    ints: V::Ints,
    [d, min]: [V::Floats; 2],
    row: *const u8,
) -> V::Floats {
    // SAFETY: promised by the caller.
    unsafe {
        let scale = v.product(d, v.splat(row.add(Coded::SCALE)));
        let total = v.fma(v.floats(ints), scale, total);
        if const { K::CODING.has_min() } {
            v.fma(min, v.splat(row.add(Coded::SCALED_SUM)), total)
        } else {
            total
        }
    }
}

/// Adds blocks of 256 to the totals of rows.
#[derive(Clone, Copy)]
struct Close<V: Vector> {
    d: V::Floats,
    dmin: V::Floats,
    mins: [V::Bytes; 8],
}

impl<V: Vector> Close<V> {
    /// Pairs of groups with minima.
    const fn pairs<K: Kind>() -> usize {
        if K::CODING.has_min() { 128 / K::CODING.group_len() } else { 0 }
    }

    /// Units and minima for outputs `n` on.
    ///
    /// # Safety
    /// `block` is a packed block with groups.
    #[inline(always)]
    unsafe fn new<K: Kind>(v: V, block: *const u8, n: usize) -> Self {
        // SAFETY: promised by the caller.
        unsafe {
            let layout = Of::<V, K>::LAYOUT;
            let d = v.numbers(Unit::F16, block.add(layout.d + 2 * n));
            let mut close = Self { d, dmin: d, mins: [v.pairs(block); 8] };
            if const { K::CODING.has_min() } {
                close.dmin = v.numbers(Unit::F16, block.add(layout.dmin + 2 * n));
                for (p, mins) in close.mins[..Self::pairs::<K>()].iter_mut().enumerate() {
                    *mins = if const { K::CODING.group_len() == 16 } {
                        let at = block.add(layout.scales + 2 * p * TILE + n);
                        v.high_nibbles(at, at.add(TILE))
                    } else {
                        v.pairs(block.add(layout.mins + 2 * (p * TILE + n)))
                    };
                }
            }
            close
        }
    }

    /// A row's total.
    ///
    /// # Safety
    /// `row` is what is prepared of the row for the whole block.
    #[inline(always)]
    unsafe fn total<K: Kind>(self, v: V, total: V::Floats, ints: V::Ints, row: *const u8) -> V::Floats {
        let mut value = v.product(v.floats(ints), self.d);
        // SAFETY: promised by the caller.
        unsafe {
            if const { K::CODING.has_min() } {
                let mut mins = v.no_ints();
                for (p, pairs) in self.mins[..Self::pairs::<K>()].iter().enumerate() {
                    mins = v.add_pairs(mins, *pairs, row.add(4 + 4 * p));
                }
                value = v.fnma(v.floats(mins), self.dmin, value);
            }
            v.fma(value, v.splat(row), total)
        }
    }
}

/// `R` rows, with all sums in registers.
///
/// # Safety
/// As [`int8`], for `R` rows.
#[inline(always)]
unsafe fn few<V: Vector, K: Kind, const R: usize>(v: V, operands: Operands, sums: &mut Sums) {
    let Operands { mut tile, blocks, mut x, ahead, .. } = operands;
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let mut totals = [[v.zero(); 2]; R];
    for _ in 0..blocks {
        // SAFETY: the block of the tile and its rows are inside what the caller named.
        unsafe {
            if const { K::CODING.has_groups() } {
                let mut ints = [[v.no_ints(); 2]; R];
                for p in 0..layout.parts {
                    fetch(layout, tile, p, ahead);
                    for i in 0..Of::<V, K>::VECTORS {
                        let codes = tile.add(layout.codes + p * layout.part_bytes + 4 * V::LANES * i);
                        let found = part::<V, K, R>(v, codes, x, row);
                        let scales = scales::<V, K>(v, tile, p, V::LANES * i);
                        for (ints, found) in ints.iter_mut().zip(found) {
                            ints[i] = v.add(ints[i], scaled::<V, K>(v, found, scales));
                        }
                    }
                    x = x.add(R * row);
                }
                for i in 0..Of::<V, K>::VECTORS {
                    let close = Close::new::<K>(v, tile, V::LANES * i);
                    for (r, total) in totals.iter_mut().enumerate() {
                        total[i] = close.total::<K>(v, total[i], ints[r][i], x.add(r * SUMS));
                    }
                }
                x = x.add(R * SUMS);
            } else {
                fetch(layout, tile, 0, ahead);
                for i in 0..Of::<V, K>::VECTORS {
                    let found = part::<V, K, R>(v, tile.add(layout.codes + 4 * V::LANES * i), x, row);
                    let unit = unit::<V, K>(v, tile, V::LANES * i);
                    for (r, total) in totals.iter_mut().enumerate() {
                        let ints = whole::<V, K>(v, found[r]);
                        total[i] = after_block::<V, K>(v, total[i], ints, unit, x.add(r * row));
                    }
                }
                x = x.add(R * row);
            }
        }
        tile = tile.wrapping_add(layout.bytes);
    }
    for (total, sums) in totals.iter().zip(&mut sums.0) {
        for (i, total) in total.iter().take(Of::<V, K>::VECTORS).enumerate() {
            // SAFETY: a row has the outputs of a tile.
            unsafe { v.store(sums.as_mut_ptr().add(V::LANES * i), *total) };
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

/// Integers of rows in progress.
#[repr(align(64))]
struct Memory([[i32; TILE]; MANY]);

/// Any number of rows up to [`MANY`], in turn over vectors of codes that stay in registers.
///
/// # Safety
/// As [`int8`].
#[inline(always)]
unsafe fn many<V: Vector, K: Kind>(v: V, operands: Operands, sums: &mut Sums) {
    let Operands { mut tile, blocks, mut x, rows, ahead } = operands;
    assert!(rows <= MANY);
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let turns = if const { Of::<V, K>::SIGNED } { 2 } else { 1 };
    let mut memory = Memory([[0; TILE]; MANY]);
    let (totals, ints) = (sums.0.as_mut_ptr().cast::<f32>(), memory.0.as_mut_ptr().cast::<i32>());
    sums.0[..rows].fill([0.0; TILE]);
    for _ in 0..blocks {
        // SAFETY: the block of the tile and its rows are inside what the caller named, totals and integers have room for
        // `MANY` rows.
        unsafe {
            if const { K::CODING.has_groups() } {
                for p in 0..layout.parts {
                    fetch(layout, tile, p, ahead);
                    for i in 0..Of::<V, K>::VECTORS {
                        let codes = tile.add(layout.codes + p * layout.part_bytes + 4 * V::LANES * i);
                        let scales = scales::<V, K>(v, tile, p, V::LANES * i);
                        for half in 0..turns {
                            let bytes = eight::<V, K>(v, codes, half);
                            for r in 0..rows {
                                let found = turn::<V, K>(v, &bytes, x.add(r * row), half);
                                let at = ints.add(r * TILE + V::LANES * i);
                                let sum = v.add(v.load_ints(at), scaled::<V, K>(v, found, scales));
                                v.store_ints(at, sum);
                            }
                        }
                    }
                    x = x.add(rows * row);
                }
                for i in 0..Of::<V, K>::VECTORS {
                    let close = Close::new::<K>(v, tile, V::LANES * i);
                    for r in 0..rows {
                        let at = r * TILE + V::LANES * i;
                        let (total, sum) = (v.load(totals.add(at)), v.load_ints(ints.add(at)));
                        v.store(totals.add(at), close.total::<K>(v, total, sum, x.add(r * SUMS)));
                        v.store_ints(ints.add(at), v.no_ints());
                    }
                }
                x = x.add(rows * SUMS);
            } else {
                fetch(layout, tile, 0, ahead);
                for i in 0..Of::<V, K>::VECTORS {
                    let codes = tile.add(layout.codes + 4 * V::LANES * i);
                    let unit = unit::<V, K>(v, tile, V::LANES * i);
                    for half in 0..turns {
                        let bytes = eight::<V, K>(v, codes, half);
                        for r in 0..rows {
                            let at = r * TILE + V::LANES * i;
                            let x = x.add(r * row);
                            let mut sum = whole::<V, K>(v, turn::<V, K>(v, &bytes, x, half));
                            if half == 1 {
                                sum = v.add(sum, v.load_ints(ints.add(at)));
                            } else if turns == 2 {
                                v.store_ints(ints.add(at), sum);
                                continue;
                            }
                            let total = v.load(totals.add(at));
                            v.store(totals.add(at), after_block::<V, K>(v, total, sum, unit, x));
                        }
                    }
                }
                x = x.add(rows * row);
            }
        }
        tile = tile.wrapping_add(layout.bytes);
    }
}
