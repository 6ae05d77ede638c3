//! Matrix products.

use super::gated;
use crate::{Matrix, Nonlinearity, Rows, RowsMut};

/// `out = x weights^T`: `[W, K]` by `[N, K]` gives `[W, N]`.
pub fn linear(x: Rows<'_>, weights: &Matrix<'_>, mut out: RowsMut<'_>) {
    assert!(weights.rows() == out.columns() && x.width() == out.width());
    let mut row = vec![0.0; weights.columns()];
    for n in 0..weights.rows() {
        dequantise(weights, n, &mut row);
        for w in 0..x.width() {
            out.row(w)[n] = dot(x.row(w), &row, weights) as f32;
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
    let [mut of_gate, mut of_up] = [gate, up].map(|weights| vec![0.0; weights.columns()]);
    for n in 0..gate.rows() {
        dequantise(gate, n, &mut of_gate);
        dequantise(up, n, &mut of_up);
        for w in 0..x.width() {
            let [gate, up] = [dot(x.row(w), &of_gate, gate), dot(x.row(w), &of_up, up)];
            out.row(w)[n] = gated(function, gate, up) as f32;
        }
    }
}

/// Row `n` of `weights` as values.
fn dequantise(weights: &Matrix<'_>, n: usize, values: &mut [f32]) {
    let format = weights.format();
    let blocks = weights.row(n).chunks_exact(format.block_bytes());
    for (values, block) in values.chunks_exact_mut(format.block_len()).zip(blocks) {
        format.dequantise_row(block, values);
    }
}

/// Product of `x` with a row of `weights` as values, summed block by block.
fn dot(x: &[f32], row: &[f32], weights: &Matrix<'_>) -> f64 {
    assert_eq!(x.len(), row.len());
    let blocks =
        x.chunks_exact(weights.format().block_len()).zip(row.chunks_exact(weights.format().block_len()));
    blocks.map(|(x, row)| x.iter().zip(row).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>()).sum()
}
