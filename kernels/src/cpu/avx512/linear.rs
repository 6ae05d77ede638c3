//! Matrix products over packed weights: preparation, walk over tiles, epilogues.

mod dense;
mod int8;
mod quantised;
mod superblocks;

use dense::{BF16, F16, F32, dense};
use int8::{Q4_K, int8};
use quantised::{Q4_0, Q4_1, Q8_0, quantised};
use superblocks::{q4_k, q6_k};

use super::{
    lanes::{load, silu, store},
    rms_norm,
};
use crate::{
    Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Epilogue, PackedLinear, Prepared,
        activations::{GROUP, Layout, row_place},
        packing::{BLOCK, TILE},
    },
};
use std::{arch::x86_64::*, ops::Range};

/// Results of one stored tile: `[row][output]`.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Sums([[f32; TILE]; GROUP]);

impl Sums {
    const ZERO: Self = Self([[0.0; TILE]; GROUP]);
}

/// What a register-blocked kernel reads.
#[derive(Clone, Copy)]
struct Operands {
    tile: *const u8,
    blocks: usize,
    /// Prepared group of exactly as many rows as the kernel is made for.
    x: *const u8,
    /// Distance from a weight to the one to fetch ahead of its use.
    ahead: usize,
}

/// Lays activations out, normalised first if asked.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    let blocks = x.columns().div_ceil(BLOCK);
    for w in 0..x.width() {
        let row = x.row(w);
        let scale = norm.map(|norm| (rms_norm::scale(row, norm.eps), norm.weight));
        let value = |at| match scale {
            Some((scale, weight)) => rms_norm::normed(load(row, at), scale, load(weight, at)),
            None => load(row, at),
        };
        let (start, step) = row_place(layout, group, x.width(), blocks, w);
        for b in 0..blocks {
            let place = &mut scratch[start + b * step..][..layout.block_bytes()];
            let to = place.as_mut_ptr().cast::<f32>();
            let (low, high) = (value(b * BLOCK), value(b * BLOCK + 16));
            match layout {
                // SAFETY: `place` has 128 bytes in this layout.
                Layout::F32 => unsafe {
                    _mm512_storeu_ps(to, low);
                    _mm512_storeu_ps(to.add(16), high);
                },
                // SAFETY: `place` has 68 bytes in this layout.
                Layout::Bf16 => unsafe {
                    let pairs = bits(_mm512_cvtne2ps_pbh(high, low));
                    _mm512_storeu_si512(to.cast(), pairs);
                    to.add(16).write_unaligned(sum_pairs(pairs));
                },
                Layout::Int8 | Layout::Int8Nibbles => int8::write_codes(layout, low, high, place),
                Layout::F32Unplaced | Layout::Bf16Tiles => unreachable!("a layout of another tier"),
            }
        }
    }
}

/// The 32 values as plain bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn bits(pairs: __m512bh) -> __m512i {
    // SAFETY: both are 64 bytes of plain data.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(pairs) }
}

/// Plain bits as 32 values.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(bits: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes of plain data.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
}

/// Sum of 32 bf16 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn sum_pairs(pairs: __m512i) -> f32 {
    let even = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs));
    let odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed())));
    super::lanes::sum(_mm512_add_ps(even, odd))
}

/// Plain products of the given tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn linear(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    let ahead = x.tuning.ahead(weights);
    let mut sums = Sums::ZERO;
    for tiles in x.tuning.passes(tiles) {
        for (tile, first_row, rows, group) in x.meetings(tiles) {
            products(weights, ahead, x.layout, tile, rows, group, &mut sums);
            for (r, sums) in sums.0[..rows].iter().enumerate() {
                let out = out.span(first_row + r, outputs(weights, tile));
                let result = load(sums, 0);
                match epilogue {
                    Epilogue::Store => store(out, 0, result),
                    Epilogue::AddInto => store(out, 0, _mm512_add_ps(load(out, 0), result)),
                }
            }
        }
    }
}

/// Gated products of the given tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn linear_gated(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    let ahead = x.tuning.ahead(weights);
    let (mut gate, mut up) = (Sums::ZERO, Sums::ZERO);
    for tiles in x.tuning.passes(tiles) {
        for (tile, first_row, rows, group) in x.meetings(tiles) {
            products(weights, ahead, x.layout, 2 * tile, rows, group, &mut gate);
            products(weights, ahead, x.layout, 2 * tile + 1, rows, group, &mut up);
            for (r, (gate, up)) in gate.0.iter().zip(&up.0).take(rows).enumerate() {
                let out = out.span(first_row + r, outputs(weights, tile));
                store(out, 0, _mm512_mul_ps(silu(load(gate, 0)), load(up, 0)));
            }
        }
    }
}

fn outputs(weights: &PackedLinear, tile: usize) -> Range<usize> {
    tile * TILE..weights.outputs().min((tile + 1) * TILE)
}

/// Results of one stored tile for one group of rows, by the kernel made for as many rows.
///
/// One tile at a time reads the weights as one stream of memory; the processor overlaps the blocks, which are independent.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn products(
    weights: &PackedLinear,
    ahead: usize,
    layout: Layout,
    tile: usize,
    rows: usize,
    group: &[u8],
    sums: &mut Sums,
) {
    let operands =
        Operands { tile: weights.tile(tile).as_ptr(), blocks: weights.blocks(), x: group.as_ptr(), ahead };
    let sums = &mut sums.0;
    macro_rules! by_rows {
        ($kernel:ident $(, $format:ty)?) => {
            match rows {
                1 => $kernel::<$($format,)? 1>(operands, sums),
                2 => $kernel::<$($format,)? 2>(operands, sums),
                3 => $kernel::<$($format,)? 3>(operands, sums),
                4 => $kernel::<$($format,)? 4>(operands, sums),
                5 => $kernel::<$($format,)? 5>(operands, sums),
                6 => $kernel::<$($format,)? 6>(operands, sums),
                7 => $kernel::<$($format,)? 7>(operands, sums),
                8 => $kernel::<$($format,)? 8>(operands, sums),
                _ => unreachable!("no kernel for a group of {rows} rows"),
            }
        };
    }
    let coded = match layout {
        Layout::Int8 | Layout::Int8Nibbles => true,
        Layout::F32 | Layout::F32Unplaced | Layout::Bf16 | Layout::Bf16Tiles => false,
    };
    // SAFETY: the tile is stored, and the group holds `rows` rows of all blocks in the class's layout. Whoever runs this
    // tier holds a proof of VNNI too.
    unsafe {
        match (weights.format(), coded) {
            (WeightFormat::Q4_0, true) => by_rows!(int8, Q4_0),
            (WeightFormat::Q4_1, true) => by_rows!(int8, Q4_1),
            (WeightFormat::Q8_0, true) => by_rows!(int8, Q8_0),
            (WeightFormat::Q4_K, true) => by_rows!(int8, Q4_K),
            (WeightFormat::Q4_0, false) => by_rows!(quantised, Q4_0),
            (WeightFormat::Q4_1, false) => by_rows!(quantised, Q4_1),
            (WeightFormat::Q8_0, false) => by_rows!(quantised, Q8_0),
            (WeightFormat::Q4_K, false) => by_rows!(q4_k),
            (WeightFormat::Q6_K, _) => by_rows!(q6_k),
            (WeightFormat::BF16, _) => by_rows!(dense, BF16),
            (WeightFormat::F16, _) => by_rows!(dense, F16),
            (WeightFormat::F32, _) => by_rows!(dense, F32),
        }
    }
}
