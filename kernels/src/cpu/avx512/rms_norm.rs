//! Normalisation as the first step of a linear: the bits of the op.

use crate::cpu::{Avx512, rms_norm};
use std::arch::x86_64::*;

/// What a row is multiplied with.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn scale(x: &[f32], eps: f32) -> f32 {
    // SAFETY: callers have the features.
    rms_norm::scale(unsafe { Avx512::assume() }, x, eps)
}

/// `x * scale * weight`, in this order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn normed(x: __m512, scale: f32, weight: __m512) -> __m512 {
    _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(scale)), weight)
}
