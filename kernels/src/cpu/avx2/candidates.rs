//! Ranges of logits folded into what was found of their rows.

use crate::cpu::{found::FoundRow, generic};

/// As [`generic::fold`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn fold(
    logits: &[f32],
    first: usize,
    k: usize,
    inverse: Option<f32>,
    found: &mut FoundRow<'_>,
) {
    generic::fold_range(logits, first, k, inverse, found);
}
