//! Arithmetic over 8 lanes that linears share.

use crate::{
    Nonlinearity,
    cpu::{
        Avx2,
        lanes::{self, Eight, first_of_eight as first},
    },
};
use std::arch::x86_64::*;

/// Lanes of a vector.
pub(super) const LANES: usize = 8;

/// Elements `at..at + 8`, zeros past the end.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load(x: &[f32], at: usize) -> __m256 {
    let from = x.as_ptr().wrapping_add(at);
    // SAFETY: all eight are in the slice, or the mask leaves out what is past it; masked lanes are not accessed.
    unsafe {
        if at + LANES <= x.len() {
            _mm256_loadu_ps(from)
        } else {
            _mm256_maskload_ps(from, first(x.len().saturating_sub(at)))
        }
    }
}

/// Writes lanes to elements `at..at + 8` as far as they exist.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store(x: &mut [f32], at: usize, lanes: __m256) {
    let (to, len) = (x.as_mut_ptr().wrapping_add(at), x.len());
    // SAFETY: as in `load`.
    unsafe {
        if at + LANES <= len {
            _mm256_storeu_ps(to, lanes);
        } else {
            _mm256_maskstore_ps(to, first(len.saturating_sub(at)), lanes);
        }
    }
}

/// Eight f16 numbers.
///
/// # Safety
/// 16 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: promised by the caller.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// `function(gate) * up`, as the function's definition says.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gated(function: Nonlinearity, gate: __m256, up: __m256) -> __m256 {
    // SAFETY: callers have the features.
    lanes::gated(Eight(unsafe { Avx2::assume() }), function, gate, up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Avx2;

    #[target_feature(enable = "avx2,fma,f16c")]
    fn copy(x: &[f32], out: &mut [f32]) {
        store(out, 0, load(x, 0));
    }

    #[test]
    fn masks_keep_to_the_slice() {
        let Some(_proof) = Avx2::detect() else { return };
        let x = [3.0, 1.0, -2.0, 7.0, 5.0, 0.5, 9.0, 4.0];
        for len in 0..=LANES {
            let mut out = [-1.0; LANES];
            // SAFETY: the processor has the features.
            unsafe { copy(&x[..len], &mut out[..len]) };
            assert_eq!(out[..len], x[..len]);
            assert!(out[len..].iter().all(|&untouched| untouched == -1.0));
        }
    }
}
