//! Normalisation as the first step of a linear: the bits of the op.

use crate::cpu::{Avx2, rms_norm};

/// What a row is multiplied with.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scale(x: &[f32], eps: f32) -> f32 {
    // SAFETY: callers have the features.
    rms_norm::scale(unsafe { Avx2::assume() }, x, eps)
}
