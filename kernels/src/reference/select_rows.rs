//! Gather of rows.

use crate::{Rows, RowsMut};

/// Row `i` of `out` becomes row `indices[i]` of `x`.
pub fn select_rows(x: Rows<'_>, indices: &[u32], mut out: RowsMut<'_>) {
    assert!(indices.len() == out.width() && x.columns() == out.columns());
    for (i, &index) in indices.iter().enumerate() {
        out.row(i).copy_from_slice(x.row(index as usize));
    }
}
