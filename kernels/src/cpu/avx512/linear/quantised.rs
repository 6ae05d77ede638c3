//! Products with quantised tiles: exact codes as bf16 operands, scales applied per block.

use super::{Operands, pairs};
use crate::{
    WeightFormat,
    cpu::{
        activations::{GROUP, Layout},
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::{arch::x86_64::*, array};

/// Bytes from a row to the next in a block of a prepared group.
const X_ROW: usize = Layout::Bf16.block_bytes();

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
const fn table(values: Option<[f32; 16]>) -> [u16; 32] {
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

/// Writes `sums[t][r][n]` for `R` rows by `T` tiles.
///
/// # Safety
/// `operands` names `T` adjacent tiles of `C::FORMAT` and a prepared bf16 group of `R` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
#[expect(clippy::needless_range_loop, reason = "`r` and `t` name registers of several arrays")]
pub(super) unsafe fn quantised<C: Codes, const R: usize, const T: usize>(
    operands: Operands,
    sums: &mut [[[f32; TILE]; GROUP]],
) {
    let block_bytes = const { block_bytes(C::FORMAT) };
    let codes_at = const { if C::HAS_MIN { 4 * TILE } else { 2 * TILE } };
    let Operands { tiles, tile_bytes, blocks, mut x, ahead } = operands;
    let zero = _mm512_setzero_ps();
    let zero_pairs = pairs(_mm512_setzero_si512());
    let mut sums_of = [[zero; T]; R];
    let table = const { table(C::VALUES) };
    // SAFETY: 64 bytes on the stack.
    let table = unsafe { _mm512_loadu_si512(table.as_ptr().cast()) };
    for b in 0..blocks {
        let block: [*const u8; T] = array::from_fn(|t| tiles.wrapping_add(t * tile_bytes + b * block_bytes));
        // SAFETY: block `b` of each tile and of the group is inside what the caller named; prefetching touches nothing.
        unsafe {
            for block in block {
                for line in 0..block_bytes.div_ceil(64) {
                    _mm_prefetch::<_MM_HINT_T1>(block.wrapping_add(ahead + 64 * line).cast());
                }
            }
            let (mut even, mut odd) = ([[zero; T]; R], [[zero; T]; R]);
            if C::VALUES.is_some() {
                for j in 0..4 {
                    let mut codes: [__m512i; T] =
                        array::from_fn(|t| _mm512_loadu_si512(block[t].add(codes_at + 64 * j).cast()));
                    for s in [0, 2] {
                        let weights = codes.map(|codes| pairs(_mm512_permutexvar_epi16(codes, table)));
                        add_products::<R, T>(&mut even, weights, x.add(4 * (4 * j + s)));
                        codes = codes.map(|codes| _mm512_srli_epi16::<4>(codes));
                        let weights = codes.map(|codes| pairs(_mm512_permutexvar_epi16(codes, table)));
                        add_products::<R, T>(&mut odd, weights, x.add(4 * (4 * j + s + 1)));
                        codes = codes.map(|codes| _mm512_srli_epi16::<4>(codes));
                    }
                }
            } else {
                for pair in (0..BLOCK / 2).step_by(2) {
                    let mut weights = [zero_pairs; T];
                    for t in 0..T {
                        weights[t] = signed_bytes(block[t].add(codes_at + 2 * TILE * pair));
                    }
                    add_products::<R, T>(&mut even, weights, x.add(4 * pair));
                    for t in 0..T {
                        weights[t] = signed_bytes(block[t].add(codes_at + 2 * TILE * (pair + 1)));
                    }
                    add_products::<R, T>(&mut odd, weights, x.add(4 * (pair + 1)));
                }
            }
            for t in 0..T {
                let d = halves(block[t]);
                for r in 0..R {
                    let sum = _mm512_add_ps(even[r][t], odd[r][t]);
                    sums_of[r][t] = _mm512_fmadd_ps(d, sum, sums_of[r][t]);
                }
                if C::HAS_MIN {
                    let m = halves(block[t].add(2 * TILE));
                    for r in 0..R {
                        let total =
                            _mm512_set1_ps(x.add(r * X_ROW + 2 * BLOCK).cast::<f32>().read_unaligned());
                        sums_of[r][t] = _mm512_fmadd_ps(m, total, sums_of[r][t]);
                    }
                }
            }
            x = x.add(R * X_ROW);
        }
    }
    for t in 0..T {
        for r in 0..R {
            super::store(&mut sums[t][r], 0, sums_of[r][t]);
        }
    }
}

/// Adds the products of one column pair to `chains[r][t]`.
///
/// # Safety
/// `x` is the pair of row 0 in a block of a prepared bf16 group of `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn add_products<const R: usize, const T: usize>(
    chains: &mut [[__m512; T]; R],
    weights: [__m512bh; T],
    x: *const u8,
) {
    for (r, chains) in chains.iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        let x = pairs(_mm512_set1_epi32(unsafe { x.add(r * X_ROW).cast::<i32>().read_unaligned() }));
        for (chain, weights) in chains.iter_mut().zip(weights) {
            *chain = _mm512_dpbf16_ps(*chain, weights, x);
        }
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
