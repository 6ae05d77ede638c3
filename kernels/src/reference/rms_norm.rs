//! Root-mean-square normalisation (arXiv 1910.07467).

use crate::{Norm, Rows, RowsMut};

/// `out = x / sqrt(mean(x^2) + eps) * weight`, row by row, `[W, K]`: each group of as many elements as there are
/// weights by itself.
pub fn rms_norm(x: Rows<'_>, norm: Norm<'_>, mut out: RowsMut<'_>) {
    let group = norm.weight.len();
    assert!(x.columns().is_multiple_of(group) && x.columns() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        for (x, out) in x.row(w).chunks_exact(group).zip(out.row(w).chunks_exact_mut(group)) {
            let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            let scale = 1.0 / (squares / group as f64 + f64::from(norm.eps)).sqrt();
            for ((out, &x), &weight) in out.iter_mut().zip(x).zip(norm.weight) {
                *out = (f64::from(x) * scale * f64::from(weight)) as f32;
            }
        }
    }
}
