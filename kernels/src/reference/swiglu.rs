//! SwiGLU (arXiv 2002.05202).

use crate::{Rows, RowsMut};

/// `x * sigmoid(x)`.
pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// `out = silu(gate) * up`, all `[W, columns]`.
pub fn swiglu(gate: Rows<'_>, up: Rows<'_>, mut out: RowsMut<'_>) {
    for w in 0..gate.width() {
        for ((out, &gate), &up) in out.row(w).iter_mut().zip(gate.row(w)).zip(up.row(w)) {
            *out = (silu(f64::from(gate)) * f64::from(up)) as f32;
        }
    }
}
