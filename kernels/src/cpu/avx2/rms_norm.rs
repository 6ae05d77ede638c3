//! Normalisation as the first step of a linear: the bits of the op.

use crate::cpu::{Avx2, rms_norm};
use std::arch::x86_64::*;

/// What a row is multiplied with.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scale(x: &[f32], eps: f32) -> f32 {
    // SAFETY: callers have the features.
    rms_norm::scale(unsafe { Avx2::assume() }, x, eps)
}

/// `x * scale * weight`, in this order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn normed(x: __m256, scale: f32, weight: __m256) -> __m256 {
    _mm256_mul_ps(_mm256_mul_ps(x, _mm256_set1_ps(scale)), weight)
}
