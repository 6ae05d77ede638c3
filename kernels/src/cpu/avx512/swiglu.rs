//! The gated activation: `silu(gate) * up`.

use super::lanes::{load, silu, store};
use std::arch::x86_64::*;

/// `out = silu(gate) * up`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for at in (0..out.len()).step_by(16) {
        store(out, at, _mm512_mul_ps(silu(load(gate, at)), load(up, at)));
    }
}
