//! Products with quantised tiles: exact codes as bf16 operands, scales applied per block.

use super::{Operands, pairs};
use crate::{
    WeightFormat,
    cpu::{
        activations::{GROUP, Layout},
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::arch::x86_64::*;

/// Bytes from a row to the next in a block of a prepared group.
pub(super) const X_ROW: usize = Layout::Bf16.block_bytes();

/// Where things lie in a packed block, and what codes mean.
pub(super) trait Codes {
    const FORMAT: WeightFormat;
    /// Whether f16 minima follow the f16 scales.
    const HAS_MIN: bool;
    /// bf16 value of each 4-bit code, or `None` for signed bytes.
    const VALUES: Option<[f32; 16]>;
}

pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q8_0;

impl Codes for Q4_0 {
    const FORMAT: WeightFormat = WeightFormat::Q4_0;
    const HAS_MIN: bool = false;
    const VALUES: Option<[f32; 16]> =
        Some([-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
}

impl Codes for Q4_1 {
    const FORMAT: WeightFormat = WeightFormat::Q4_1;
    const HAS_MIN: bool = true;
    const VALUES: Option<[f32; 16]> =
        Some([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
}

impl Codes for Q8_0 {
    const FORMAT: WeightFormat = WeightFormat::Q8_0;
    const HAS_MIN: bool = false;
    const VALUES: Option<[f32; 16]> = None;
}

/// The values of 4-bit codes as bf16, twice: bit 4 of an index belongs to the next code and must not matter.
pub(super) const fn table(values: Option<[f32; 16]>) -> [u16; 32] {
    let mut table = [0; 32];
    if let Some(values) = values {
        let mut i = 0;
        while i < 32 {
            table[i] = (values[i % 16].to_bits() >> 16) as u16;
            i += 1;
        }
    }
    table
}

/// Writes `sums[r][n]` for `R` rows.
///
/// A block has two chains, of its even and of its odd column pairs; their sum, scaled, is added to the row's total, block
/// after block.
///
/// # Safety
/// `operands` names a tile of `C::FORMAT` and a prepared bf16 group of `R` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn quantised<C: Codes, const R: usize>(
    operands: Operands,
    sums: &mut [[f32; TILE]; GROUP],
) {
    let block_bytes = const { block_bytes(C::FORMAT) };
    let codes_at = const { if C::HAS_MIN { 4 * TILE } else { 2 * TILE } };
    let Operands { mut tile, blocks, mut x, ahead } = operands;
    let zero = _mm512_setzero_ps();
    let mut totals = [zero; R];
    let table = const { table(C::VALUES) };
    // SAFETY: 64 bytes on the stack.
    let table = unsafe { _mm512_loadu_si512(table.as_ptr().cast()) };
    for _ in 0..blocks {
        // SAFETY: the block of the tile and of the group is inside what the caller named; prefetching touches nothing.
        unsafe {
            for line in 0..block_bytes.div_ceil(64) {
                _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
            }
            let (mut even, mut odd) = ([zero; R], [zero; R]);
            let at = tile.add(codes_at);
            for four in 0..4 {
                let mut codes = if C::VALUES.is_some() {
                    _mm512_loadu_si512(at.add(64 * four).cast())
                } else {
                    _mm512_setzero_si512()
                };
                for pair in [4 * four, 4 * four + 2] {
                    let weights = next_pair::<C>(&mut codes, at, pair, table);
                    add_products::<R>(&mut even, weights, x.add(4 * pair));
                    let weights = next_pair::<C>(&mut codes, at, pair + 1, table);
                    add_products::<R>(&mut odd, weights, x.add(4 * (pair + 1)));
                }
            }
            let d = halves(tile);
            for (r, total) in totals.iter_mut().enumerate() {
                *total = _mm512_fmadd_ps(d, _mm512_add_ps(even[r], odd[r]), *total);
            }
            if C::HAS_MIN {
                let m = halves(tile.add(2 * TILE));
                for (r, total) in totals.iter_mut().enumerate() {
                    let sum = _mm512_set1_ps(x.add(r * X_ROW + 2 * BLOCK).cast::<f32>().read_unaligned());
                    *total = _mm512_fmadd_ps(m, sum, *total);
                }
            }
        }
        tile = tile.wrapping_add(block_bytes);
        x = x.wrapping_add(R * X_ROW);
    }
    for (sums, total) in sums.iter_mut().zip(totals) {
        super::store(sums, 0, total);
    }
}

/// The weights of a column pair: the lowest nibbles of `codes`, which moves on to the next, or bytes at `at`.
///
/// # Safety
/// `at` points to the codes of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn next_pair<C: Codes>(
    codes: &mut __m512i,
    at: *const u8,
    pair: usize,
    table: __m512i,
) -> __m512bh {
    if C::VALUES.is_some() {
        let weights = pairs(_mm512_permutexvar_epi16(*codes, table));
        *codes = _mm512_srli_epi16::<4>(*codes);
        weights
    } else {
        // SAFETY: pair by pair, the codes of a block.
        unsafe { signed_bytes(at.add(2 * TILE * pair)) }
    }
}

/// Adds the products of one column pair to `chains[r]`.
///
/// # Safety
/// `x` is the pair of row 0 in a block of a prepared bf16 group of `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn add_products<const R: usize>(chains: &mut [__m512; R], weights: __m512bh, x: *const u8) {
    for (r, chain) in chains.iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        let x = pairs(_mm512_set1_epi32(unsafe { x.add(r * X_ROW).cast::<i32>().read_unaligned() }));
        *chain = _mm512_dpbf16_ps(*chain, weights, x);
    }
}

/// 16 f16 numbers.
///
/// # Safety
/// 32 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: promised by the caller.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
}

/// 32 signed bytes as bf16, exactly.
///
/// # Safety
/// 32 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn signed_bytes(at: *const u8) -> __m512bh {
    // SAFETY: promised by the caller.
    let (low, high) = unsafe { (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast())) };
    let low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low));
    let high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high));
    _mm512_cvtne2ps_pbh(high, low)
}
