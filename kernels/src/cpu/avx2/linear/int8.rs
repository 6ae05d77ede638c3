//! Products of weight codes with activations as bytes: the class of
//! [`linear_int8`](crate::reference::linear_int8).
//!
//! `VPMADDUBSW` adds two products of unsigned by signed bytes to 16 bits and would cut sums that do not fit, but none
//! here leaves them: eight instructions of nibbles make at most `8 * 2 * 15 * 127`, and one of signed bytes, by
//! their magnitudes with the signs given to the activations, at most `2 * 128 * 127`.

use super::{
    Operands,
    blocks::{VECTORS, scales},
    formats::Format,
    superblocks::q4_k_scales,
};
use crate::{
    WeightFormat,
    cpu::{
        activations::{CODED, MINUS_SUM, SCALE, SCALED_SUM},
        avx2::lanes::{LANES, store},
        packing::{BLOCK, TILE, block_bytes, block_columns, superblocks::Q4_K_CODES},
    },
};
use std::arch::x86_64::*;

/// Writes `sums[r][n]` for `R` rows.
///
/// # Safety
/// `operands` names a tile of `F::FORMAT` and `R` rows of a group prepared in its layout of codes.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn int8_product<F: Format, const R: usize>(operands: Operands, sums: &mut [[f32; TILE]]) {
    let block_bytes = const { block_bytes(F::FORMAT) };
    let Operands { mut tile, blocks, mut x, x_step, ahead } = operands;
    let mut totals = [[_mm256_setzero_ps(); R]; VECTORS];
    for _ in 0..blocks {
        for line in 0..block_bytes / 64 {
            _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
        }
        for part in 0..const { block_columns(F::FORMAT) / BLOCK } {
            // SAFETY: the block of the tile and its blocks of the group are inside what the caller named.
            unsafe { add_part::<F, R>(&mut totals, tile, part, x) };
            x = x.wrapping_add(x_step);
        }
        tile = tile.wrapping_add(block_bytes);
    }
    for (r, sums) in sums[..R].iter_mut().enumerate() {
        for (v, totals) in totals.iter().enumerate() {
            store(sums, v * LANES, totals[r]);
        }
    }
}

/// Adds the products of `R` rows with 32 columns of a block to `totals[v][r]`.
///
/// # Safety
/// `block` is a block of a tile of `F::FORMAT` with such a part, `x` the first of `R` rows in the same part of a prepared
/// group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_part<F: Format, const R: usize>(
    totals: &mut [[__m256; R]; VECTORS],
    block: *const u8,
    part: usize,
    x: *const u8,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let codes = block.add(F::HEADER + part * Q4_K_CODES);
        let mut products = [[_mm256_setzero_si256(); R]; VECTORS];
        match F::FORMAT {
            WeightFormat::Q4_0 | WeightFormat::Q4_1 | WeightFormat::Q4_K => {
                for (v, products) in products.iter_mut().enumerate() {
                    multiply_nibbles(products, codes.add(4 * LANES * v), x);
                }
            }
            WeightFormat::Q8_0 => multiply_bytes(&mut products, codes, x),
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
                unreachable!("a format of another class")
            }
        }
        for (v, (totals, products)) in totals.iter_mut().zip(products).enumerate() {
            let (d, min) = scales_of::<F>(block, part, v);
            for (r, (total, product)) in totals.iter_mut().zip(products).enumerate() {
                let row = x.add(r * CODED);
                let scale = _mm256_mul_ps(d, number(row.add(SCALE)));
                let mut product = product;
                if let WeightFormat::Q4_0 = F::FORMAT {
                    product = _mm256_add_epi32(product, _mm256_slli_epi32::<3>(word(row.add(MINUS_SUM))));
                }
                *total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product), scale, *total);
                match F::FORMAT {
                    WeightFormat::Q4_1 => {
                        *total = _mm256_fmadd_ps(min, number(row.add(SCALED_SUM)), *total);
                    }
                    WeightFormat::Q4_K => {
                        *total = _mm256_fnmadd_ps(min, number(row.add(SCALED_SUM)), *total);
                    }
                    WeightFormat::Q4_0 | WeightFormat::Q8_0 => {}
                    WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
                        unreachable!("a format of another class")
                    }
                }
            }
        }
    }
}

/// Sums of products of 32 columns of nibbles for eight outputs.
///
/// # Safety
/// `codes` points to the first of the outputs in packed nibbles, `x` to the first of `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_nibbles<const R: usize>(products: &mut [__m256i; R], codes: *const u8, x: *const u8) {
    let low = _mm256_set1_epi8(15);
    let mut sums = [_mm256_setzero_si256(); R];
    for eight in 0..BLOCK / 8 {
        // SAFETY: promised by the caller.
        unsafe {
            let words = _mm256_loadu_si256(codes.add(4 * TILE * eight).cast());
            let first = _mm256_and_si256(words, low);
            let second = _mm256_and_si256(_mm256_srli_epi16::<4>(words), low);
            for (r, sum) in sums.iter_mut().enumerate() {
                let x = x.add(r * CODED + 8 * eight);
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(first, word(x)));
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(second, word(x.add(4))));
            }
        }
    }
    for (product, sum) in products.iter_mut().zip(sums) {
        *product = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    }
}

/// Sums of products of 32 columns of signed bytes for the outputs of a tile.
///
/// # Safety
/// `codes` points to the column pairs of a block, `x` to the first of `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_bytes<const R: usize>(
    products: &mut [[__m256i; R]; VECTORS],
    codes: *const u8,
    x: *const u8,
) {
    let ones = _mm256_set1_epi16(1);
    for four in 0..BLOCK / 4 {
        // SAFETY: promised by the caller.
        unsafe {
            let even = _mm256_loadu_si256(codes.add(4 * TILE * four).cast());
            let odd = _mm256_loadu_si256(codes.add(4 * TILE * four + 2 * TILE).cast());
            // Four columns of outputs 0..4 and 8..12, then of the others.
            let weights = [_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd)];
            for (products, weights) in products.iter_mut().zip(weights) {
                let magnitudes = _mm256_abs_epi8(weights);
                for (r, product) in products.iter_mut().enumerate() {
                    let x = _mm256_sign_epi8(word(x.add(r * CODED + 4 * four)), weights);
                    let pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, x), ones);
                    *product = _mm256_add_epi32(*product, pairs);
                }
            }
        }
    }
    let [low, high] = products;
    for (low, high) in low.iter_mut().zip(high) {
        (*low, *high) =
            (_mm256_permute2x128_si256::<0x20>(*low, *high), _mm256_permute2x128_si256::<0x31>(*low, *high));
    }
}

/// Scales and minima of a part's outputs `8 v .. 8 (v + 1)`; zeros for a format without minima.
///
/// # Safety
/// `block` is a block of a tile of `F::FORMAT` with such a part, and `v` is 0 or 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scales_of<F: Format>(block: *const u8, part: usize, v: usize) -> (__m256, __m256) {
    // SAFETY: promised by the caller.
    unsafe {
        let d = scales(block, v);
        match F::FORMAT {
            WeightFormat::Q4_0 | WeightFormat::Q8_0 => (d, _mm256_setzero_ps()),
            WeightFormat::Q4_1 => (d, scales(block.add(2 * TILE), v)),
            WeightFormat::Q4_K => q4_k_scales(block, part, v),
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
                unreachable!("a format of another class")
            }
        }
    }
}

/// Four bytes, in every lane.
///
/// # Safety
/// Four bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn word(at: *const u8) -> __m256i {
    // SAFETY: promised by the caller.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// A number, in every lane.
///
/// # Safety
/// Four bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn number(at: *const u8) -> __m256 {
    // SAFETY: promised by the caller.
    _mm256_set1_ps(unsafe { at.cast::<f32>().read_unaligned() })
}
