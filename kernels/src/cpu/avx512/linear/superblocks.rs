//! Products with tiles of the K formats: exact codes as bf16 operands, each sub-block scaled by its own exact scale.

use super::{
    Operands, pairs,
    quantised::{Codes, Q4_1, X_ROW, add_products, halves, next_pair, table},
};
use crate::{
    WeightFormat,
    cpu::{
        activations::GROUP,
        packing::{
            BLOCK, TILE, block_bytes,
            superblocks::{CODES, Q4_K_CODES, Q4_K_SUBS, Q6_K_CODES, Q6_K_SUBS, Q6_K_WORD, SCALES},
        },
    },
    format::{Q6_K_BIAS, Q6_K_SUB},
};
use std::arch::x86_64::*;

/// Writes `sums[r][n]` for `R` rows of a q4_k tile.
///
/// A sub-block of 32 columns has two chains, of its even and of its odd column pairs; their sum, scaled, is added to the
/// row's total, then the minimum times the sum of the rounded activations is subtracted.
///
/// # Safety
/// `operands` names a q4_k tile and a prepared bf16 group of `R` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn q4_k<const R: usize>(operands: Operands, sums: &mut [[f32; TILE]; GROUP]) {
    let Operands { mut tile, blocks, mut x, ahead } = operands;
    let zero = _mm512_setzero_ps();
    let mut totals = [zero; R];
    let table = const { table(Q4_1::VALUES) };
    // SAFETY: 64 bytes on the stack.
    let table = unsafe { _mm512_loadu_si512(table.as_ptr().cast()) };
    for _ in 0..blocks {
        // SAFETY: the block of the tile and its eight blocks of the group are inside what the caller named; prefetching
        // touches nothing.
        unsafe {
            prefetch::<CODES>(tile.wrapping_add(ahead));
            let (d, dmin) = (halves(tile), halves(tile.add(2 * TILE)));
            for s in 0..Q4_K_SUBS {
                let (at, scales) = (tile.add(CODES + s * Q4_K_CODES), tile.add(SCALES + 2 * s * TILE));
                prefetch::<Q4_K_CODES>(at.wrapping_add(ahead));
                let (mut even, mut odd) = ([zero; R], [zero; R]);
                for four in 0..4 {
                    let mut codes = _mm512_loadu_si512(at.add(64 * four).cast());
                    for pair in [4 * four, 4 * four + 2] {
                        let weights = next_pair::<Q4_1>(&mut codes, at, pair, table);
                        add_products::<R>(&mut even, weights, x.add(4 * pair));
                        let weights = next_pair::<Q4_1>(&mut codes, at, pair + 1, table);
                        add_products::<R>(&mut odd, weights, x.add(4 * (pair + 1)));
                    }
                }
                let scale = _mm512_mul_ps(d, unsigned_bytes(scales));
                let min = _mm512_mul_ps(dmin, unsigned_bytes(scales.add(TILE)));
                for (r, total) in totals.iter_mut().enumerate() {
                    *total = _mm512_fmadd_ps(scale, _mm512_add_ps(even[r], odd[r]), *total);
                    let sum = _mm512_set1_ps(x.add(r * X_ROW + 2 * BLOCK).cast::<f32>().read_unaligned());
                    *total = _mm512_fnmadd_ps(min, sum, *total);
                }
                x = x.wrapping_add(R * X_ROW);
            }
        }
        tile = tile.wrapping_add(const { block_bytes(WeightFormat::Q4_K) });
    }
    for (sums, total) in sums.iter_mut().zip(totals) {
        super::store(sums, 0, total);
    }
}

/// Writes `sums[r][n]` for `R` rows of a q6_k tile.
///
/// A sub-block of 16 columns has one chain, of its column pairs in order; scaled, it is added to the row's total.
///
/// # Safety
/// `operands` names a q6_k tile and a prepared bf16 group of `R` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn q6_k<const R: usize>(operands: Operands, sums: &mut [[f32; TILE]; GROUP]) {
    let Operands { mut tile, blocks, mut x, ahead } = operands;
    let zero = _mm512_setzero_ps();
    let mut totals = [zero; R];
    let values = const { six_bit_values() };
    // SAFETY: 128 bytes on the stack.
    let table = unsafe {
        let at = values.as_ptr();
        [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(32).cast())]
    };
    for _ in 0..blocks {
        // SAFETY: as in `q4_k`.
        unsafe {
            prefetch::<CODES>(tile.wrapping_add(ahead));
            let d = halves(tile);
            for s in 0..Q6_K_SUBS {
                let at = tile.add(CODES + s * Q6_K_CODES);
                prefetch::<Q6_K_CODES>(at.wrapping_add(ahead));
                // The second half of a block of activations follows the first.
                let sub = x.add(s % 2 * 2 * Q6_K_SUB);
                let mut chains = [zero; R];
                for (pair, indices) in six_bit_codes(at).into_iter().enumerate() {
                    let weights = pairs(_mm512_permutex2var_epi16(table[0], indices, table[1]));
                    add_products::<R>(&mut chains, weights, sub.add(4 * pair));
                }
                let scale = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(tile.add(SCALES + s * TILE))));
                let scale = _mm512_mul_ps(d, scale);
                for (chain, total) in chains.into_iter().zip(&mut totals) {
                    *total = _mm512_fmadd_ps(scale, chain, *total);
                }
                x = x.wrapping_add(s % 2 * R * X_ROW);
            }
        }
        tile = tile.wrapping_add(const { block_bytes(WeightFormat::Q6_K) });
    }
    for (sums, total) in sums.iter_mut().zip(totals) {
        super::store(sums, 0, total);
    }
}

/// The codes of eight column pairs in the low six bits of words; what is above them is of other codes.
///
/// # Safety
/// `at` points to the codes of a q6_k sub-block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn six_bit_codes(at: *const u8) -> [__m512i; 8] {
    // SAFETY: promised by the caller.
    let (a, b, c) = unsafe {
        (
            _mm512_loadu_si512(at.cast()),
            _mm512_loadu_si512(at.add(Q6_K_WORD).cast()),
            _mm512_loadu_si512(at.add(2 * Q6_K_WORD).cast()),
        )
    };
    let high = _mm512_set1_epi16(0x30);
    // Bits of the first, or bits of the second where the third has them.
    let pair_2 =
        _mm512_ternarylogic_epi32::<0xf8>(_mm512_srli_epi16::<12>(a), _mm512_srli_epi16::<8>(c), high);
    let pair_5 =
        _mm512_ternarylogic_epi32::<0xf8>(_mm512_srli_epi16::<12>(b), _mm512_srli_epi16::<10>(c), high);
    [a, _mm512_srli_epi16::<6>(a), pair_2, b, _mm512_srli_epi16::<6>(b), pair_5, c, _mm512_srli_epi16::<6>(c)]
}

/// What 6-bit codes stand for, as bf16.
const fn six_bit_values() -> [u16; 64] {
    let mut values = [0; 64];
    let mut code = 0;
    while code < 64 {
        values[code] = ((code as f32 - Q6_K_BIAS as f32).to_bits() >> 16) as u16;
        code += 1;
    }
    values
}

/// 16 unsigned bytes as numbers.
///
/// # Safety
/// 16 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn unsigned_bytes(at: *const u8) -> __m512 {
    // SAFETY: promised by the caller.
    _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(unsafe { bytes(at) }))
}

/// The bytes of 16 outputs.
///
/// # Safety
/// 16 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn bytes(at: *const u8) -> __m128i {
    // SAFETY: promised by the caller.
    unsafe { _mm_loadu_si128(at.cast()) }
}

/// Asks for `BYTES` bytes, whole lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn prefetch<const BYTES: usize>(at: *const u8) {
    const { assert!(BYTES.is_multiple_of(64)) };
    for line in 0..BYTES / 64 {
        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64 * line).cast());
    }
}
