//! Products with dense tiles: f32 activations by the f32 values of weights, which are exact.

use crate::{
    WeightFormat,
    cpu::{
        activations::Layout,
        codes::{Fetching, Operands},
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::arch::x86_64::*;

/// Lanes of a vector.
const LANES: usize = 8;
/// Vectors of outputs in a tile.
const VECTORS: usize = TILE / LANES;
/// Bytes from a row to the next in a block of a prepared group.
const X_ROW: usize = Layout::F32.block_bytes();

/// A dense format.
pub(super) trait Dense {
    const FORMAT: WeightFormat;
}

macro_rules! formats {
    ($($name:ident)*) => {
        $(
            pub(super) struct $name;

            impl Dense for $name {
                const FORMAT: WeightFormat = WeightFormat::$name;
            }
        )*
    };
}

formats!(BF16 F16 F32);

/// Writes `sums[r][n]` for `R` rows of a group of `operands.rows`: of each block two chains, of its even and of its odd
/// columns, whose sum is added to the row's total.
///
/// # Safety
/// `operands` names a tile of `F::FORMAT`, and in `x` the first of `R` rows of a group in the layout of f32.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn dense<F: Dense, const R: usize>(operands: Operands, sums: &mut [[f32; TILE]]) {
    let block_bytes = const { block_bytes(F::FORMAT) };
    let Operands { mut tile, blocks, mut x, rows, fetching: Fetching { ahead, .. }, .. } = operands;
    let mut totals = [[_mm256_setzero_ps(); R]; VECTORS];
    for _ in 0..blocks {
        for line in 0..block_bytes / 64 {
            _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
        }
        for (v, totals) in totals.iter_mut().enumerate() {
            let mut chains = [[_mm256_setzero_ps(); 2]; R];
            for k in (0..BLOCK).step_by(2) {
                // SAFETY: the block of the tile and of the group is inside what the caller named.
                unsafe {
                    let weights = pair::<F>(tile, k, v);
                    for (r, chains) in chains.iter_mut().enumerate() {
                        let x = x.add(r * X_ROW + 4 * k).cast::<f32>();
                        chains[0] = _mm256_fmadd_ps(weights[0], _mm256_set1_ps(*x), chains[0]);
                        chains[1] = _mm256_fmadd_ps(weights[1], _mm256_set1_ps(*x.add(1)), chains[1]);
                    }
                }
            }
            for (total, [even, odd]) in totals.iter_mut().zip(chains) {
                *total = _mm256_add_ps(*total, _mm256_add_ps(even, odd));
            }
        }
        tile = tile.wrapping_add(block_bytes);
        x = x.wrapping_add(rows * X_ROW);
    }
    for (r, sums) in sums[..R].iter_mut().enumerate() {
        for (v, totals) in totals.iter().enumerate() {
            // SAFETY: a row has the outputs of a tile.
            unsafe { _mm256_storeu_ps(sums.as_mut_ptr().add(v * LANES), totals[r]) };
        }
    }
}

/// Eight f16 numbers.
///
/// # Safety
/// 16 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: promised by the caller.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// Weights of columns `k`, which is even, and `k + 1`.
///
/// # Safety
/// `weights` is a block of a tile of `F::FORMAT`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pair<F: Dense>(weights: *const u8, k: usize, vector: usize) -> [__m256; 2] {
    // SAFETY: promised by the caller.
    unsafe {
        match F::FORMAT {
            WeightFormat::F32 => {
                let at = weights.cast::<f32>().add(TILE * k + LANES * vector);
                [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(TILE))]
            }
            WeightFormat::F16 => {
                let at = weights.add(2 * (TILE * k + LANES * vector));
                [halves(at), halves(at.add(2 * TILE))]
            }
            _ => {
                let pairs = _mm256_loadu_si256(weights.add(2 * TILE * k + 4 * LANES * vector).cast());
                let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
                [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)), _mm256_castsi256_ps(odd)]
            }
        }
    }
}
