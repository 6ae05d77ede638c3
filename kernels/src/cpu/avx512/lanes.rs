//! Arithmetic over 16 lanes that several ops share.

use std::{arch::x86_64::*, f32::consts::LOG2_E};

/// Mask of the first `n` lanes (all, if there are more).
#[inline(always)]
pub(super) fn first(n: usize) -> __mmask16 {
    ((1u32 << n.min(16)) - 1) as u16
}

/// Elements `at..at + 16`, zeros past the end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn load(x: &[f32], at: usize) -> __m512 {
    let mask = first(x.len().saturating_sub(at));
    // SAFETY: the mask leaves out what is past the slice, and masked lanes are not accessed.
    unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr().wrapping_add(at)) }
}

/// Writes lanes to elements `at..at + 16` as far as they exist.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn store(x: &mut [f32], at: usize, lanes: __m512) {
    let mask = first(x.len().saturating_sub(at));
    // SAFETY: as in `load`.
    unsafe { _mm512_mask_storeu_ps(x.as_mut_ptr().wrapping_add(at), mask, lanes) }
}

/// Sum of all lanes, by halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) fn sum(lanes: __m512) -> f32 {
    let lanes = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes));
    let lanes = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let lanes = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
    _mm_cvtss_f32(_mm_add_ss(lanes, _mm_movehdup_ps(lanes)))
}

/// `e^x` within 2 units in the last place; 0 below -104, infinite above 89.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) fn exp(x: __m512) -> __m512 {
    // The second operand is kept if it is NaN.
    let x = _mm512_max_ps(_mm512_set1_ps(-104.0), x);
    let x = _mm512_min_ps(_mm512_set1_ps(89.0), x);
    let n = _mm512_roundscale_ps::<0>(_mm512_mul_ps(x, _mm512_set1_ps(LOG2_E)));
    // ln 2 in two parts, so that n times the first is exact.
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693_359_4), x);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.121_944_4e-4), r);
    let mut p = _mm512_set1_ps(1.987_569_1e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    }
    let p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0)));
    _mm512_scalef_ps(p, n)
}

/// `x * sigmoid(x)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(in crate::cpu) fn silu(x: __m512) -> __m512 {
    let one = _mm512_set1_ps(1.0);
    _mm512_div_ps(x, _mm512_add_ps(one, exp(_mm512_sub_ps(_mm512_setzero_ps(), x))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Avx512;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
    fn exp_of(x: [f32; 16]) -> [f32; 16] {
        let mut out = [0.0; 16];
        store(&mut out, 0, exp(load(&x, 0)));
        out
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let Some(_proof) = Avx512::detect() else { return };
        for i in -5_400..5_500 {
            let x: [f32; 16] = std::array::from_fn(|lane| (i * 16 + lane as i32) as f32 / 1000.0);
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
}
