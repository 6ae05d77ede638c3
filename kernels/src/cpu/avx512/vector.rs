//! Vectors of 16 outputs, with sums of 32 bits by AVX-512 VNNI.

use crate::{
    cpu::{
        avx2::pair_sums,
        codes::{ByteProducts, TileVector, Vector},
    },
    format::Unit,
};
use std::arch::x86_64::*;

/// AVX-512 VNNI: `VPDPBUSD` adds four products to 32 bits.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Zmm(());

impl Zmm {
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn assume() -> Self {
        Self(())
    }
}

impl Vector for Zmm {
    const LANES: usize = 16;
    const PRODUCTS: ByteProducts = ByteProducts::Unsigned;
    const FEW: [usize; 2] = [4, 4];
    type Bytes = __m512i;
    type Sum = __m512i;
    type Ints = __m512i;
    type Scale = __m512i;
    type Floats = __m512;

    #[inline(always)]
    fn total(self, sum: __m512i) -> __m512i {
        sum
    }

    #[inline(always)]
    fn scale(self, scale: __m512i) -> __m512i {
        scale
    }

    #[inline(always)]
    fn no_ints(self) -> __m512i {
        self.no_sum()
    }

    /// Sums have 32 bits here anyway.
    #[inline(always)]
    unsafe fn dot_signed(self, _: __m512i, _: [__m512i; 2], _: *const u8) -> __m512i {
        unreachable!("bytes are unsigned")
    }

    #[inline(always)]
    fn total_signed(self, sum: __m512i) -> __m512i {
        sum
    }

    intrinsics! {
        fn and(self, bytes: __m512i, mask: u8) -> __m512i =
            _mm512_and_si512(bytes, _mm512_set1_epi8(mask.cast_signed()));
        fn or(self, a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        fn minus(self, bytes: __m512i, offset: u8) -> __m512i =
            _mm512_sub_epi8(bytes, _mm512_set1_epi8(offset.cast_signed()));
        fn up<const BITS: i32>(self, bytes: __m512i) -> __m512i = _mm512_sll_epi16(bytes, _mm_cvtsi32_si128(BITS));
        fn down<const BITS: i32>(self, bytes: __m512i) -> __m512i = _mm512_srl_epi16(bytes, _mm_cvtsi32_si128(BITS));
        fn look_up(self, table: &[u8; 16], bytes: __m512i) -> __m512i = {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, bytes)
        };
        fn no_sum(self) -> __m512i = _mm512_setzero_si512();
        fn scaled(self, sum: __m512i, scale: __m512i) -> __m512i = _mm512_mullo_epi32(sum, scale);
        fn add(self, a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        fn times(self, a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        fn magnitudes(self, bytes: __m512i) -> __m512i = _mm512_abs_epi8(bytes);
        fn one_of_pair(self, pairs: __m512i, i: usize) -> __m512i = {
            if i == 0 {
                _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff))
            } else {
                _mm512_srli_epi32::<16>(pairs)
            }
        };
        fn encode(self, values: &[f32; 32], factor: f32, to: &mut [u8; 32]) -> [[i16; 2]; 2] = {
            let factor = _mm512_set1_ps(factor);
            let mut sums = [[0; 2]; 2];
            for (i, sums) in sums.iter_mut().enumerate() {
                let values = _mm512_loadu_ps(values.as_ptr().add(16 * i));
                let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(values, factor)));
                _mm_storeu_si128(to.as_mut_ptr().add(16 * i).cast(), bytes);
                *sums = pair_sums(bytes);
            }
            sums
        };
        fn zero(self) -> __m512 = _mm512_setzero_ps();
        fn floats(self, ints: __m512i) -> __m512 = _mm512_cvtepi32_ps(ints);
        fn four_floats(self, bytes: __m512i) -> [__m512; 4] = {
            [
                _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(bytes))),
                _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(_mm512_slli_epi32::<16>(bytes))),
                _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(_mm512_slli_epi32::<8>(bytes))),
                _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(bytes)),
            ]
        };
        fn sum(self, a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn product(self, a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn fnma(self, a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        unsafe fn bytes(self, at: *const u8) -> __m512i = _mm512_loadu_si512(at.cast());
        unsafe fn start(self, at: *const u8) -> __m512i = _mm512_set1_epi32(at.cast::<i32>().read_unaligned());
        unsafe fn dot(self, sum: __m512i, codes: __m512i, x: *const u8) -> __m512i =
            _mm512_dpbusd_epi32(sum, codes, self.start(x));
        unsafe fn unsigned(self, at: *const u8) -> __m512i = _mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast()));
        unsafe fn signed(self, at: *const u8) -> __m512i = _mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()));
        unsafe fn low_nibbles(self, at: *const u8) -> __m512i =
            _mm512_and_si512(self.unsigned(at), _mm512_set1_epi32(15));
        unsafe fn pairs(self, at: *const u8) -> __m512i = _mm512_cvtepu8_epi16(_mm256_loadu_si256(at.cast()));
        unsafe fn high_nibbles(self, first: *const u8, second: *const u8) -> __m512i = {
            let first = _mm512_srli_epi32::<4>(self.unsigned(first));
            let second = _mm512_srli_epi32::<4>(self.unsigned(second));
            _mm512_or_si512(first, _mm512_slli_epi32::<16>(second))
        };
        unsafe fn add_pairs(self, ints: __m512i, pairs: __m512i, x: *const u8) -> __m512i =
            _mm512_dpwssd_epi32(ints, pairs, self.start(x));
        unsafe fn numbers(self, unit: Unit, at: *const u8) -> __m512 = {
            let halves = _mm256_loadu_si256(at.cast());
            match unit {
                Unit::F16 => _mm512_cvtph_ps(halves),
                Unit::BF16 => _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))),
            }
        };
        unsafe fn splat(self, at: *const u8) -> __m512 = _mm512_set1_ps(at.cast::<f32>().read_unaligned());
        unsafe fn load(self, at: *const f32) -> __m512 = _mm512_loadu_ps(at);
        unsafe fn store(self, at: *mut f32, floats: __m512) = _mm512_storeu_ps(at, floats);
        unsafe fn load_ints(self, at: *const i32) -> __m512i = _mm512_loadu_si512(at.cast());
        unsafe fn store_ints(self, at: *mut i32, ints: __m512i) = _mm512_storeu_si512(at.cast(), ints);
    }
}

/// Scales of a group, in three forms.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Biased {
    /// For the bytes 0 and 2 of four: at these places, with zeros in between.
    even: __m512i,
    /// For the bytes 1 and 3 of four.
    odd: __m512i,
    /// The bias by the scale, 16 bits.
    bias: __m512i,
}

impl TileVector for Zmm {
    /// In 16 bits.
    type Factor = __m512i;
    type Biased = Biased;

    #[inline(always)]
    fn long_products(self, bytes: __m512i, Biased { even, odd, bias }: Biased) -> [__m512i; 2] {
        const ODD_BYTES: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        // SAFETY: `self` proves the instructions.
        unsafe {
            let even = _mm512_sub_epi16(_mm512_maddubs_epi16(bytes, even), bias);
            let odd = _mm512_sub_epi16(_mm512_maddubs_epi16(bytes, odd), bias);
            let low = _mm512_mask_mov_epi8(even, ODD_BYTES, _mm512_slli_epi16::<8>(odd));
            let high = _mm512_mask_mov_epi8(_mm512_srli_epi16::<8>(even), ODD_BYTES, odd);
            [low, high]
        }
    }

    intrinsics! {
        fn parts(self, scale: __m512i, bits: u32) -> [__m512i; 2] = {
            let pairs = _mm512_or_si512(scale, _mm512_slli_epi32::<16>(scale));
            let low = _mm512_and_si512(pairs, _mm512_set1_epi16((1 << bits) - 1));
            [low, _mm512_srl_epi16(pairs, _mm_cvtsi32_si128(bits.cast_signed()))]
        };
        /// Two bytes at a time: the lower product, below 256, does not reach the upper one.
        fn products(self, bytes: __m512i, factor: __m512i) -> __m512i = _mm512_mullo_epi16(bytes, factor);
        fn biased(self, scale: __m512i, bias: u8) -> Biased = {
            let byte = _mm512_and_si512(scale, _mm512_set1_epi32(0xff));
            let even = _mm512_or_si512(byte, _mm512_slli_epi32::<16>(byte));
            let odd = _mm512_slli_epi16::<8>(even);
            let bias = _mm512_maddubs_epi16(_mm512_set1_epi8(bias.cast_signed()), even);
            Biased { even, odd, bias }
        };
        fn joined(self, low: __m512i, high: __m512i, bits: u32) -> __m512i =
            _mm512_add_epi32(low, _mm512_sll_epi32(high, _mm_cvtsi32_si128(bits.cast_signed())));
        unsafe fn store_bytes(self, at: *mut u8, bytes: __m512i) = _mm512_storeu_si512(at.cast(), bytes);
    }
}
