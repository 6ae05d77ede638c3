//! Lanes in two registers of eight.

use super::{LANES, LaneOps, Lanes, Work};
use crate::cpu::isa::Avx2;
use std::arch::x86_64::*;

/// One register of eight lanes.
#[derive(Clone, Copy, Debug)]
struct Eight(Avx2);

impl LaneOps for Eight {
    type V = __m256;

    intrinsics! {
        fn splat(self, x: f32) -> __m256 = _mm256_set1_ps(x);
        fn add(self, a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn sub(self, a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn mul(self, a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn div(self, a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fn fused(self, a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn fused_minus(self, a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
        fn max(self, a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        fn min(self, a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        fn zero_below(self, x: __m256, limit: __m256, value: __m256) -> __m256 =
            _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x, limit), value);
        fn power_of_two(self, n: __m256) -> __m256 = _mm256_castsi256_ps(_mm256_add_epi32(
            _mm256_slli_epi32::<23>(_mm256_castps_si256(n)),
            _mm256_set1_epi32(127 << 23),
        ));
    }
}

type Pair = [__m256; 2];

/// Writes operations of a pair as those of both.
macro_rules! pairs {
    ($( fn $name:ident ( $($arg:ident),* ); )*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: Pair),*) -> Pair {
                [Eight(self).$name($($arg[0]),*), Eight(self).$name($($arg[1]),*)]
            }
        )*
    };
}

impl LaneOps for Avx2 {
    type V = Pair;

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        [Eight(self).splat(x); 2]
    }

    pairs! {
        fn add(a, b);
        fn sub(a, b);
        fn mul(a, b);
        fn div(a, b);
        fn fused(a, b, c);
        fn fused_minus(a, b, c);
        fn max(a, b);
        fn min(a, b);
        fn zero_below(x, limit, value);
        fn power_of_two(n);
    }
}

impl Lanes for Avx2 {
    // A sum takes two of sixteen registers. Six units have twelve, and three are left for a pair of operands and a
    // factor.
    const SUMS: usize = 5;
    const UNITS: usize = 6;

    #[inline(always)]
    fn load_part(self, x: &[f32], at: usize) -> Pair {
        let count = x.len().saturating_sub(at);
        let from = x.as_ptr().wrapping_add(at);
        // SAFETY: all sixteen are in the slice, or masks leave out what is past it; masked lanes are not accessed.
        unsafe {
            if count >= LANES {
                self.load(from)
            } else {
                let second = from.wrapping_add(8);
                [
                    _mm256_maskload_ps(from, first_of_eight(count)),
                    _mm256_maskload_ps(second, first_of_eight(count.saturating_sub(8))),
                ]
            }
        }
    }

    #[inline(always)]
    fn store_part(self, x: &mut [f32], at: usize, lanes: Pair) {
        let count = x.len().saturating_sub(at);
        let to = x.as_mut_ptr().wrapping_add(at);
        // SAFETY: as in `load_part`.
        unsafe {
            if count >= LANES {
                self.store(to, lanes);
            } else {
                _mm256_maskstore_ps(to, first_of_eight(count), lanes[0]);
                _mm256_maskstore_ps(to.wrapping_add(8), first_of_eight(count.saturating_sub(8)), lanes[1]);
            }
        }
    }

    #[inline(always)]
    fn halves(self, lanes: Pair) -> [u16; LANES] {
        let mut halves = [0; LANES];
        // SAFETY: the array has room for both; the token proves the features.
        unsafe {
            let to = halves.as_mut_ptr().cast::<__m128i>();
            _mm_storeu_si128(to, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes[0]));
            _mm_storeu_si128(to.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes[1]));
        }
        halves
    }

    intrinsics! {
        fn sum(self, lanes: Pair) -> f32 = {
            let lanes = _mm256_add_ps(lanes[0], lanes[1]);
            let lanes = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let lanes = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
            _mm_cvtss_f32(_mm_add_ss(lanes, _mm_movehdup_ps(lanes)))
        };
        fn largest(self, lanes: Pair) -> f32 = {
            let lanes = _mm256_max_ps(lanes[0], lanes[1]);
            let lanes = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let lanes = _mm_max_ps(lanes, _mm_movehl_ps(lanes, lanes));
            _mm_cvtss_f32(_mm_max_ss(lanes, _mm_movehdup_ps(lanes)))
        };
        fn first(self, lanes: Pair) -> f32 = _mm256_cvtss_f32(lanes[0]);
        fn prefetch(self, at: *const u8) = _mm_prefetch::<_MM_HINT_T1>(at.cast());
        unsafe fn load(self, from: *const f32) -> Pair = [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))];
        unsafe fn store(self, to: *mut f32, lanes: Pair) = {
            _mm256_storeu_ps(to, lanes[0]);
            _mm256_storeu_ps(to.add(8), lanes[1]);
        };
        unsafe fn load_halves(self, from: *const u8) -> Pair =
            [0, 16].map(|at| _mm256_cvtph_ps(_mm_loadu_si128(from.add(at).cast())));
        unsafe fn load_bytes(self, from: *const u8) -> Pair = {
            [0, 8].map(|at| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(at).cast()))))
        };
    }

    #[inline(always)]
    fn call<W: Work>(self, work: W) -> W::Out {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn on_avx2<W: Work>(s: Avx2, work: W) -> W::Out {
            work.run(s)
        }
        // SAFETY: the token proves that the processor has the features.
        unsafe { on_avx2(self, work) }
    }
}

/// All ones in the first `n` lanes (all, if there are more), zeros in the rest.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn first_of_eight(n: usize) -> __m256i {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(8) as i32), lanes)
}
