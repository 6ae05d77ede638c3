//! Products with dense tiles: bf16 pairs, or f16 and f32 weights by f32 activations.

use super::{
    Operands, pairs,
    quantised::{self, halves},
};
use crate::{
    WeightFormat,
    cpu::{
        activations::{GROUP, Layout},
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::{arch::x86_64::*, array};

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

/// Writes `sums[t][r][n]` for `R` rows by `T` tiles.
///
/// # Safety
/// `operands` names `T` adjacent tiles of `D::FORMAT` and a group of `R` rows, prepared in its layout.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn dense<D: Dense, const R: usize, const T: usize>(
    operands: Operands,
    sums: &mut [[[f32; TILE]; GROUP]],
) {
    let block_bytes = const { block_bytes(D::FORMAT) };
    let step_bytes = block_bytes / D::STEPS;
    let Operands { tiles, tile_bytes, blocks, mut x, ahead } = operands;
    let zero = _mm512_setzero_ps();
    let (mut even, mut odd) = ([[zero; T]; R], [[zero; T]; R]);
    for b in 0..blocks {
        let block: [*const u8; T] = array::from_fn(|t| tiles.wrapping_add(t * tile_bytes + b * block_bytes));
        for step in (0..D::STEPS).step_by(2) {
            // SAFETY: block `b` of each tile and of the group is inside what the caller named; prefetching touches
            // nothing.
            unsafe {
                let weights = block.map(|block| block.add(step * step_bytes));
                for weights in weights {
                    _mm_prefetch::<_MM_HINT_T1>(weights.wrapping_add(ahead).cast());
                    if 2 * step_bytes > 64 {
                        _mm_prefetch::<_MM_HINT_T1>(weights.wrapping_add(ahead + 64).cast());
                    }
                }
                add_products::<D, R, T>(&mut even, weights, x.add(4 * step));
                let weights = weights.map(|weights| weights.add(step_bytes));
                add_products::<D, R, T>(&mut odd, weights, x.add(4 * (step + 1)));
            }
        }
        x = x.wrapping_add(R * D::X_ROW);
    }
    for (t, sums) in sums[..T].iter_mut().enumerate() {
        for (r, sums) in sums[..R].iter_mut().enumerate() {
            super::store(sums, 0, _mm512_add_ps(even[r][t], odd[r][t]));
        }
    }
}

/// Adds the products of one step to `chains[r][t]`.
///
/// # Safety
/// `weights` are one step of each tile, `x` the same step of row 0 in a block of a prepared group of `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn add_products<D: Dense, const R: usize, const T: usize>(
    chains: &mut [[__m512; T]; R],
    weights: [*const u8; T],
    x: *const u8,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let weights = weights.map(|weights| match D::FORMAT {
            WeightFormat::F16 => halves(weights),
            _ => _mm512_loadu_ps(weights.cast()),
        });
        match D::FORMAT {
            WeightFormat::BF16 => {
                let weights = weights.map(|weights| pairs(_mm512_castps_si512(weights)));
                quantised::add_products::<R, T>(chains, weights, x);
            }
            _ => {
                for (r, chains) in chains.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(x.add(r * D::X_ROW).cast::<f32>().read_unaligned());
                    for (chain, weights) in chains.iter_mut().zip(weights) {
                        *chain = _mm512_fmadd_ps(weights, x, *chain);
                    }
                }
            }
        }
    }
}
