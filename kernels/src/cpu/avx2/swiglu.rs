//! The gated activation: `silu(gate) * up`.

use super::lanes::{LANES, load, silu, store};
use std::arch::x86_64::*;

/// `out = silu(gate) * up`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for at in (0..out.len()).step_by(LANES) {
        store(out, at, _mm256_mul_ps(silu(load(gate, at)), load(up, at)));
    }
}
