//! Products of codes with activations as bytes: the class of [`linear_int8`](crate::reference::linear_int8).
//!
//! Where sums have 16 bits, no sum leaves them: codes of up to four bits make at most `8 * 2 * 15 * 127` in 32 inputs;
//! those of 5 and 6 bits with a bias wrap, and come back in range as sums start at what the bias adds, negated; those
//! of 5 bits without one are summed by 16 inputs; bytes are multiplied with their signs and summed in 32 bits.

use super::{
    Distances, Fetching, Ints, MANY, Operands, Sums, TOGETHER, Vector, fetch,
    scales::{Close, Of, Two, after, after_block, scaled, scales, unit, whole},
    unpack::{Codes, quad, quad_with_signs},
};
use crate::{
    cpu::{
        activations::{Coded, SUMS},
        packing::{CodeLayout, PART, TILE},
    },
    format::Kind,
};

/// Does something for numbers `0..$count`, at most four, each a constant of its own. Loops would end as the same
/// instructions, but a compiler takes twice as long to unroll them, or leaves them, and sums then lie in memory.
macro_rules! each {
    ($count:ident, $i:ident => $do:block) => {
        each!(@ $count $i $do 0 1 2 3)
    };
    (@ $count:ident $i:ident $do:block $($number:literal)*) => {
        const { assert!($count <= 4) }
        $(if const { $count > $number } {
            let $i: usize = $number;
            $do
        })*
    };
}

/// Writes `sums[t][r][n]` for the rows of a group.
///
/// # Safety
/// `operands` names tiles of the kind, and a group of at most [`MANY`] rows in its layout of codes.
#[inline(always)]
pub(in crate::cpu) unsafe fn int8<V: Vector, K: Kind>(v: V, operands: Operands, sums: &mut [Sums]) {
    if const { Of::<V, K>::FEW == 0 } {
        // SAFETY: promised by the caller.
        return unsafe { many::<V, K>(v, operands, sums) };
    }
    for (i, sums) in sums.chunks_mut(operands.streams).enumerate() {
        let operands = operands.of_tile(Of::<V, K>::LAYOUT, i * operands.streams);
        // SAFETY: promised by the caller.
        unsafe {
            match (Of::<V, K>::VECTORS, sums.len()) {
                _ if operands.rows > Of::<V, K>::FEW => many::<V, K>(v, operands, sums),
                (1, 1) => of_tiles::<V, K, 1, 1>(v, operands, sums),
                (1, _) => of_tiles::<V, K, 1, 2>(v, operands, sums),
                (_, 1) => of_tiles::<V, K, 2, 1>(v, operands, sums),
                _ => of_tiles::<V, K, 4, 1>(v, operands, sums),
            }
        }
    }
}

/// As [`int8`] of few rows, of one or two tiles, whose `J C` vectors of outputs meet a row in `J` turns of `C`, which
/// share the broadcast of its bytes.
///
/// # Safety
/// As `int8`, for as many tiles.
#[inline(always)]
unsafe fn of_tiles<V: Vector, K: Kind, const J: usize, const C: usize>(
    v: V,
    operands: Operands,
    sums: &mut [Sums],
) {
    assert_eq!(sums.len() * Of::<V, K>::VECTORS, J * C);
    // SAFETY: promised by the caller.
    unsafe {
        match operands.rows {
            1 => few::<V, K, 1, J, C>(v, operands, sums),
            2 => few::<V, K, 2, J, C>(v, operands, sums),
            rows if const { Of::<V, K>::FEW <= 2 } => unreachable!("{rows} rows are many"),
            3 => few::<V, K, 3, J, C>(v, operands, sums),
            _ => few::<V, K, 4, J, C>(v, operands, sums),
        }
    }
}

/// Tile and first output of a vector.
#[inline(always)]
fn tile_of<V: Vector>(vector: usize) -> (usize, usize) {
    let vectors = TILE / V::LANES;
    (vector / vectors, vector % vectors * V::LANES)
}

/// Blocks at one place of the tiles that are read in turn.
#[derive(Clone, Copy)]
struct BlocksAt<const C: usize> {
    first: *const u8,
    /// From a tile to the next.
    tile: usize,
}

impl<const C: usize> BlocksAt<C> {
    /// Block and first output of vector `c` of turn `j`.
    #[inline(always)]
    fn vector<V: Vector>(self, j: usize, c: usize) -> (*const u8, usize) {
        let (t, n) = tile_of::<V>(j * C + c);
        (self.first.wrapping_add(t * self.tile), n)
    }

    /// Fetches part `p` of the blocks of turn `j`, once for each block.
    #[inline(always)]
    fn fetch<V: Vector>(self, layout: CodeLayout, j: usize, p: usize, fetching: Fetching) {
        each!(C, c => {
            if let (block, 0) = self.vector::<V>(j, c) {
                fetch(layout, block, p, fetching);
            }
        });
    }
}

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
            [first, v.start(row.add(const { Coded::second_start(K::CODING.has_groups()) }))]
        } else {
            [first, v.no_sum()]
        }
    }
}

/// Does something for quads `0..8` of a part, each with a number of its own: where a compiler leaves a loop as it is,
/// shifts and masks would be chosen again for every quad.
macro_rules! each_quad {
    ($q:ident => $do:block) => {
        each_quad!(@ $q $do 0 1 2 3 4 5 6 7)
    };
    (@ $q:ident $do:block $($number:literal)*) => {
        const { assert!(PART == 4 * 8) }
        $({
            let $q: usize = $number;
            $do
        })*
    };
}

/// Sums of `R` rows over a part, of each vector.
///
/// # Safety
/// `codes` point to a part's codes for the vectors' outputs, `x` to row 0 of that part, `stride` is from row to row.
#[inline(always)]
unsafe fn part<V: Vector, K: Kind, const R: usize, const C: usize>(
    v: V,
    codes: [*const u8; C],
    x: *const u8,
    stride: usize,
) -> [[Two<V>; C]; R] {
    let mut sums = [[[v.no_sum(); 2]; C]; R];
    // SAFETY: promised by the caller.
    unsafe {
        each!(R, r => { sums[r] = [start::<V, K>(v, x.add(r * stride)); C]; });
        each_quad!(q => {
            let half = if const { Of::<V, K>::HALVES } { q / 4 } else { 0 };
            if const { Of::<V, K>::SIGNED } {
                let mut bytes = [quad_with_signs::<V, K>(v, codes[0], q); C];
                if const { C > 1 } {
                    bytes[C - 1] = quad_with_signs::<V, K>(v, codes[C - 1], q);
                }
                each!(R, r => {
                    let x = x.add(r * stride + 4 * q);
                    each!(C, c => { sums[r][c][half] = v.dot_signed(sums[r][c][half], bytes[c], x); });
                });
            } else {
                let mut bytes = [quad::<V, K>(v, codes[0], q); C];
                if const { C > 1 } {
                    bytes[C - 1] = quad::<V, K>(v, codes[C - 1], q);
                }
                each!(R, r => {
                    let x = x.add(r * stride + 4 * q);
                    each!(C, c => { sums[r][c][half] = v.dot(sums[r][c][half], bytes[c], x); });
                });
            }
        });
    }
    sums
}

/// A value of each vector of a turn, of each row.
type Each<X, const R: usize, const C: usize> = [[X; C]; R];

/// Adds part `p` of blocks to the integers of rows.
///
/// # Safety
/// `blocks_at` has packed blocks with groups, `x` are the rows of their part.
#[inline(always)]
unsafe fn add_part<V: Vector, K: Kind, const R: usize, const C: usize>(
    v: V,
    blocks_at: BlocksAt<C>,
    j: usize,
    p: usize,
    x: *const u8,
    ints: &mut Each<V::Ints, R, C>,
) {
    let layout = Of::<V, K>::LAYOUT;
    let at: [_; C] = std::array::from_fn(|c| blocks_at.vector::<V>(j, c));
    // SAFETY: promised by the caller.
    unsafe {
        let codes = at.map(|(block, n)| block.add(layout.codes + p * layout.part_bytes + 4 * n));
        let found = part::<V, K, R, C>(v, codes, x, const { Coded::row_bytes(K::CODING) });
        each!(C, c => {
            let (block, n) = at[c];
            let scales = scales::<V, K>(v, block, p, n);
            each!(R, r => { ints[r][c] = v.add(ints[r][c], scaled::<V, K>(v, found[r][c], scales)); });
        });
    }
}

/// Adds blocks of 256, whose integers are there, to the totals of rows.
///
/// # Safety
/// `blocks_at` has packed blocks with groups, `x` is what follows the rows of their parts.
#[inline(always)]
unsafe fn add_closed<V: Vector, K: Kind, const R: usize, const C: usize>(
    v: V,
    blocks_at: BlocksAt<C>,
    j: usize,
    x: *const u8,
    ints: &Each<V::Ints, R, C>,
    totals: &mut Each<V::Floats, R, C>,
) {
    each!(C, c => {
        let (block, n) = blocks_at.vector::<V>(j, c);
        // SAFETY: promised by the caller.
        unsafe {
            let close = Close::new::<K>(v, block, n);
            each!(R, r => { totals[r][c] = close.total::<K>(v, totals[r][c], ints[r][c], x.add(r * SUMS)); });
        }
    });
}

/// Adds blocks of 32 to the totals of rows.
///
/// # Safety
/// `blocks_at` has packed blocks without groups, `x` are their rows.
#[inline(always)]
unsafe fn add_block<V: Vector, K: Kind, const R: usize, const C: usize>(
    v: V,
    blocks_at: BlocksAt<C>,
    j: usize,
    x: *const u8,
    totals: &mut Each<V::Floats, R, C>,
) {
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let at: [_; C] = std::array::from_fn(|c| blocks_at.vector::<V>(j, c));
    // SAFETY: promised by the caller.
    unsafe {
        let codes = at.map(|(block, n)| block.add(layout.codes + 4 * n));
        let found = part::<V, K, R, C>(v, codes, x, row);
        each!(C, c => {
            let (block, n) = at[c];
            let unit = unit::<V, K>(v, block, n);
            each!(R, r => {
                totals[r][c] = after::<V, K>(v, totals[r][c], found[r][c], unit, x.add(r * row));
            });
        });
    }
}

/// `R` rows, with all sums in registers. Two tiles are two streams of memory.
///
/// # Safety
/// As [`of_tiles`], for `R` rows.
#[inline(always)]
unsafe fn few<V: Vector, K: Kind, const R: usize, const J: usize, const C: usize>(
    v: V,
    operands: Operands,
    sums: &mut [Sums],
) {
    let Operands { tile: first, blocks, mut x, .. } = operands;
    let layout = Of::<V, K>::LAYOUT;
    let distances = Distances::new(layout, &operands, sums.len());
    let row = const { Coded::row_bytes(K::CODING) };
    let mut blocks_at = BlocksAt { first, tile: blocks * layout.bytes };
    let mut totals = [[[v.zero(); C]; R]; J];
    for b in 0..blocks {
        let fetching = distances.at(b);
        // SAFETY: the block of the tiles and its rows are inside what the caller named.
        unsafe {
            if const { K::CODING.has_groups() } {
                let mut ints = [[[v.no_ints(); C]; R]; J];
                for p in 0..layout.parts {
                    each!(J, j => {
                        blocks_at.fetch::<V>(layout, j, p, fetching);
                        add_part::<V, K, R, C>(v, blocks_at, j, p, x, &mut ints[j]);
                    });
                    x = x.add(R * row);
                }
                each!(J, j => {
                    add_closed::<V, K, R, C>(v, blocks_at, j, x, &ints[j], &mut totals[j]);
                });
                x = x.add(R * SUMS);
            } else {
                each!(J, j => {
                    blocks_at.fetch::<V>(layout, j, 0, fetching);
                    add_block::<V, K, R, C>(v, blocks_at, j, x, &mut totals[j]);
                });
                x = x.add(R * row);
            }
        }
        blocks_at.first = blocks_at.first.wrapping_add(layout.bytes);
    }
    for (j, totals) in totals.iter().enumerate() {
        for (r, totals) in totals.iter().enumerate() {
            for (c, total) in totals.iter().enumerate() {
                let (t, n) = tile_of::<V>(j * C + c);
                // SAFETY: a row has the outputs of a tile.
                unsafe { v.store(sums[t].0[r].as_mut_ptr().add(n), *total) };
            }
        }
    }
}

/// Eight vectors of codes: those of a part, or of one of its halves with their magnitudes and signs.
///
/// # Safety
/// `codes` points to a part's codes for the vector's outputs.
#[inline(always)]
unsafe fn eight<V: Vector, K: Kind>(v: V, codes: *const u8, half: usize) -> [V::Bytes; 8] {
    // SAFETY: promised by the caller.
    unsafe {
        let mut bytes = [v.bytes(codes); 8];
        if const { Of::<V, K>::MAGNITUDES } {
            for q in 0..4 {
                [bytes[2 * q], bytes[2 * q + 1]] = quad_with_signs::<V, K>(v, codes, 4 * half + q);
            }
        } else if const { Of::<V, K>::SIGNED } {
            each_quad!(q => { [_, bytes[q]] = quad_with_signs::<V, K>(v, codes, q); });
        } else {
            each_quad!(q => { bytes[q] = quad::<V, K>(v, codes, q); });
        }
        bytes
    }
}

/// Sums of a row with [`eight`] vectors, or of two where vectors have [`Vector::PAIRS`].
///
/// # Safety
/// `x` is a row of the part, `stride` is from row to row.
#[inline(always)]
unsafe fn turn<V: Vector, K: Kind, const R: usize>(
    v: V,
    bytes: &[V::Bytes; 8],
    x: *const u8,
    stride: usize,
    half: usize,
) -> [Two<V>; R] {
    let mut sums = [[v.no_sum(); 2]; R];
    // SAFETY: promised by the caller.
    unsafe {
        if const { Of::<V, K>::MAGNITUDES } {
            for q in 0..4 {
                let codes = [bytes[2 * q], bytes[2 * q + 1]];
                sums[0][0] = v.dot_signed(sums[0][0], codes, x.add(16 * half + 4 * q));
            }
            return sums;
        }
        each!(R, r => { sums[r] = start::<V, K>(v, x.add(r * stride)); });
        if const { R == 2 } {
            let (rows, starts) = ([x, x.add(stride)], [sums[0], sums[R - 1]]);
            [sums[0], sums[R - 1]] = v.two_rows(bytes, rows, starts, const { Of::<V, K>::HALVES });
        } else {
            each_quad!(q => {
                let half = if const { Of::<V, K>::HALVES } { q / 4 } else { 0 };
                sums[0][half] = v.dot(sums[0][half], bytes[q], x.add(4 * q));
            });
        }
    }
    sums
}

/// Any number of rows up to [`MANY`], in turn over vectors of codes that stay in registers; two tiles in turn, block by
/// block.
///
/// # Safety
/// As [`int8`].
#[inline(always)]
unsafe fn many<V: Vector, K: Kind>(v: V, operands: Operands, sums: &mut [Sums]) {
    let Operands { mut tile, blocks, mut x, rows, .. } = operands;
    assert!(rows <= MANY);
    let layout = Of::<V, K>::LAYOUT;
    let distances = Distances::new(layout, &operands, sums.len());
    let row = const { Coded::row_bytes(K::CODING) };
    let mut memory = [Ints::ZERO; TOGETHER];
    sums.iter_mut().for_each(|sums| sums.0[..rows].fill([0.0; TILE]));
    for b in 0..blocks {
        let fetching = distances.at(b);
        let block = |t: usize| tile.wrapping_add(t * blocks * layout.bytes);
        // SAFETY: the block of the tiles and its rows are inside what the caller named, totals and integers have room
        // for `MANY` rows.
        unsafe {
            if const { K::CODING.has_groups() } {
                for p in 0..layout.parts {
                    for (t, ints) in memory.iter_mut().enumerate().take(sums.len()) {
                        add_part_to_many::<V, K>(v, block(t), p, x, rows, fetching, ints);
                    }
                    x = x.add(rows * row);
                }
                for (t, sums) in sums.iter_mut().enumerate() {
                    add_closed_to_many::<V, K>(v, block(t), x, rows, &mut memory[t], sums);
                }
                x = x.add(rows * SUMS);
            } else {
                for (t, sums) in sums.iter_mut().enumerate() {
                    add_block_to_many::<V, K>(v, block(t), x, rows, fetching, &mut memory[t], sums);
                }
                x = x.add(rows * row);
            }
        }
        tile = tile.wrapping_add(layout.bytes);
    }
}

/// Turns over the codes of a part, or of half of it with magnitudes and signs.
const fn turns<V: Vector, K: Kind>() -> usize {
    if Of::<V, K>::MAGNITUDES { 2 } else { 1 }
}

/// Does something for rows `0..$rows`, two at a time where vectors have [`Vector::PAIRS`].
macro_rules! each_rows {
    ($vector:ident, $rows:ident, $first:ident, $count:ident => $do:block) => {
        let mut $first = 0;
        if const { $vector::PAIRS } {
            while $first + 2 <= $rows {
                const $count: usize = 2;
                $do
                $first += $count;
            }
        }
        while $first < $rows {
            const $count: usize = 1;
            $do
            $first += $count;
        }
    };
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
    fetching: Fetching,
    ints: &mut Ints,
) {
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let ints = ints.0.as_mut_ptr().cast::<i32>();
    fetch(layout, block, p, fetching);
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let codes = block.add(layout.codes + p * layout.part_bytes + 4 * V::LANES * i);
            let scales = scales::<V, K>(v, block, p, V::LANES * i);
            for half in 0..turns::<V, K>() {
                let bytes = eight::<V, K>(v, codes, half);
                each_rows!(V, rows, first, R => {
                    let found = turn::<V, K, R>(v, &bytes, x.add(first * row), row, half);
                    for (r, found) in found.iter().enumerate() {
                        let at = ints.add((first + r) * TILE + V::LANES * i);
                        let found = if const { Of::<V, K>::MAGNITUDES } {
                            let of_half = scales[if const { Of::<V, K>::HALVES } { half } else { 0 }];
                            v.times(v.total_signed(found[0]), v.scale(of_half))
                        } else {
                            scaled::<V, K>(v, *found, scales)
                        };
                        v.store_ints(at, v.add(v.load_ints(at), found));
                    }
                });
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
    fetching: Fetching,
    ints: &mut Ints,
    sums: &mut Sums,
) {
    let layout = Of::<V, K>::LAYOUT;
    let row = const { Coded::row_bytes(K::CODING) };
    let (totals, ints) = (sums.0.as_mut_ptr().cast::<f32>(), ints.0.as_mut_ptr().cast::<i32>());
    fetch(layout, block, 0, fetching);
    for i in 0..Of::<V, K>::VECTORS {
        // SAFETY: promised by the caller.
        unsafe {
            let codes = block.add(layout.codes + 4 * V::LANES * i);
            let unit = unit::<V, K>(v, block, V::LANES * i);
            for half in 0..turns::<V, K>() {
                let bytes = eight::<V, K>(v, codes, half);
                each_rows!(V, rows, first, R => {
                    let found = turn::<V, K, R>(v, &bytes, x.add(first * row), row, half);
                    for (r, found) in found.iter().enumerate() {
                        let at = (first + r) * TILE + V::LANES * i;
                        let x = x.add((first + r) * row);
                        if const { Of::<V, K>::MAGNITUDES } {
                            let mut sum = whole::<V, K>(v, *found);
                            if half == 0 {
                                v.store_ints(ints.add(at), sum);
                                continue;
                            }
                            sum = v.add(sum, v.load_ints(ints.add(at)));
                            let total = v.load(totals.add(at));
                            v.store(totals.add(at), after_block::<V, K>(v, total, sum, unit, x));
                        } else {
                            let total = v.load(totals.add(at));
                            v.store(totals.add(at), after::<V, K>(v, total, *found, unit, x));
                        }
                    }
                });
            }
        }
    }
}
