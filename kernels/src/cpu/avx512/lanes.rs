//! Arithmetic over 16 lanes that linears share.

use crate::{
    Nonlinearity,
    cpu::{
        Avx512,
        lanes::{self, first_of_sixteen as first},
    },
};
use std::arch::x86_64::*;

/// Elements `at..at + 16`, zeros past the end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn load(x: &[f32], at: usize) -> __m512 {
    let mask = first(x.len().saturating_sub(at));
    // SAFETY: the mask leaves out what is past the slice, and masked lanes are not accessed.
    unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr().wrapping_add(at)) }
}

/// Writes lanes to elements `at..at + 16` as far as they exist.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn store(x: &mut [f32], at: usize, lanes: __m512) {
    let mask = first(x.len().saturating_sub(at));
    // SAFETY: as in `load`.
    unsafe { _mm512_mask_storeu_ps(x.as_mut_ptr().wrapping_add(at), mask, lanes) }
}

/// Rounded to nearest even in bf16; a NaN stays one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn to_bf16(x: __m512) -> __m256i {
    let bits = _mm512_castps_si512(x);
    let is_odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7fff)));
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    let rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x40_0000));
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded))
}

/// Writes 32 values of a block, rounded to bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn store_bf16(to: &mut [u8; 64], low: __m512, high: __m512) {
    let (low, high) = (to_bf16(low), to_bf16(high));
    // SAFETY: 32 bytes each.
    unsafe {
        _mm256_storeu_si256(to.as_mut_ptr().cast(), low);
        _mm256_storeu_si256(to.as_mut_ptr().add(32).cast(), high);
    }
}

/// `function(gate) * up`, as the function's definition says.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn gated(function: Nonlinearity, gate: __m512, up: __m512) -> __m512 {
    // SAFETY: callers have the features.
    lanes::gated(unsafe { Avx512::assume() }, function, gate, up)
}
