//! The gate of an MLP, and the bound of scores and logits.

use crate::{Nonlinearity, Rows, RowsMut};

/// `function(gate) * up`, as the function's definition says.
pub fn gated(function: Nonlinearity, gate: f64, up: f64) -> f64 {
    let bound = Nonlinearity::CLAMPED_BOUND;
    let (x, argument, factor) = match function {
        Nonlinearity::Silu => (gate, gate, up),
        Nonlinearity::Sigmoid => (1.0, gate, up),
        Nonlinearity::GeluTanh => {
            (gate, Nonlinearity::SLOPE * (gate + Nonlinearity::CUBIC * gate * gate * gate), up)
        }
        Nonlinearity::ClampedSilu => {
            let x = gate.min(bound);
            (x, Nonlinearity::CLAMPED_SLOPE * x, up.clamp(-bound, bound) + 1.0)
        }
    };
    x / (1.0 + (-argument).exp()) * factor
}

/// `out = function(gate) * up`, all `[W, columns]`.
pub fn gate(function: Nonlinearity, gate: Rows<'_>, up: Rows<'_>, mut out: RowsMut<'_>) {
    for w in 0..gate.width() {
        for ((out, &gate), &up) in out.row(w).iter_mut().zip(gate.row(w)).zip(up.row(w)) {
            *out = gated(function, f64::from(gate), f64::from(up)) as f32;
        }
    }
}

/// `cap * tanh(x / cap)`.
pub fn capped(cap: f64, x: f64) -> f64 {
    cap * (x / cap).tanh()
}

/// `x = cap * tanh(x / cap)`, `[W, columns]`.
pub fn softcap(cap: f32, mut x: RowsMut<'_>) {
    for w in 0..x.width() {
        x.row(w).iter_mut().for_each(|x| *x = capped(f64::from(cap), f64::from(*x)) as f32);
    }
}
