//! Product with a constant.

use crate::RowsMut;

/// `x *= factor`, `[W, columns]`.
pub fn scale(factor: f32, mut x: RowsMut<'_>) {
    for w in 0..x.width() {
        x.row(w).iter_mut().for_each(|x| *x *= factor);
    }
}
