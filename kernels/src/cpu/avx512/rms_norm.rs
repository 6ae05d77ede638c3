//! Root-mean-square normalisation.

use super::lanes::{load, store, sum};
use crate::Norm;
use std::arch::x86_64::*;

/// One row.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn rms_norm(x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    let scale = scale(x, norm.eps);
    for at in (0..x.len()).step_by(16) {
        store(out, at, normed(load(x, at), scale, load(norm.weight, at)));
    }
}

/// `1 / sqrt(mean(x^2) + eps)`: four chains of fused squares over chunks of 64.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn scale(x: &[f32], eps: f32) -> f32 {
    let mut chains = [_mm512_setzero_ps(); 4];
    for at in (0..x.len()).step_by(64) {
        for (i, chain) in chains.iter_mut().enumerate() {
            let x = load(x, at + 16 * i);
            *chain = _mm512_fmadd_ps(x, x, *chain);
        }
    }
    let [a, b, c, d] = chains;
    let squares = sum(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
    1.0 / (squares / x.len() as f32 + eps).sqrt()
}

/// `x * scale * weight`, in this order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn normed(x: __m512, scale: f32, weight: __m512) -> __m512 {
    _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(scale)), weight)
}
