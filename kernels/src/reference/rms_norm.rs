//! Root-mean-square normalisation (arXiv 1910.07467).

use crate::{Norm, Rows, RowsMut};

/// `out = x / sqrt(mean(x^2) + eps) * weight`, row by row, `[W, K]`.
pub fn rms_norm(x: Rows<'_>, norm: Norm<'_>, mut out: RowsMut<'_>) {
    assert!(x.columns() == norm.weight.len() && x.columns() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        let squares: f64 = x.row(w).iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let scale = 1.0 / (squares / x.columns() as f64 + f64::from(norm.eps)).sqrt();
        for ((out, &x), &weight) in out.row(w).iter_mut().zip(x.row(w)).zip(norm.weight) {
            *out = (f64::from(x) * scale * f64::from(weight)) as f32;
        }
    }
}
