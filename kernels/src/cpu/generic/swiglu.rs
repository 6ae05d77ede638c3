//! The gated activation: `silu(gate) * up`.

use super::exp::silu;

/// `out = silu(gate) * up`.
pub(in crate::cpu) fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = silu(*gate) * up;
    }
}
