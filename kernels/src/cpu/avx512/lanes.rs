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
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn load(x: &[f32], at: usize) -> __m512 {
    let mask = first(x.len().saturating_sub(at));
    // SAFETY: the mask leaves out what is past the slice, and masked lanes are not accessed.
    unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr().wrapping_add(at)) }
}

/// Writes lanes to elements `at..at + 16` as far as they exist.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn store(x: &mut [f32], at: usize, lanes: __m512) {
    let mask = first(x.len().saturating_sub(at));
    // SAFETY: as in `load`.
    unsafe { _mm512_mask_storeu_ps(x.as_mut_ptr().wrapping_add(at), mask, lanes) }
}

/// The function under a gate.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn nonlinear(function: Nonlinearity, x: __m512) -> __m512 {
    // SAFETY: callers have the features.
    lanes::nonlinear(unsafe { Avx512::assume() }, function, x)
}
