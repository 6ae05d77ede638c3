//! Matrix products over packed weights: preparation, walk over tiles, epilogues.

mod dense;
mod quantised;

use dense::{BF16, F16, F32, dense};
use quantised::{Q4_0, Q4_1, Q8_0, quantised};

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

/// Stored tiles whose results are finished together; even, so that a gate meets its up.
const CHUNK: usize = 4;

/// Results of a chunk: `[tile][row][output]`.
#[repr(align(64))]
struct Sums([[[f32; TILE]; GROUP]; CHUNK]);

/// What a register-blocked kernel reads.
#[derive(Clone, Copy)]
struct Operands {
    /// First of the adjacent tiles.
    tiles: *const u8,
    tile_bytes: usize,
    blocks: usize,
    /// Prepared group of exactly as many rows as the kernel is made for.
    x: *const u8,
    /// Distance from a weight to the one to fetch ahead of its use.
    ahead: usize,
}

/// Lays activations out, normalised first if asked.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn prepare(layout: Layout, x: Rows<'_>, norm: Option<Norm<'_>>, scratch: &mut [u8]) {
    let blocks = x.columns().div_ceil(BLOCK);
    for w in 0..x.width() {
        let row = x.row(w);
        let scale = norm.map(|norm| (rms_norm::scale(row, norm.eps), norm.weight));
        let value = |at| match scale {
            Some((scale, weight)) => rms_norm::normed(load(row, at), scale, load(weight, at)),
            None => load(row, at),
        };
        let (start, step) = row_place(layout, x.width(), blocks, w);
        for b in 0..blocks {
            let place = &mut scratch[start + b * step..][..layout.block_bytes()];
            let to = place.as_mut_ptr().cast::<f32>();
            let (low, high) = (value(b * BLOCK), value(b * BLOCK + 16));
            // SAFETY: `place` has 128 bytes in the f32 layout, 68 in the bf16 layout.
            unsafe {
                match layout {
                    Layout::F32 => {
                        _mm512_storeu_ps(to, low);
                        _mm512_storeu_ps(to.add(16), high);
                    }
                    Layout::Bf16 => {
                        let pairs = bits(_mm512_cvtne2ps_pbh(high, low));
                        _mm512_storeu_si512(to.cast(), pairs);
                        to.add(16).write_unaligned(sum_pairs(pairs));
                    }
                }
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
fn sum_pairs(pairs: __m512i) -> f32 {
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
    for_each_chunk(weights, x, tiles, |first_row, rows, tiles, sums| {
        for (sums, tile) in sums.0.iter().zip(tiles) {
            for (r, sums) in sums[..rows].iter().enumerate() {
                let out = out.span(first_row + r, outputs(weights, tile));
                let result = load(sums, 0);
                match epilogue {
                    Epilogue::Store => store(out, 0, result),
                    Epilogue::AddInto => store(out, 0, _mm512_add_ps(load(out, 0), result)),
                }
            }
        }
    });
}

/// Gated products of the given tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn linear_gated(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    for_each_chunk(weights, x, 2 * tiles.start..2 * tiles.end, |first_row, rows, tiles, sums| {
        for (pair, stored) in sums.0.chunks_exact(2).zip(tiles.step_by(2)) {
            for (r, (gate, up)) in pair[0].iter().zip(&pair[1]).take(rows).enumerate() {
                let out = out.span(first_row + r, outputs(weights, stored / 2));
                store(out, 0, _mm512_mul_ps(silu(load(gate, 0)), load(up, 0)));
            }
        }
    });
}

fn outputs(weights: &PackedLinear, tile: usize) -> Range<usize> {
    tile * TILE..weights.outputs().min((tile + 1) * TILE)
}

/// Computes stored tiles chunk by chunk, inside a chunk group of rows by group, and hands
/// `(first row, rows, tiles of the chunk, results)` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn for_each_chunk(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    stored: Range<usize>,
    mut finish: impl FnMut(usize, usize, Range<usize>, &Sums),
) {
    let tile_bytes = weights.tile_bytes();
    // Few rows: more tiles at once, for independent chains. Many: fewer, to keep weights near between groups.
    let chunk = if x.width() <= 2 { CHUNK } else { 2 };
    let mut sums = Sums([[[0.0; TILE]; GROUP]; CHUNK]);
    for start in stored.clone().step_by(chunk) {
        let tiles = start..stored.end.min(start + chunk);
        for (first_row, rows, group) in x.groups() {
            let mut done = 0;
            while done < tiles.len() {
                let step = blocking(rows, tiles.len() - done);
                let operands = Operands {
                    tiles: weights.tile(start + done).as_ptr(),
                    tile_bytes,
                    blocks: weights.blocks(),
                    x: group.as_ptr(),
                    ahead: chunk * tile_bytes,
                };
                // SAFETY: the tiles are adjacent and stored, and the group holds `rows` rows of all blocks.
                unsafe { products(weights.format(), rows, step, operands, &mut sums.0[done..]) };
                done += step;
            }
            finish(first_row, rows, tiles.clone(), &sums);
        }
    }
}

/// Tiles at once for `rows` rows: as many chains as registers hold, in powers of two.
const fn blocking(rows: usize, left: usize) -> usize {
    match (rows, left) {
        (1 | 2, 4..) => 4,
        (1..=4, 2..) => 2,
        _ => 1,
    }
}

/// `rows` by `tiles` results of one group, by the kernel made for that shape.
///
/// # Safety
/// As for the kernels: `tiles` adjacent tiles, a prepared group of `rows` rows, room in `sums`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn products(
    format: WeightFormat,
    rows: usize,
    tiles: usize,
    operands: Operands,
    sums: &mut [[[f32; TILE]; GROUP]],
) {
    macro_rules! by_shape {
        ($kernel:ident, $format:ty) => {
            match (rows, tiles) {
                (1, 1) => $kernel::<$format, 1, 1>(operands, sums),
                (1, 2) => $kernel::<$format, 1, 2>(operands, sums),
                (1, 4) => $kernel::<$format, 1, 4>(operands, sums),
                (2, 1) => $kernel::<$format, 2, 1>(operands, sums),
                (2, 2) => $kernel::<$format, 2, 2>(operands, sums),
                (2, 4) => $kernel::<$format, 2, 4>(operands, sums),
                (3, 1) => $kernel::<$format, 3, 1>(operands, sums),
                (3, 2) => $kernel::<$format, 3, 2>(operands, sums),
                (4, 1) => $kernel::<$format, 4, 1>(operands, sums),
                (4, 2) => $kernel::<$format, 4, 2>(operands, sums),
                (5, 1) => $kernel::<$format, 5, 1>(operands, sums),
                (6, 1) => $kernel::<$format, 6, 1>(operands, sums),
                (7, 1) => $kernel::<$format, 7, 1>(operands, sums),
                (8, 1) => $kernel::<$format, 8, 1>(operands, sums),
                _ => unreachable!("no kernel for {rows} rows by {tiles} tiles"),
            }
        };
    }
    // SAFETY: the caller's promise is the kernels'.
    unsafe {
        match format {
            WeightFormat::Q4_0 => by_shape!(quantised, Q4_0),
            WeightFormat::Q4_1 => by_shape!(quantised, Q4_1),
            WeightFormat::Q8_0 => by_shape!(quantised, Q8_0),
            WeightFormat::BF16 => by_shape!(dense, BF16),
            WeightFormat::F16 => by_shape!(dense, F16),
            WeightFormat::F32 => by_shape!(dense, F32),
        }
    }
}
