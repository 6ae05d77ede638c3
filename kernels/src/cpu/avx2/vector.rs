//! Vectors of eight outputs: with sums of 16 bits, or of 32 by AVX-VNNI.

use crate::{
    cpu::codes::{ByteProducts, Vector},
    format::Unit,
};
use std::arch::x86_64::*;

/// AVX2: `VPMADDUBSW` adds two products to 16 bits.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Ymm(());

/// AVX-VNNI: `VPDPBUSD` adds four products to 32 bits.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct VnniYmm(());

impl Ymm {
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn assume() -> Self {
        Self(())
    }
}

impl VnniYmm {
    /// # Safety
    /// The processor has AVX2, FMA, F16C and AVX-VNNI.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn assume() -> Self {
        Self(())
    }
}

/// What both have in common: all that is not a sum of products of bytes.
macro_rules! common {
    () => {
        const LANES: usize = 8;
        type Bytes = __m256i;
        type Sum = __m256i;
        type Ints = __m256i;
        type Scale = __m256i;
        type Floats = __m256;

        #[inline(always)]
        fn no_ints(self) -> __m256i {
            self.no_sum()
        }

        #[inline(always)]
        fn total_signed(self, sum: __m256i) -> __m256i {
            sum
        }

        intrinsics! {
            fn and(self, bytes: __m256i, mask: u8) -> __m256i =
                _mm256_and_si256(bytes, _mm256_set1_epi8(mask.cast_signed()));
            fn or(self, a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
            fn minus(self, bytes: __m256i, offset: u8) -> __m256i =
                _mm256_sub_epi8(bytes, _mm256_set1_epi8(offset.cast_signed()));
            fn up<const BITS: i32>(self, bytes: __m256i) -> __m256i = _mm256_slli_epi16::<BITS>(bytes);
            fn down<const BITS: i32>(self, bytes: __m256i) -> __m256i = _mm256_srli_epi16::<BITS>(bytes);
            fn look_up(self, table: &[u8; 16], bytes: __m256i) -> __m256i = {
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                _mm256_shuffle_epi8(table, bytes)
            };
            fn no_sum(self) -> __m256i = _mm256_setzero_si256();
            fn add(self, a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
            fn times(self, a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
            fn magnitudes(self, bytes: __m256i) -> __m256i = _mm256_abs_epi8(bytes);
            fn one_of_pair(self, pairs: __m256i, i: usize) -> __m256i = {
                if i == 0 {
                    _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff))
                } else {
                    _mm256_srli_epi32::<16>(pairs)
                }
            };
            fn encode(self, values: &[f32; 32], factor: f32, to: &mut [u8; 32]) -> [[i16; 2]; 2] = {
                let factor = _mm256_set1_ps(factor);
                let eight = |i: usize| {
                    let values = _mm256_loadu_ps(values.as_ptr().add(8 * i));
                    _mm256_cvtps_epi32(_mm256_mul_ps(values, factor))
                };
                let words = [_mm256_packs_epi32(eight(0), eight(1)), _mm256_packs_epi32(eight(2), eight(3))];
                // Packing goes by halves: fours of bytes come out as 0 2 4 6 1 3 5 7.
                let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words[0], words[1]), order);
                _mm256_storeu_si256(to.as_mut_ptr().cast(), bytes);
                [_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes)]
                    .map(|half| pair_sums(half))
            };
            fn zero(self) -> __m256 = _mm256_setzero_ps();
            fn floats(self, ints: __m256i) -> __m256 = _mm256_cvtepi32_ps(ints);
            fn four_floats(self, bytes: __m256i) -> [__m256; 4] = {
                [
                    _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(bytes))),
                    _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(_mm256_slli_epi32::<16>(bytes))),
                    _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(_mm256_slli_epi32::<8>(bytes))),
                    _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(bytes)),
                ]
            };
            fn sum(self, a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
            fn product(self, a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
            fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
            fn fnma(self, a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
            unsafe fn bytes(self, at: *const u8) -> __m256i = _mm256_loadu_si256(at.cast());
            unsafe fn start(self, at: *const u8) -> __m256i = _mm256_set1_epi32(at.cast::<i32>().read_unaligned());
            // A product of two bytes is at most `128 * 127`, so that two fit 16 bits.
            unsafe fn dot_signed(self, sum: __m256i, codes: [__m256i; 2], x: *const u8) -> __m256i = {
                let [magnitudes, signed] = codes;
                let pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(self.start(x), signed));
                _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            };
            unsafe fn pairs(self, at: *const u8) -> __m256i = _mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast()));
            unsafe fn high_nibbles(self, first: *const u8, second: *const u8) -> __m256i = {
                let both = _mm_unpacklo_epi8(_mm_loadl_epi64(first.cast()), _mm_loadl_epi64(second.cast()));
                let high = _mm_and_si128(_mm_srli_epi16::<4>(both), _mm_set1_epi8(15));
                _mm256_cvtepu8_epi16(high)
            };
            unsafe fn add_pairs(self, ints: __m256i, pairs: __m256i, x: *const u8) -> __m256i =
                _mm256_add_epi32(ints, _mm256_madd_epi16(pairs, self.start(x)));
            unsafe fn numbers(self, unit: Unit, at: *const u8) -> __m256 = {
                let halves = _mm_loadu_si128(at.cast());
                match unit {
                    Unit::F16 => _mm256_cvtph_ps(halves),
                    Unit::BF16 => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))),
                }
            };
            unsafe fn splat(self, at: *const u8) -> __m256 = _mm256_set1_ps(at.cast::<f32>().read_unaligned());
            unsafe fn load(self, at: *const f32) -> __m256 = _mm256_loadu_ps(at);
            unsafe fn store(self, at: *mut f32, floats: __m256) = _mm256_storeu_ps(at, floats);
            unsafe fn load_ints(self, at: *const i32) -> __m256i = _mm256_loadu_si256(at.cast());
            unsafe fn store_ints(self, at: *mut i32, ints: __m256i) = _mm256_storeu_si256(at.cast(), ints);
        }
    };
}

impl Vector for Ymm {
    common!();

    const PRODUCTS: ByteProducts = ByteProducts::Split;
    const FEW: [usize; 2] = [4, 2];

    intrinsics! {
        fn total(self, sum: __m256i) -> __m256i = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
        /// A scale is there twice, for both sums of an output.
        fn scaled(self, sum: __m256i, scale: __m256i) -> __m256i = _mm256_madd_epi16(sum, scale);
        fn scale(self, scale: __m256i) -> __m256i = _mm256_srai_epi32::<16>(scale);
        unsafe fn dot(self, sum: __m256i, codes: __m256i, x: *const u8) -> __m256i =
            _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, self.start(x)));
        unsafe fn unsigned(self, at: *const u8) -> __m256i = twice(at, LOW);
        unsafe fn signed(self, at: *const u8) -> __m256i = _mm256_srai_epi16::<8>(twice(at, HIGH));
        unsafe fn low_nibbles(self, at: *const u8) -> __m256i =
            _mm256_and_si256(twice(at, LOW), _mm256_set1_epi8(15));
    }
}

/// Of 16 signed bytes, the sums of the first two and of the last two of every four.
///
/// # Safety
/// The processor has SSSE3.
#[inline(always)]
pub(in crate::cpu) unsafe fn pair_sums(bytes: __m128i) -> [i16; 2] {
    // SAFETY: promised by the caller.
    unsafe {
        let pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
        let four = _mm_add_epi16(pairs, _mm_unpackhi_epi64(pairs, pairs));
        let two = _mm_cvtsi128_si32(_mm_add_epi16(four, _mm_srli_epi64::<32>(four)));
        [two as i16, (two >> 16) as i16]
    }
}

/// Places of eight bytes, each twice, in the low or the high halves of 16-bit numbers.
const LOW: [i8; 32] = places(0);
const HIGH: [i8; 32] = places(1);

const fn places(half: usize) -> [i8; 32] {
    let mut places = [-1; 32];
    let mut i = 0;
    while i < 16 {
        places[2 * i + half] = (i / 2) as i8;
        i += 1;
    }
    places
}

/// # Safety
/// Eight bytes are readable, and the processor has AVX2.
#[inline(always)]
unsafe fn twice(at: *const u8, places: [i8; 32]) -> __m256i {
    // SAFETY: promised by the caller, and 32 bytes of a constant.
    unsafe {
        let bytes = _mm256_set1_epi64x(at.cast::<i64>().read_unaligned());
        _mm256_shuffle_epi8(bytes, _mm256_loadu_si256(places.as_ptr().cast()))
    }
}

impl Vector for VnniYmm {
    common!();

    const PRODUCTS: ByteProducts = ByteProducts::Unsigned;
    const FEW: [usize; 2] = [4, 2];

    #[inline(always)]
    fn total(self, sum: __m256i) -> __m256i {
        sum
    }

    #[inline(always)]
    fn scale(self, scale: __m256i) -> __m256i {
        scale
    }

    intrinsics! {
        fn scaled(self, sum: __m256i, scale: __m256i) -> __m256i = _mm256_mullo_epi32(sum, scale);
        unsafe fn dot(self, sum: __m256i, codes: __m256i, x: *const u8) -> __m256i =
            _mm256_dpbusd_avx_epi32(sum, codes, self.start(x));
        unsafe fn unsigned(self, at: *const u8) -> __m256i = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast()));
        unsafe fn signed(self, at: *const u8) -> __m256i = _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()));
        unsafe fn low_nibbles(self, at: *const u8) -> __m256i =
            _mm256_and_si256(self.unsigned(at), _mm256_set1_epi32(15));
    }
}
