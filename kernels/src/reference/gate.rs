//! The gate of an MLP, and the bound of scores and logits.

use crate::{Nonlinearity, Rows, RowsMut};

/// The function under a gate.
pub fn nonlinear(function: Nonlinearity, x: f64) -> f64 {
    let argument = match function {
        Nonlinearity::Sigmoid => return 1.0 / (1.0 + (-x).exp()),
        Nonlinearity::Silu => x,
        Nonlinearity::GeluTanh => Nonlinearity::SLOPE * (x + Nonlinearity::CUBIC * x * x * x),
    };
    x / (1.0 + (-argument).exp())
}

/// `out = function(gate) * up`, all `[W, columns]`.
pub fn gate(function: Nonlinearity, gate: Rows<'_>, up: Rows<'_>, mut out: RowsMut<'_>) {
    for w in 0..gate.width() {
        for ((out, &gate), &up) in out.row(w).iter_mut().zip(gate.row(w)).zip(up.row(w)) {
            *out = (nonlinear(function, f64::from(gate)) * f64::from(up)) as f32;
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
