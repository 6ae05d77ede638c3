//! Products with dense tiles: f32 activations by the f32 values of weights, which are exact.

use crate::{
    WeightFormat,
    cpu::{
        activations::{Layout, ProductOperands},
        codes::{Operands, Sums},
        lanes::widened,
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::arch::aarch64::*;

/// Outputs of a vector.
const LANES: usize = 4;
/// Vectors of outputs in a tile.
const VECTORS: usize = TILE / LANES;
/// Bytes from a row to the next in a block of a prepared group.
const X_ROW: usize = Layout::F32.block_bytes();
/// Rows that share the unpacking of a weight: their sums and totals take 24 registers of 32.
const ROWS: usize = 4;

/// Weights of columns `k`, which is even, and `k + 1` for four outputs, of a block of a tile.
type Pair = unsafe fn(*const u8, usize, usize) -> [float32x4_t; 2];

/// Results of stored tile `t` of a product.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn dense(format: WeightFormat, product: &ProductOperands<'_>, t: usize, sums: &mut Sums) {
    for (i, sums) in sums.0[..product.rows].chunks_mut(ROWS).enumerate() {
        let x = product.group[i * ROWS * product.layout.block_bytes()..].as_ptr();
        let operands = Operands { x, ..product.operands(t) };
        macro_rules! by_rows {
            ($pair:ident) => {
                match sums.len() {
                    1 => rows::<1>(format, operands, $pair, sums),
                    2 => rows::<2>(format, operands, $pair, sums),
                    3 => rows::<3>(format, operands, $pair, sums),
                    _ => rows::<ROWS>(format, operands, $pair, sums),
                }
            };
        }
        // SAFETY: the tile is stored, and every block of the group holds these rows in f32.
        unsafe {
            match format {
                WeightFormat::BF16 => by_rows!(pair_of_bf16),
                WeightFormat::F16 => by_rows!(pair_of_f16),
                _ => by_rows!(pair_of_f32),
            }
        }
    }
}

/// Writes `sums[r][n]` for `R` rows of a group of `operands.rows`: of each block two chains, of its even and of its odd
/// columns, whose sum is added to the row's total.
///
/// # Safety
/// `operands` names a tile of the format, and in `x` the first of `R` rows of a group in the layout of f32.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn rows<const R: usize>(
    format: WeightFormat,
    operands: Operands,
    pair: Pair,
    sums: &mut [[f32; TILE]],
) {
    let Operands { mut tile, blocks, mut x, rows, .. } = operands;
    let mut totals = [[vdupq_n_f32(0.0); R]; VECTORS];
    for _ in 0..blocks {
        for (v, totals) in totals.iter_mut().enumerate() {
            let mut chains = [[vdupq_n_f32(0.0); 2]; R];
            for k in (0..BLOCK).step_by(2) {
                // SAFETY: the block of the tile and of the group is inside what the caller named.
                unsafe {
                    let weights = pair(tile, k, v);
                    for (r, chains) in chains.iter_mut().enumerate() {
                        let x = x.add(r * X_ROW + 4 * k).cast::<f32>();
                        chains[0] = vfmaq_n_f32(chains[0], weights[0], *x);
                        chains[1] = vfmaq_n_f32(chains[1], weights[1], *x.add(1));
                    }
                }
            }
            for (total, [even, odd]) in totals.iter_mut().zip(chains) {
                *total = vaddq_f32(*total, vaddq_f32(even, odd));
            }
        }
        tile = tile.wrapping_add(block_bytes(format));
        x = x.wrapping_add(rows * X_ROW);
    }
    for (r, sums) in sums[..R].iter_mut().enumerate() {
        for (v, totals) in totals.iter().enumerate() {
            // SAFETY: a row has the outputs of a tile.
            unsafe { vst1q_f32(sums.as_mut_ptr().add(v * LANES), totals[r]) };
        }
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn pair_of_f32(weights: *const u8, k: usize, vector: usize) -> [float32x4_t; 2] {
    let at = weights.cast::<f32>().wrapping_add(TILE * k + LANES * vector);
    // SAFETY: promised by the caller.
    unsafe { [vld1q_f32(at), vld1q_f32(at.add(TILE))] }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn pair_of_f16(weights: *const u8, k: usize, vector: usize) -> [float32x4_t; 2] {
    let at = weights.cast::<u16>().wrapping_add(TILE * k + LANES * vector);
    // SAFETY: promised by the caller.
    unsafe { [widened(vld1_u16(at)), widened(vld1_u16(at.add(TILE)))] }
}

/// Two columns of an output lie together.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn pair_of_bf16(weights: *const u8, k: usize, vector: usize) -> [float32x4_t; 2] {
    // SAFETY: promised by the caller.
    let pairs = unsafe { vld1q_u32(weights.add(2 * TILE * k + 4 * LANES * vector).cast()) };
    let odd = vandq_u32(pairs, vdupq_n_u32(0xffff_0000));
    [vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs)), vreinterpretq_f32_u32(odd)]
}
