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

/// `out += a`, both `[W, columns]`.
pub fn add_into(a: Rows<'_>, mut out: RowsMut<'_>) {
    for w in 0..a.width() {
        for (out, a) in out.row(w).iter_mut().zip(a.row(w)) {
            *out += a;
        }
    }
}
