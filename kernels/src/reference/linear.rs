//! Matrix products.

use super::nonlinear;
use crate::{Matrix, Nonlinearity, Rows, RowsMut};

/// `out = x weights^T`: `[W, K]` by `[N, K]` gives `[W, N]`.
pub fn linear(x: Rows<'_>, weights: &Matrix<'_>, mut out: RowsMut<'_>) {
    assert!(weights.rows() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        for (n, out) in out.row(w).iter_mut().enumerate() {
            *out = dot(x.row(w), weights, n) as f32;
        }
    }
}

/// `out = function(x gate^T) * (x up^T)`, `[W, N]`.
pub fn linear_gated(
    function: Nonlinearity,
    x: Rows<'_>,
    gate: &Matrix<'_>,
    up: &Matrix<'_>,
    mut out: RowsMut<'_>,
) {
    assert!(gate.rows() == out.columns() && up.rows() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        for (n, out) in out.row(w).iter_mut().enumerate() {
            *out = (nonlinear(function, dot(x.row(w), gate, n)) * dot(x.row(w), up, n)) as f32;
        }
    }
}

/// Product of `x` with row `n` of `weights`.
fn dot(x: &[f32], weights: &Matrix<'_>, n: usize) -> f64 {
    assert_eq!(x.len(), weights.columns());
    let format = weights.format();
    let mut values = [0.0; 256];
    let values = &mut values[..format.block_len()];
    let blocks = weights.row(n).chunks_exact(format.block_bytes());
    let mut sum = 0.0;
    for (x, block) in x.chunks_exact(format.block_len()).zip(blocks) {
        format.dequantise_row(block, values);
        sum += x.iter().zip(&*values).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>();
    }
    sum
}
