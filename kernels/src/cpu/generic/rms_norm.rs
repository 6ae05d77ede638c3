//! Root-mean-square normalisation.

use super::sum_lanes;
use crate::Norm;

/// One row.
pub(in crate::cpu) fn rms_norm(x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    let scale = scale(x, norm.eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(norm.weight) {
        *out = x * scale * weight;
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
pub(super) fn scale(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [0.0; 16];
    for chunk in x.chunks(16) {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x * x;
        }
    }
    1.0 / (sum_lanes(lanes) / x.len() as f32 + eps).sqrt()
}
