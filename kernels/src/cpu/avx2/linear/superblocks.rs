//! Products of rows with one packed tile of a K format, sub-block by sub-block, `V` vectors of eight outputs at a time.

use super::{
    Operands,
    blocks::{Chains, VECTORS, add_column, add_nibbles, scales},
    formats::{Format, Q4_K, Q6_K},
};
use crate::{
    cpu::{
        avx2::lanes::{LANES, store},
        packing::{
            BLOCK, TILE, block_bytes,
            superblocks::{CODES, Q4_K_CODES, Q6_K_CODES, Q6_K_WORD, SCALES},
        },
    },
    format::{K_BLOCK, Q6_K_BIAS, Q6_K_SUB},
};
use std::arch::x86_64::*;

/// Blocks of activations that a packed block meets.
const PARTS: usize = K_BLOCK / BLOCK;

/// A K format: how a block of 32 activations meets its sub-blocks.
pub(super) trait SubBlocks: Format {
    /// Adds the products of `R` rows with outputs `8 first .. 8 (first + V)` and block `b` of the eight of a packed block
    /// to `totals[v][r]`.
    ///
    /// # Safety
    /// `block` is a block of a tile of this format, `x` the first of `R` rows in block `b` of a prepared group.
    unsafe fn add_block<const R: usize, const V: usize>(
        totals: &mut [[__m256; R]],
        block: *const u8,
        b: usize,
        first: usize,
        x: *const u8,
    );
}

/// Writes `sums[r][n]` for `R` rows. `V` is what registers hold beside as many rows.
///
/// # Safety
/// `operands` names a tile of `F::FORMAT` and `R` rows of a group prepared in its layout.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn superblock_product<F: SubBlocks, const R: usize, const V: usize>(
    operands: Operands,
    sums: &mut [[f32; TILE]],
) {
    let block_bytes = const { block_bytes(F::FORMAT) };
    let Operands { mut tile, blocks, mut x, x_step, ahead } = operands;
    let mut totals = [[_mm256_setzero_ps(); R]; VECTORS];
    for _ in 0..blocks {
        for b in 0..PARTS {
            for line in (b..block_bytes / 64).step_by(PARTS) {
                _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
            }
            for (i, totals) in totals.chunks_exact_mut(V).enumerate() {
                // SAFETY: the block of the tile and of the group is inside what the caller named.
                unsafe { F::add_block::<R, V>(totals, tile, b, i * V, x) };
            }
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

/// Scales and minima of a q4_k sub-block's outputs `8 vector .. 8 (vector + 1)`.
///
/// # Safety
/// `block` is a block of a q4_k tile with such a sub-block, and `vector` is 0 or 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn q4_k_scales(block: *const u8, s: usize, vector: usize) -> (__m256, __m256) {
    // SAFETY: promised by the caller.
    unsafe {
        let at = block.add(SCALES + 2 * s * TILE + LANES * vector);
        let scale = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())));
        let min = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(at.add(TILE).cast())));
        (_mm256_mul_ps(scales(block, vector), scale), _mm256_mul_ps(scales(block.add(2 * TILE), vector), min))
    }
}

impl SubBlocks for Q4_K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add_block<const R: usize, const V: usize>(
        totals: &mut [[__m256; R]],
        block: *const u8,
        b: usize,
        first: usize,
        x: *const u8,
    ) {
        let mut chains: Chains<R, V> = [[[_mm256_setzero_ps(); 2]; V]; R];
        // SAFETY: promised by the caller; the layout of 4-bit codes has a sum behind the values.
        unsafe {
            add_nibbles::<Self, R, V>(&mut chains, block.add(CODES + b * Q4_K_CODES), first, x);
            for (v, totals) in totals.iter_mut().enumerate() {
                let (scale, min) = q4_k_scales(block, b, first + v);
                for (r, total) in totals.iter_mut().enumerate() {
                    let [even, odd] = chains[r][v];
                    let sum = _mm256_set1_ps(*x.add(r * Self::X_ROW).cast::<f32>().add(BLOCK));
                    *total = _mm256_fmadd_ps(scale, _mm256_add_ps(even, odd), *total);
                    *total = _mm256_fnmadd_ps(min, sum, *total);
                }
            }
        }
    }
}

impl SubBlocks for Q6_K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add_block<const R: usize, const V: usize>(
        totals: &mut [[__m256; R]],
        block: *const u8,
        b: usize,
        first: usize,
        x: *const u8,
    ) {
        for s in [2 * b, 2 * b + 1] {
            let mut chains: Chains<R, V> = [[[_mm256_setzero_ps(); 2]; V]; R];
            // SAFETY: promised by the caller.
            unsafe {
                let codes = block.add(CODES + s * Q6_K_CODES);
                add_six_bits::<R, V>(&mut chains, codes, first, x.add(s % 2 * 4 * Q6_K_SUB));
                for (v, totals) in totals.iter_mut().enumerate() {
                    let at = block.add(SCALES + s * TILE + LANES * (first + v));
                    let scale = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())));
                    let scale = _mm256_mul_ps(scales(block, first + v), scale);
                    for (r, total) in totals.iter_mut().enumerate() {
                        let [even, odd] = chains[r][v];
                        *total = _mm256_fmadd_ps(scale, _mm256_add_ps(even, odd), *total);
                    }
                }
            }
        }
    }
}

/// The 16 columns of a q6_k sub-block: both columns of a pair are in one 32-bit word of an output.
///
/// # Safety
/// `codes` are a sub-block's, and behind `x` are 16 values of each of `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_six_bits<const R: usize, const V: usize>(
    chains: &mut Chains<R, V>,
    codes: *const u8,
    first: usize,
    x: *const u8,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut words = [[_mm256_setzero_si256(); 3]; V];
        for (v, words) in words.iter_mut().enumerate() {
            for (i, word) in words.iter_mut().enumerate() {
                *word = _mm256_loadu_si256(codes.add(i * Q6_K_WORD + 4 * LANES * (first + v)).cast());
            }
        }
        let x = x.cast::<f32>();
        add_whole::<R, V, 0, 0, 16>(chains, &words, x);
        add_whole::<R, V, 0, 6, 22>(chains, &words, x.add(2));
        add_parted::<R, V, 0, 8, 24>(chains, &words, x.add(4));
        add_whole::<R, V, 1, 0, 16>(chains, &words, x.add(6));
        add_whole::<R, V, 1, 6, 22>(chains, &words, x.add(8));
        add_parted::<R, V, 1, 10, 26>(chains, &words, x.add(10));
        add_whole::<R, V, 2, 0, 16>(chains, &words, x.add(12));
        add_whole::<R, V, 2, 6, 22>(chains, &words, x.add(14));
    }
}

/// A column pair whose codes are six bits of word `WORD`, above `EVEN` and `ODD` others.
///
/// # Safety
/// Behind `x` are two values of each of `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_whole<const R: usize, const V: usize, const WORD: usize, const EVEN: i32, const ODD: i32>(
    chains: &mut Chains<R, V>,
    words: &[[__m256i; 3]; V],
    x: *const f32,
) {
    let six = _mm256_set1_epi32(63);
    let (mut even, mut odd) = ([_mm256_setzero_ps(); V], [_mm256_setzero_ps(); V]);
    for (v, words) in words.iter().enumerate() {
        even[v] = value(_mm256_and_si256(_mm256_srli_epi32::<EVEN>(words[WORD]), six));
        odd[v] = value(_mm256_and_si256(_mm256_srli_epi32::<ODD>(words[WORD]), six));
    }
    // SAFETY: promised by the caller.
    unsafe {
        add_column::<Q6_K, R, V>(chains, 0, even, x);
        add_column::<Q6_K, R, V>(chains, 1, odd, x.add(1));
    }
}

/// A column pair whose codes have their low bits on top of the halves of word `WORD`, and their high bits in word 2,
/// `EVEN` and `ODD` places above their own.
///
/// # Safety
/// Behind `x` are two values of each of `R` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_parted<const R: usize, const V: usize, const WORD: usize, const EVEN: i32, const ODD: i32>(
    chains: &mut Chains<R, V>,
    words: &[[__m256i; 3]; V],
    x: *const f32,
) {
    let (low, high) = (_mm256_set1_epi32(15), _mm256_set1_epi32(0x30));
    let (mut even, mut odd) = ([_mm256_setzero_ps(); V], [_mm256_setzero_ps(); V]);
    for (v, words) in words.iter().enumerate() {
        let bits = _mm256_and_si256(_mm256_srli_epi32::<12>(words[WORD]), low);
        even[v] = value(_mm256_or_si256(bits, _mm256_and_si256(_mm256_srli_epi32::<EVEN>(words[2]), high)));
        let bits = _mm256_srli_epi32::<28>(words[WORD]);
        odd[v] = value(_mm256_or_si256(bits, _mm256_and_si256(_mm256_srli_epi32::<ODD>(words[2]), high)));
    }
    // SAFETY: promised by the caller.
    unsafe {
        add_column::<Q6_K, R, V>(chains, 0, even, x);
        add_column::<Q6_K, R, V>(chains, 1, odd, x.add(1));
    }
}

/// What codes of six bits stand for.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn value(codes: __m256i) -> __m256 {
    _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(Q6_K_BIAS.into())))
}
