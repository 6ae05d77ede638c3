//! Arithmetic over 8 lanes that several ops share.

use std::{arch::x86_64::*, f32::consts::LOG2_E};

/// Lanes of a vector.
pub(super) const LANES: usize = 8;

/// All ones in the first `n` lanes (all, if there are more), zeros in the rest.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn first(n: usize) -> __m256i {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(LANES) as i32), lanes)
}

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

/// Sum of all lanes, by halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sum(lanes: __m256) -> f32 {
    let lanes = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let lanes = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
    _mm_cvtss_f32(_mm_add_ss(lanes, _mm_movehdup_ps(lanes)))
}

/// Largest lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn largest(lanes: __m256) -> f32 {
    let lanes = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let lanes = _mm_max_ps(lanes, _mm_movehl_ps(lanes, lanes));
    _mm_cvtss_f32(_mm_max_ss(lanes, _mm_movehdup_ps(lanes)))
}

/// `e^x` within 2 units in the last place; 0 below -104, infinity above 89.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn exp(x: __m256) -> __m256 {
    // The second operand is kept if it is NaN.
    let x = _mm256_max_ps(_mm256_set1_ps(-104.0), x);
    let x = _mm256_min_ps(_mm256_set1_ps(89.0), x);
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
        x,
        _mm256_set1_ps(LOG2_E),
    ));
    // ln 2 in two parts, so that n times the first is exact.
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693_359_4), x);
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.121_944_4e-4), r);
    let mut p = _mm256_set1_ps(1.987_569_1e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
    }
    let p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0)));
    // 2^n may be out of range where the product is not; its halves are in range, and only the last product rounds.
    let n = _mm256_cvtps_epi32(n);
    let half = _mm256_srai_epi32::<1>(n);
    let rest = _mm256_sub_epi32(n, half);
    _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(half)), power_of_two(rest))
}

/// `2^n` for `n` in -126..=127.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn power_of_two(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

/// `x * sigmoid(x)`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn silu(x: __m256) -> __m256 {
    let one = _mm256_set1_ps(1.0);
    _mm256_div_ps(x, _mm256_add_ps(one, exp(_mm256_sub_ps(_mm256_setzero_ps(), x))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Avx2;

    #[target_feature(enable = "avx2,fma,f16c")]
    fn exp_of(x: [f32; LANES]) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        store(&mut out, 0, exp(load(&x, 0)));
        out
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let Some(_proof) = Avx2::detect() else { return };
        for i in -10_800..11_000 {
            let x: [f32; LANES] = std::array::from_fn(|lane| (i * 8 + lane as i32) as f32 / 1000.0);
            // SAFETY: the processor has the features.
            for (x, found) in x.iter().zip(unsafe { exp_of(x) }) {
                let exact = f64::from(*x).exp();
                assert!(
                    (f64::from(found) - exact).abs() <= exact * 2.4e-7,
                    "exp({x}) = {found}, not {exact}"
                );
            }
        }
        let edges = [0.0, f32::NEG_INFINITY, f32::NAN, 1e9, -103.0];
        // SAFETY: the processor has the features.
        let found = unsafe { exp_of(std::array::from_fn(|i| edges[i % 5])) };
        assert!(found[0] == 1.0 && found[1] == 0.0 && found[2].is_nan() && found[3] == f32::INFINITY);
        assert!(found[4] > 0.0);
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    fn copy(x: &[f32], out: &mut [f32]) -> (f32, f32) {
        store(out, 0, load(x, 0));
        (sum(load(x, 0)), largest(load(x, 0)))
    }

    #[test]
    fn masks_keep_to_the_slice() {
        let Some(_proof) = Avx2::detect() else { return };
        let x = [3.0, 1.0, -2.0, 7.0, 5.0, 0.5, 9.0, 4.0];
        for len in 0..=LANES {
            let mut out = [-1.0; LANES];
            // SAFETY: the processor has the features.
            let (sum, largest) = unsafe { copy(&x[..len], &mut out[..len]) };
            assert_eq!(out[..len], x[..len]);
            assert!(out[len..].iter().all(|&untouched| untouched == -1.0));
            assert_eq!(sum, x[..len].iter().sum());
            assert_eq!(
                largest,
                x[..len].iter().copied().fold(if len < LANES { 0.0 } else { -2.0 }, f32::max)
            );
        }
    }
}
