//! Ranges of logits folded into what was found of their rows.

use crate::cpu::{found::FoundRow, generic};

/// As [`generic::fold`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn fold(
    logits: &[f32],
    first: usize,
    k: usize,
    inverse: Option<f32>,
    found: &mut FoundRow<'_>,
) {
    generic::fold_range(logits, first, k, inverse, found);
}
