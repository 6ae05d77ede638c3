//! Lanes in one register.

use super::{LANES, LaneOps, Lanes, Work};
use crate::cpu::isa::Avx512;
use std::arch::x86_64::*;

impl LaneOps for Avx512 {
    type V = __m512;

    intrinsics! {
        fn splat(self, x: f32) -> __m512 = _mm512_set1_ps(x);
        fn add(self, a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(self, a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(self, a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(self, a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fn fused(self, a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn fused_minus(self, a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        fn max(self, a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn min(self, a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        fn zero_below(self, x: __m512, limit: __m512, value: __m512) -> __m512 =
            _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, limit), value);
        fn power_of_two(self, n: __m512) -> __m512 = _mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_slli_epi32::<23>(_mm512_castps_si512(n)),
            _mm512_set1_epi32(127 << 23),
        ));
    }
}

impl Lanes for Avx512 {
    // Of 32 registers, eight are left for operands. Six units take 24 sums, four each.
    const SUMS: usize = 24;
    const UNITS: usize = 6;

    #[inline(always)]
    fn load_part(self, x: &[f32], at: usize) -> __m512 {
        let mask = first_of_sixteen(x.len().saturating_sub(at));
        // SAFETY: the mask leaves out what is past the slice, and masked lanes are not accessed.
        unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr().wrapping_add(at)) }
    }

    #[inline(always)]
    fn store_part(self, x: &mut [f32], at: usize, lanes: __m512) {
        let mask = first_of_sixteen(x.len().saturating_sub(at));
        // SAFETY: as in `load_part`.
        unsafe { _mm512_mask_storeu_ps(x.as_mut_ptr().wrapping_add(at), mask, lanes) }
    }

    #[inline(always)]
    fn halves(self, lanes: __m512) -> [u16; LANES] {
        let mut halves = [0; LANES];
        // SAFETY: the array has room for all; the token proves the features.
        unsafe {
            let bits = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes);
            _mm256_storeu_si256(halves.as_mut_ptr().cast(), bits);
        }
        halves
    }

    intrinsics! {
        fn sum(self, lanes: __m512) -> f32 = {
            let lanes = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes));
            let lanes = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let lanes = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
            _mm_cvtss_f32(_mm_add_ss(lanes, _mm_movehdup_ps(lanes)))
        };
        fn largest(self, lanes: __m512) -> f32 = {
            let lanes = _mm256_max_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes));
            let lanes = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let lanes = _mm_max_ps(lanes, _mm_movehl_ps(lanes, lanes));
            _mm_cvtss_f32(_mm_max_ss(lanes, _mm_movehdup_ps(lanes)))
        };
        fn first(self, lanes: __m512) -> f32 = _mm512_cvtss_f32(lanes);
        fn prefetch(self, at: *const u8) = _mm_prefetch::<_MM_HINT_T1>(at.cast());
        unsafe fn load(self, from: *const f32) -> __m512 = _mm512_loadu_ps(from);
        unsafe fn store(self, to: *mut f32, lanes: __m512) = _mm512_storeu_ps(to, lanes);
        unsafe fn load_halves(self, from: *const u8) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
        unsafe fn load_bytes(self, from: *const u8) -> __m512 =
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())));
    }

    #[inline(always)]
    fn call<W: Work>(self, work: W) -> W::Out {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
        fn on_avx512<W: Work>(s: Avx512, work: W) -> W::Out {
            work.run(s)
        }
        // SAFETY: the token proves that the processor has the features.
        unsafe { on_avx512(self, work) }
    }
}

/// Mask of the first `n` lanes (all, if there are more).
#[inline(always)]
pub(in crate::cpu) fn first_of_sixteen(n: usize) -> __mmask16 {
    ((1u32 << n.min(LANES)) - 1) as u16
}
