//! Products of weight codes with activations as bytes, by `VPDPBUSD`: the class of
//! [`linear_int8`](crate::reference::linear_int8).
//!
//! The instruction multiplies four unsigned bytes of a 32-bit lane by four signed ones and adds them up. Nibbles are
//! unsigned as they lie: the low ones of a word of eight columns are the first operand, the high ones the second, and
//! prepared activations lie in that order. Signed bytes become unsigned by adding 128. What codes are above their
//! values, times the sum of the activations' codes, is what a block's sums start from, negated.

use super::{
    Operands,
    quantised::{Q4_0, Q4_1, Q8_0, halves},
    superblocks::unsigned_bytes,
};
use crate::{
    WeightFormat,
    cpu::{
        activations::{CODED, GROUP, Layout, MINUS_SUM, NIBBLE_ORDER, SCALE, SCALED_SUM},
        generic::scale_and_inverse,
        packing::{
            BLOCK, TILE, block_bytes,
            superblocks::{CODES, Q4_K_CODES, Q4_K_SUBS, SCALES},
        },
    },
};
use std::arch::x86_64::*;

/// Where the codes of 32 columns lie in a packed block.
pub(super) trait Codes {
    const FORMAT: WeightFormat;
    /// Parts of 32 columns in a block.
    const PARTS: usize;
    /// Place of the first part's codes.
    const AT: usize;
    /// Bytes of a part's codes.
    const BYTES: usize;
}

impl Codes for Q4_0 {
    const FORMAT: WeightFormat = WeightFormat::Q4_0;
    const PARTS: usize = 1;
    const AT: usize = 2 * TILE;
    const BYTES: usize = TILE * BLOCK / 2;
}

impl Codes for Q4_1 {
    const FORMAT: WeightFormat = WeightFormat::Q4_1;
    const PARTS: usize = 1;
    const AT: usize = 4 * TILE;
    const BYTES: usize = TILE * BLOCK / 2;
}

impl Codes for Q8_0 {
    const FORMAT: WeightFormat = WeightFormat::Q8_0;
    const PARTS: usize = 1;
    const AT: usize = 2 * TILE;
    const BYTES: usize = TILE * BLOCK;
}

#[allow(non_camel_case_types, reason = "spelled as the format")]
pub(super) struct Q4_K;

impl Codes for Q4_K {
    const FORMAT: WeightFormat = WeightFormat::Q4_K;
    const PARTS: usize = Q4_K_SUBS;
    const AT: usize = CODES;
    const BYTES: usize = Q4_K_CODES;
}

/// Order of codes inside 16 bytes for the layout of nibbles.
const NIBBLE_ORDER_16: [u8; 16] = {
    let mut order = [0; 16];
    let mut i = 0;
    while i < 16 {
        order[i] = (i / 8 * 8 + NIBBLE_ORDER[i % 8]) as u8;
        i += 1;
    }
    order
};

/// Writes a row of a block, as [`write_codes`](crate::cpu::generic::write_codes) does.
///
/// # Panics
/// If `to` is not a row of a block in a layout of codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) fn write_codes(layout: Layout, low: __m512, high: __m512, to: &mut [u8]) {
    assert_eq!(to.len(), CODED);
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let magnitudes = [low, high].map(|x| _mm512_and_si512(_mm512_castps_si512(x), magnitude));
    let largest = _mm512_reduce_max_epu32(_mm512_max_epu32(magnitudes[0], magnitudes[1]));
    let (scale, inverse) = scale_and_inverse(largest);
    let inverse = _mm512_set1_ps(inverse);
    // Not a number times zero is none.
    let keep = if scale.is_nan() { 0 } else { 0xffff };
    let low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
    let high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
    let sum = _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
    let (mut low, mut high) = (_mm512_cvtepi32_epi8(low), _mm512_cvtepi32_epi8(high));
    // SAFETY: 16 bytes of a constant, then 44 bytes of `to`.
    unsafe {
        if layout == Layout::Int8Nibbles {
            let order = _mm_loadu_si128(NIBBLE_ORDER_16.as_ptr().cast());
            (low, high) = (_mm_shuffle_epi8(low, order), _mm_shuffle_epi8(high, order));
        }
        let to = to.as_mut_ptr();
        _mm_storeu_si128(to.cast(), low);
        _mm_storeu_si128(to.add(16).cast(), high);
        to.add(SCALE).cast::<f32>().write_unaligned(scale);
        to.add(SCALED_SUM).cast::<f32>().write_unaligned(scale * sum as f32);
        to.add(MINUS_SUM).cast::<i32>().write_unaligned(-sum);
    }
}

/// Writes `sums[r][n]` for `R` rows.
///
/// Few rows have two chains of products each, so that one need not wait for the other: integers add up to the same.
///
/// # Safety
/// `operands` names a tile of `C::FORMAT` and a group of `R` rows, prepared in its layout of codes. The processor has
/// VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni")]
pub(super) unsafe fn int8<C: Codes, const R: usize>(operands: Operands, sums: &mut [[f32; TILE]; GROUP]) {
    let chains = const { if R <= 4 { 2 } else { 1 } };
    let Operands { mut tile, blocks, mut x, ahead } = operands;
    let zero = _mm512_setzero_ps();
    let mut totals = [zero; R];
    for _ in 0..blocks {
        // SAFETY: the block of the tile and its blocks of the group are inside what the caller named; prefetching
        // touches nothing.
        unsafe {
            for line in 0..C::AT.div_ceil(64) {
                _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
            }
            for part in 0..C::PARTS {
                let at = tile.add(C::AT + part * C::BYTES);
                for line in 0..C::BYTES / 64 {
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(ahead + 64 * line).cast());
                }
                let mut products = [[_mm512_setzero_si512(); R]; 2];
                for (r, product) in products[0].iter_mut().enumerate() {
                    *product = start::<C>(x.add(r * CODED));
                }
                for eight in 0..BLOCK / 8 {
                    let (first, second) = eight_columns::<C>(at, eight);
                    add_products(&mut products[0], first, x.add(8 * eight));
                    add_products(&mut products[chains - 1], second, x.add(8 * eight + 4));
                }
                let (d, min) = scales::<C>(tile, part);
                for (r, total) in totals.iter_mut().enumerate() {
                    let row = x.add(r * CODED);
                    let scale = _mm512_mul_ps(d, number(row.add(SCALE)));
                    let mut product = products[0][r];
                    if chains == 2 {
                        product = _mm512_add_epi32(product, products[1][r]);
                    }
                    *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), scale, *total);
                    match C::FORMAT {
                        WeightFormat::Q4_1 => {
                            *total = _mm512_fmadd_ps(min, number(row.add(SCALED_SUM)), *total);
                        }
                        WeightFormat::Q4_K => {
                            *total = _mm512_fnmadd_ps(min, number(row.add(SCALED_SUM)), *total);
                        }
                        WeightFormat::Q4_0 | WeightFormat::Q8_0 => {}
                        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
                            unreachable!("a format of another class")
                        }
                    }
                }
                x = x.wrapping_add(R * CODED);
            }
        }
        tile = tile.wrapping_add(const { block_bytes(C::FORMAT) });
    }
    for (sums, total) in sums.iter_mut().zip(totals) {
        super::store(sums, 0, total);
    }
}

/// What the sums of a row's block start from.
///
/// # Safety
/// `row` is a row of a block of a prepared group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn start<C: Codes>(row: *const u8) -> __m512i {
    // SAFETY: promised by the caller.
    let minus_sum = || unsafe { row.add(MINUS_SUM).cast::<i32>().read_unaligned() };
    match C::FORMAT {
        WeightFormat::Q4_0 => _mm512_set1_epi32(8 * minus_sum()),
        WeightFormat::Q8_0 => _mm512_set1_epi32(128 * minus_sum()),
        WeightFormat::Q4_1 | WeightFormat::Q4_K => _mm512_setzero_si512(),
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
            unreachable!("a format of another class")
        }
    }
}

/// Adds the products of four columns to `products[r]`.
///
/// # Safety
/// `x` is the columns' codes of row 0 in a block of a prepared group of `R` rows. The processor has VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni")]
unsafe fn add_products<const R: usize>(products: &mut [__m512i; R], weights: __m512i, x: *const u8) {
    for (r, product) in products.iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        let x = _mm512_set1_epi32(unsafe { x.add(r * CODED).cast::<i32>().read_unaligned() });
        *product = _mm512_dpbusd_epi32(*product, weights, x);
    }
}

/// A number of a row, for every output.
///
/// # Safety
/// Four bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn number(at: *const u8) -> __m512 {
    // SAFETY: promised by the caller.
    _mm512_set1_ps(unsafe { at.cast::<f32>().read_unaligned() })
}

/// Eight columns of 16 outputs as unsigned bytes, four in each lane, in the order in which activations lie.
///
/// # Safety
/// `at` points to the codes of 32 columns, and `eight` is below 4.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn eight_columns<C: Codes>(at: *const u8, eight: usize) -> (__m512i, __m512i) {
    match C::FORMAT {
        WeightFormat::Q8_0 => {
            // SAFETY: promised by the caller.
            unsafe {
                let at = at.add(128 * eight);
                (four_columns(at), four_columns(at.add(64)))
            }
        }
        WeightFormat::Q4_0 | WeightFormat::Q4_1 | WeightFormat::Q4_K => {
            let low = _mm512_set1_epi8(15);
            // SAFETY: promised by the caller.
            let words = unsafe { _mm512_loadu_si512(at.add(64 * eight).cast()) };
            (_mm512_and_si512(words, low), _mm512_and_si512(_mm512_srli_epi16::<4>(words), low))
        }
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
            unreachable!("a format of another class")
        }
    }
}

/// Two column pairs of signed bytes, lane by lane, 128 added to each.
///
/// # Safety
/// 64 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn four_columns(at: *const u8) -> __m512i {
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut i = 0;
        while i < 32 {
            order[i] = (i / 2 + i % 2 * TILE) as u16;
            i += 1;
        }
        order
    };
    // SAFETY: 64 bytes of a constant, and of what the caller promised.
    let (order, words) =
        unsafe { (_mm512_loadu_si512(ORDER.as_ptr().cast()), _mm512_loadu_si512(at.cast())) };
    _mm512_xor_si512(_mm512_permutexvar_epi16(order, words), _mm512_set1_epi8(i8::MIN))
}

/// Scales and minima of a part's 16 outputs; zeros for a format without minima.
///
/// # Safety
/// `block` is a packed block of `C::FORMAT`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn scales<C: Codes>(block: *const u8, part: usize) -> (__m512, __m512) {
    // SAFETY: promised by the caller.
    unsafe {
        let d = halves(block);
        match C::FORMAT {
            WeightFormat::Q4_0 | WeightFormat::Q8_0 => (d, _mm512_setzero_ps()),
            WeightFormat::Q4_1 => (d, halves(block.add(2 * TILE))),
            WeightFormat::Q4_K => {
                let at = block.add(SCALES + 2 * part * TILE);
                let (scale, min) = (unsigned_bytes(at), unsigned_bytes(at.add(TILE)));
                (_mm512_mul_ps(d, scale), _mm512_mul_ps(halves(block.add(2 * TILE)), min))
            }
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
                unreachable!("a format of another class")
            }
        }
    }
}
