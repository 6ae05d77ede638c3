//! Root-mean-square normalisation.

use super::lanes::{LANES, load, store, sum};
use crate::Norm;
use std::arch::x86_64::*;

/// One row.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn rms_norm(x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    let scale = scale(x, norm.eps);
    for at in (0..x.len()).step_by(LANES) {
        store(out, at, normed(load(x, at), scale, load(norm.weight, at)));
    }
}

/// `1 / sqrt(mean(x^2) + eps)`: four chains of fused squares over chunks of 32.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scale(x: &[f32], eps: f32) -> f32 {
    let mut chains = [_mm256_setzero_ps(); 4];
    for at in (0..x.len()).step_by(4 * LANES) {
        for (i, chain) in chains.iter_mut().enumerate() {
            let x = load(x, at + LANES * i);
            *chain = _mm256_fmadd_ps(x, x, *chain);
        }
    }
    let [a, b, c, d] = chains;
    let squares = sum(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)));
    1.0 / (squares / x.len() as f32 + eps).sqrt()
}

/// `x * scale * weight`, in this order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn normed(x: __m256, scale: f32, weight: __m256) -> __m256 {
    _mm256_mul_ps(_mm256_mul_ps(x, _mm256_set1_ps(scale)), weight)
}
