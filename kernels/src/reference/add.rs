//! Sum of two buffers.

use crate::{Rows, RowsMut};

/// `out = a + b`, all `[W, columns]`.
pub fn add(a: Rows<'_>, b: Rows<'_>, mut out: RowsMut<'_>) {
    for w in 0..a.width() {
        for ((out, a), b) in out.row(w).iter_mut().zip(a.row(w)).zip(b.row(w)) {
            *out = a + b;
        }
    }
}

/// `x += bias` in every row: `x` is `[W, columns]`, `bias` `[columns]`.
pub fn add_bias(bias: &[f32], mut x: RowsMut<'_>) {
    assert_eq!(bias.len(), x.columns(), "a bias of the columns");
    for w in 0..x.width() {
        x.row(w).iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
    }
}

/// `out += a`, both `[W, columns]`.
pub fn add_into(a: Rows<'_>, mut out: RowsMut<'_>) {
    for w in 0..a.width() {
        for (out, a) in out.row(w).iter_mut().zip(a.row(w)) {
            *out += a;
        }
    }
}
