//! Rows of the embedding matrix.

use crate::{Matrix, RowsMut};

/// Row `w` of `out` (`[W, K]`) becomes row `tokens[w]` of the `[vocabulary, K]` matrix.
pub fn embed(weights: &Matrix<'_>, tokens: &[u32], mut out: RowsMut<'_>) {
    assert!(tokens.len() == out.width() && weights.columns() == out.columns());
    for (w, &token) in tokens.iter().enumerate() {
        weights.format().dequantise_row(weights.row(token as usize), out.row(w));
    }
}
