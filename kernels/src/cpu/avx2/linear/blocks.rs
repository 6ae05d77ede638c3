//! Products of rows with one packed tile, block by block, `V` vectors of eight outputs at a time.

use super::{Operands, SIGN_PLACE, formats::Format, place_of_nibble};
use crate::{
    WeightFormat,
    cpu::{
        avx2::lanes::{LANES, halves, store},
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::arch::x86_64::*;

/// Vectors of outputs in a tile.
pub(super) const VECTORS: usize = TILE / LANES;

/// Chains of a block for `R` rows and `V` vectors of outputs: of its even and of its odd columns, or, for bytes, of both
/// in turn for the first and the last four outputs.
pub(super) type Chains<const R: usize, const V: usize> = [[[__m256; 2]; V]; R];

/// Writes `sums[r][n]` for `R` rows. `V` is what registers hold beside as many rows.
///
/// # Safety
/// `operands` names a tile of `F::FORMAT` and `R` rows of a group prepared in its layout.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn product<F: Format, const R: usize, const V: usize>(
    operands: Operands,
    sums: &mut [[f32; TILE]],
) {
    let block_bytes = const { block_bytes(F::FORMAT) };
    let Operands { mut tile, blocks, mut x, x_step, ahead } = operands;
    let mut totals = [[_mm256_setzero_ps(); R]; VECTORS];
    for _ in 0..blocks {
        for line in 0..block_bytes / 64 {
            _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
        }
        for (i, totals) in totals.chunks_exact_mut(V).enumerate() {
            // SAFETY: the block of the tile and of the group is inside what the caller named.
            unsafe { add_block::<F, R, V>(totals, tile, i * V, x) };
        }
        tile = tile.wrapping_add(block_bytes);
        x = x.wrapping_add(x_step);
    }
    for (r, sums) in sums[..R].iter_mut().enumerate() {
        for (v, totals) in totals.iter().enumerate() {
            store(sums, v * LANES, totals[r]);
        }
    }
}

/// Adds the products of `R` rows with outputs `8 first .. 8 (first + V)` of a block to `totals[v][r]`.
///
/// # Safety
/// `block` is a block of a tile of `F::FORMAT`, `x` the first of `R` rows in the same block of a prepared group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_block<F: Format, const R: usize, const V: usize>(
    totals: &mut [[__m256; R]],
    block: *const u8,
    first: usize,
    x: *const u8,
) {
    let mut chains: Chains<R, V> = [[[_mm256_setzero_ps(); 2]; V]; R];
    // SAFETY: promised by the caller: 16 outputs by 32 inputs behind the header, then 32 values of each row, and, in
    // the layout of 4-bit codes, their sum.
    unsafe {
        let codes = block.add(F::HEADER);
        match F::FORMAT {
            WeightFormat::Q4_0 | WeightFormat::Q4_1 => add_nibbles::<F, R, V>(&mut chains, codes, first, x),
            WeightFormat::Q8_0 => add_bytes::<F, R, V>(&mut chains, codes, first, x),
            WeightFormat::BF16 | WeightFormat::F16 | WeightFormat::F32 => {
                add_dense::<F, R, V>(&mut chains, codes, first, x);
            }
            WeightFormat::Q4_K | WeightFormat::Q6_K => unreachable!("a format of longer blocks"),
        }
        for (v, totals) in totals.iter_mut().enumerate() {
            for (r, total) in totals.iter_mut().enumerate() {
                let row = x.add(r * F::X_ROW).cast::<f32>();
                *total = joined::<F>(*total, chains[r][v], block, first + v, row);
            }
        }
    }
}

/// `total` with the two chains of a block, scaled.
///
/// # Safety
/// `block` is a block of a tile of `F::FORMAT`, `row` the same block of a prepared row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn joined<F: Format>(
    total: __m256,
    [even, odd]: [__m256; 2],
    block: *const u8,
    vector: usize,
    row: *const f32,
) -> __m256 {
    // SAFETY: promised by the caller; the layout of 4-bit codes has a sum behind the values.
    unsafe {
        match F::FORMAT {
            WeightFormat::BF16 | WeightFormat::F16 | WeightFormat::F32 => {
                _mm256_add_ps(total, _mm256_add_ps(even, odd))
            }
            WeightFormat::Q8_0 => {
                // Pairs of outputs 01 45 23 67, then in order.
                let pairs = _mm256_castps_pd(_mm256_hadd_ps(even, odd));
                let block_sum = _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(pairs));
                _mm256_fmadd_ps(scales(block, vector), block_sum, total)
            }
            WeightFormat::Q4_0 => {
                let sum = _mm256_set1_ps(*row.add(BLOCK));
                let block_sum = _mm256_fnmadd_ps(_mm256_set1_ps(8.0), sum, _mm256_add_ps(even, odd));
                _mm256_fmadd_ps(scales(block, vector), block_sum, total)
            }
            WeightFormat::Q4_1 => {
                let sum = _mm256_set1_ps(*row.add(BLOCK));
                let total = _mm256_fmadd_ps(scales(block, vector), _mm256_add_ps(even, odd), total);
                _mm256_fmadd_ps(scales(block.add(2 * TILE), vector), sum, total)
            }
            WeightFormat::Q4_K | WeightFormat::Q6_K => unreachable!("a format of longer blocks"),
        }
    }
}

/// Vector `vector` of the 16 f16 numbers at `at`.
///
/// # Safety
/// 32 bytes are readable at `at`, and `vector` is 0 or 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scales(at: *const u8, vector: usize) -> __m256 {
    // SAFETY: promised by the caller.
    unsafe { halves(at.add(2 * LANES * vector)) }
}

/// 4-bit codes: eight columns of an output in one word.
///
/// # Safety
/// As for [`add_block`], `codes` behind the header.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn add_nibbles<F: Format, const R: usize, const V: usize>(
    chains: &mut Chains<R, V>,
    codes: *const u8,
    first: usize,
    x: *const u8,
) {
    for eight in 0..BLOCK / 8 {
        // SAFETY: promised by the caller.
        unsafe {
            let mut words = [_mm256_setzero_si256(); V];
            for (v, words) in words.iter_mut().enumerate() {
                *words = _mm256_loadu_si256(codes.add(4 * (TILE * eight + LANES * (first + v))).cast());
            }
            let x = x.cast::<f32>().add(8 * eight);
            add_nibble::<F, R, V, 0>(chains, &words, x);
            add_nibble::<F, R, V, 1>(chains, &words, x);
            add_nibble::<F, R, V, 2>(chains, &words, x);
            add_nibble::<F, R, V, 3>(chains, &words, x);
            add_nibble::<F, R, V, 4>(chains, &words, x);
            add_nibble::<F, R, V, 5>(chains, &words, x);
            add_nibble::<F, R, V, 6>(chains, &words, x);
            add_nibble::<F, R, V, 7>(chains, &words, x);
        }
    }
}

/// Column `K` of eight. A code keeps its place in the word and so counts a power of two times its value, which the
/// prepared activation is divided by: the product is the same, and unpacking takes no shift.
///
/// # Safety
/// Behind `x` are eight values of each of `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_nibble<F: Format, const R: usize, const V: usize, const K: usize>(
    chains: &mut Chains<R, V>,
    words: &[__m256i; V],
    x: *const f32,
) {
    let place = const { place_of_nibble(K) };
    let mut weights = [_mm256_setzero_ps(); V];
    for (weights, words) in weights.iter_mut().zip(words) {
        *weights = _mm256_cvtepi32_ps(if place == SIGN_PLACE {
            _mm256_srli_epi32::<SIGN_PLACE>(*words)
        } else {
            _mm256_and_si256(*words, _mm256_set1_epi32(15 << place))
        });
    }
    // SAFETY: promised by the caller.
    unsafe { add_column::<F, R, V>(chains, K, weights, x.add(K)) };
}

/// Signed bytes: a vector holds the two columns of a pair for four outputs.
///
/// # Safety
/// As for [`add_block`], `codes` behind the header.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_bytes<F: Format, const R: usize, const V: usize>(
    chains: &mut Chains<R, V>,
    codes: *const u8,
    first: usize,
    x: *const u8,
) {
    for pair in 0..BLOCK / 2 {
        // SAFETY: promised by the caller.
        unsafe {
            let mut weights = [[_mm256_setzero_ps(); 2]; V];
            for (v, weights) in weights.iter_mut().enumerate() {
                for (four, weights) in weights.iter_mut().enumerate() {
                    let at = codes.add(2 * (TILE * pair + LANES * (first + v) + 4 * four));
                    *weights = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())));
                }
            }
            for (r, chains) in chains.iter_mut().enumerate() {
                let both = x.add(r * F::X_ROW + 8 * pair).cast::<f64>().read_unaligned();
                let x = _mm256_castpd_ps(_mm256_set1_pd(both));
                for (chains, weights) in chains.iter_mut().zip(&weights) {
                    chains[0] = _mm256_fmadd_ps(weights[0], x, chains[0]);
                    chains[1] = _mm256_fmadd_ps(weights[1], x, chains[1]);
                }
            }
        }
    }
}

/// Dense weights.
///
/// # Safety
/// As for [`add_block`], `weights` being the block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_dense<F: Format, const R: usize, const V: usize>(
    chains: &mut Chains<R, V>,
    weights: *const u8,
    first: usize,
    x: *const u8,
) {
    for k in (0..BLOCK).step_by(2) {
        let (mut even, mut odd) = ([_mm256_setzero_ps(); V], [_mm256_setzero_ps(); V]);
        // SAFETY: promised by the caller.
        unsafe {
            for (v, (even, odd)) in even.iter_mut().zip(&mut odd).enumerate() {
                [*even, *odd] = dense_pair::<F>(weights, k, first + v);
            }
            let x = x.cast::<f32>().add(k);
            add_column::<F, R, V>(chains, 0, even, x);
            add_column::<F, R, V>(chains, 1, odd, x.add(1));
        }
    }
}

/// Weights of columns `k`, which is even, and `k + 1`.
///
/// # Safety
/// `weights` is a block of a tile of `F::FORMAT`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dense_pair<F: Format>(weights: *const u8, k: usize, vector: usize) -> [__m256; 2] {
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
            WeightFormat::BF16 => {
                let pairs = _mm256_loadu_si256(weights.add(2 * TILE * k + 4 * LANES * vector).cast());
                let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
                [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)), _mm256_castsi256_ps(odd)]
            }
            WeightFormat::Q4_0
            | WeightFormat::Q4_1
            | WeightFormat::Q8_0
            | WeightFormat::Q4_K
            | WeightFormat::Q6_K => unreachable!("quantised"),
        }
    }
}

/// Adds the products of a column's weights to the chains of its parity.
///
/// # Safety
/// `x` is the column's value of the first of `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn add_column<F: Format, const R: usize, const V: usize>(
    chains: &mut Chains<R, V>,
    column: usize,
    weights: [__m256; V],
    x: *const f32,
) {
    for (r, chains) in chains.iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        let x = _mm256_set1_ps(unsafe { *x.add(r * F::X_ROW / 4) });
        for (chains, weights) in chains.iter_mut().zip(weights) {
            chains[column % 2] = _mm256_fmadd_ps(weights, x, chains[column % 2]);
        }
    }
}
