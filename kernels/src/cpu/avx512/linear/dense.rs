//! Products with dense tiles: bf16 pairs, or f16 and f32 weights by f32 activations.

use super::pairs;
use crate::{
    WeightFormat,
    cpu::{
        activations::Layout,
        codes::Operands,
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::arch::x86_64::*;

/// A dense format, and how it meets activations.
pub(super) trait Dense {
    const FORMAT: WeightFormat;
    /// Steps of a block: a pair of columns for bf16, else one column.
    const STEPS: usize;
    /// Bytes from a row to the next in a block of a prepared group.
    const X_ROW: usize;
}

pub(super) struct BF16;
pub(super) struct F16;
pub(super) struct F32;

impl Dense for BF16 {
    const FORMAT: WeightFormat = WeightFormat::BF16;
    const STEPS: usize = BLOCK / 2;
    const X_ROW: usize = Layout::Bf16.block_bytes();
}

impl Dense for F16 {
    const FORMAT: WeightFormat = WeightFormat::F16;
    const STEPS: usize = BLOCK;
    const X_ROW: usize = Layout::F32.block_bytes();
}

impl Dense for F32 {
    const FORMAT: WeightFormat = WeightFormat::F32;
    const STEPS: usize = BLOCK;
    const X_ROW: usize = Layout::F32.block_bytes();
}

/// Writes `sums[r][n]` for `R` rows: two chains of alternate steps over all blocks, then their sum.
///
/// # Safety
/// `operands` names a tile of `D::FORMAT` and a group of `R` rows, prepared in its layout.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn dense<D: Dense, const R: usize>(operands: Operands, sums: &mut [[f32; TILE]]) {
    let block_bytes = const { block_bytes(D::FORMAT) };
    let step_bytes = block_bytes / D::STEPS;
    let Operands { mut tile, blocks, mut x, ahead, .. } = operands;
    let zero = _mm512_setzero_ps();
    let (mut even, mut odd) = ([zero; R], [zero; R]);
    for _ in 0..blocks {
        // SAFETY: the block of the tile and of the group is inside what the caller named; prefetching touches nothing.
        unsafe {
            for line in 0..block_bytes / 64 {
                _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
            }
            for step in (0..D::STEPS).step_by(2) {
                add_products::<D, R>(&mut even, tile.add(step * step_bytes), x.add(4 * step));
                add_products::<D, R>(&mut odd, tile.add((step + 1) * step_bytes), x.add(4 * (step + 1)));
            }
        }
        tile = tile.wrapping_add(block_bytes);
        x = x.wrapping_add(R * D::X_ROW);
    }
    for (r, sums) in sums[..R].iter_mut().enumerate() {
        super::store(sums, 0, _mm512_add_ps(even[r], odd[r]));
    }
}

/// Adds the products of one step to `chains[r]`.
///
/// # Safety
/// `weights` is one step of a tile, `x` the same step of row 0 in a block of a prepared group of `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn add_products<D: Dense, const R: usize>(chains: &mut [__m512; R], weights: *const u8, x: *const u8) {
    // SAFETY: promised by the caller.
    unsafe {
        if D::FORMAT == WeightFormat::BF16 {
            let weights = pairs(_mm512_loadu_si512(weights.cast()));
            for (r, chain) in chains.iter_mut().enumerate() {
                let x = _mm512_set1_epi32(x.add(r * D::X_ROW).cast::<i32>().read_unaligned());
                *chain = _mm512_dpbf16_ps(*chain, weights, pairs(x));
            }
            return;
        }
        let weights = if D::FORMAT == WeightFormat::F16 {
            _mm512_cvtph_ps(_mm256_loadu_si256(weights.cast()))
        } else {
            _mm512_loadu_ps(weights.cast())
        };
        for (r, chain) in chains.iter_mut().enumerate() {
            let x = _mm512_set1_ps(x.add(r * D::X_ROW).cast::<f32>().read_unaligned());
            *chain = _mm512_fmadd_ps(weights, x, *chain);
        }
    }
}
