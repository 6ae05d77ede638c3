//! Loops for roofline measurements of a tier: reading memory, and the multiply-adds that its products are made of.
//!
//! Callers measure the time. The results are of no use, but the compiler cannot remove them.

use super::Kernels;
#[cfg(target_arch = "x86_64")]
use super::amx;
use crate::{Activations, NumericClass, Operand, Tier, WeightFormat};
use std::hint::black_box;

/// How the products of a kernel are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arithmetic {
    /// Multiply-adds of f32 in the tier's vectors.
    F32,
    /// Sums of two products of bf16 pairs, added to f32 (VDPBF16PS).
    Bf16,
    /// The same sums, of tiles of bf16 pairs (TDPBF16PS).
    Tiles,
    /// Sums of products of bytes, unsigned by signed, added to i32 (VPDPBUSD, or what a tier has in its place).
    Int8,
}

impl Arithmetic {
    /// How kernels of a class multiply.
    pub const fn of(class: NumericClass) -> Self {
        match class.operand {
            Operand::Weight(WeightFormat::BF16) => match class.tier {
                Tier::Avx512Bf16 => Self::Bf16,
                Tier::Amx => Self::Tiles,
                Tier::Reference | Tier::Portable | Tier::Neon | Tier::Avx2 | Tier::Avx512 | Tier::Cuda => {
                    Self::F32
                }
            },
            Operand::Weight(format) => match class.activations.over(format) {
                Activations::Int8 => Self::Int8,
                Activations::Native => Self::F32,
            },
            Operand::Rows | Operand::Kv(_) => Self::F32,
        }
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Tiles => "bf16 tiles",
            Self::Int8 => "int8",
        }
    }
}

impl Kernels {
    /// Multiplies and adds in registers alone, in more independent sums than the processor has under way, `rounds`
    /// times. Returns how many multiplications and additions that were.
    ///
    /// # Panics
    /// If no kernel of this tier multiplies so.
    pub fn multiply_adds(self, arithmetic: Arithmetic, rounds: u64) -> u64 {
        let (round, sum) = match (self.tier(), arithmetic) {
            (Tier::Reference | Tier::Portable, Arithmetic::F32) => portable::products(rounds),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a value of `Kernels` proves that the processor has its tier's features.
            (Tier::Neon, Arithmetic::F32) => unsafe { neon::products(rounds) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            (Tier::Neon, Arithmetic::Int8) if self.multiplies_matrices() => unsafe {
                neon::products_int8::<true>(rounds)
            },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            (Tier::Neon, Arithmetic::Int8) => unsafe { neon::products_int8::<false>(rounds) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of `Kernels` proves that the processor has its tier's features.
            (Tier::Avx2, Arithmetic::F32) => unsafe { avx2::products(rounds) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx, Arithmetic::F32) => unsafe {
                avx512::products_f32(rounds)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Tier::Avx512Bf16 | Tier::Amx, Arithmetic::Bf16) => unsafe { avx512::products_bf16(rounds) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Tier::Amx, Arithmetic::Tiles) => unsafe { amx::products(rounds) },
            (Tier::Reference | Tier::Portable, Arithmetic::Int8) => portable::products_int8(rounds),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Tier::Avx2, Arithmetic::Int8) => unsafe { avx2::products_int8(rounds) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx, Arithmetic::Int8) => unsafe {
                avx512::products_int8(rounds)
            },
            (
                Tier::Reference | Tier::Portable | Tier::Neon | Tier::Avx2 | Tier::Avx512,
                Arithmetic::Bf16 | Arithmetic::Tiles,
            )
            | (Tier::Avx512Bf16, Arithmetic::Tiles) => {
                panic!("{} kernels do not multiply {}", self.tier(), arithmetic.name())
            }
            (Tier::Cuda, _) => unreachable!("no kernels of a processor"),
            #[cfg(not(target_arch = "aarch64"))]
            (Tier::Neon, _) => unreachable!("no such processor"),
            #[cfg(not(target_arch = "x86_64"))]
            (Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx, _) => {
                unreachable!("no such processor")
            }
        };
        black_box(sum);
        rounds * round
    }

    /// Reads every whole 64 bytes of `bytes` once, with the tier's widest loads: the wrapping sum of their words.
    pub fn read(self, bytes: &[u8]) -> u64 {
        match self.tier() {
            // The compiler makes vectors of it where every processor of the architecture has them.
            Tier::Reference | Tier::Portable | Tier::Neon => portable::read(bytes),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of `Kernels` proves that the processor has its tier's features.
            Tier::Avx2 => unsafe { avx2::read(bytes) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx => unsafe { avx512::read(bytes) },
            Tier::Cuda => unreachable!("no kernels of a processor"),
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx => unreachable!("no such processor"),
        }
    }
}

/// A factor that the compiler does not know.
fn factor() -> f32 {
    black_box(0.5)
}

mod portable {
    use super::{black_box, factor};

    /// Values in flight: twelve vectors of four.
    const SUMS: usize = 48;

    /// Multiplications and additions of a round, and a sum.
    pub(super) fn products(rounds: u64) -> (u64, f32) {
        let mut sums = black_box([0.5_f32; SUMS]);
        let (a, b) = (factor(), factor());
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = *sum * a + b;
            }
        }
        (2 * SUMS as u64, sums.iter().sum())
    }

    pub(super) fn products_int8(rounds: u64) -> (u64, f32) {
        let mut sums = black_box([1_i32; SUMS]);
        let factor = black_box(3_i16);
        for _ in 0..rounds {
            for sum in &mut sums {
                // Products of the sums themselves, which no compiler can know beforehand.
                *sum = sum.wrapping_add(i32::from((*sum as i16).wrapping_mul(factor)));
            }
        }
        (2 * SUMS as u64, sums.iter().fold(0.0, |all, sum| all + *sum as f32))
    }

    pub(super) fn read(bytes: &[u8]) -> u64 {
        let mut sums = [0_u64; 8];
        for line in bytes.as_chunks::<64>().0 {
            for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            }
        }
        sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{black_box, factor};
    use crate::cpu::neon::{dot, matrix_product};
    use std::arch::aarch64::*;

    /// Vectors of four in flight.
    const SUMS: usize = 24;

    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn products(rounds: u64) -> (u64, f32) {
        let mut sums = [vdupq_n_f32(0.0); SUMS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = vdupq_n_f32(black_box(i as f32));
        }
        let (a, b) = (vdupq_n_f32(factor()), vdupq_n_f32(factor()));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, a, b);
            }
        }
        let all = sums.into_iter().fold(vdupq_n_f32(0.0), |all, sum| vaddq_f32(all, sum));
        (2 * 4 * SUMS as u64, vgetq_lane_f32::<0>(all))
    }

    /// By dot products, or by products of matrices.
    ///
    /// # Safety
    /// The processor has them.
    #[target_feature(enable = "neon,dotprod")]
    pub(super) unsafe fn products_int8<const MATRICES: bool>(rounds: u64) -> (u64, f32) {
        let mut sums = [vdupq_n_s32(0); SUMS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = vdupq_n_s32(black_box(i as i32));
        }
        let bytes = vdupq_n_u8(black_box(1));
        for _ in 0..rounds {
            for sum in &mut sums {
                // SAFETY: promised by the caller.
                *sum = unsafe {
                    if MATRICES {
                        matrix_product(*sum, bytes, bytes)
                    } else {
                        dot(*sum, bytes, vreinterpretq_s32_u8(bytes))
                    }
                };
            }
        }
        let all = sums.into_iter().fold(vdupq_n_s32(0), |all, sum| vaddq_s32(all, sum));
        let products = if MATRICES { 32 } else { 16 };
        (2 * products * SUMS as u64, vgetq_lane_s32::<0>(all) as f32)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{black_box, factor};
    use std::arch::x86_64::*;

    /// Vectors of eight in flight: all registers but the factors.
    const SUMS: usize = 12;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn products(rounds: u64) -> (u64, f32) {
        let mut sums = [_mm256_setzero_ps(); SUMS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_set1_ps(black_box(i as f32));
        }
        let (a, b) = (_mm256_set1_ps(factor()), _mm256_set1_ps(factor()));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        let mut all = _mm256_setzero_ps();
        for sum in sums {
            all = _mm256_add_ps(all, sum);
        }
        (2 * 8 * SUMS as u64, _mm256_cvtss_f32(all))
    }

    /// Sums of 16 bits, which is how a block's products begin; they wrap, and are not read.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn products_int8(rounds: u64) -> (u64, f32) {
        let mut sums = [_mm256_setzero_si256(); SUMS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_set1_epi16(black_box(i as i16));
        }
        let factor = _mm256_set1_epi8(black_box(3));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(*sum, factor));
            }
        }
        let mut all = _mm256_setzero_si256();
        for sum in sums {
            all = _mm256_add_epi16(all, sum);
        }
        (2 * 32 * SUMS as u64, _mm256_cvtss_f32(_mm256_cvtepi32_ps(all)))
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn read(bytes: &[u8]) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 8];
        let (whole, rest) = bytes.as_chunks::<256>();
        for lines in whole {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: 32 bytes at offset 32 i of 256.
                *sum =
                    _mm256_add_epi64(*sum, unsafe { _mm256_loadu_si256(lines.as_ptr().add(32 * i).cast()) });
            }
        }
        let mut all = _mm256_setzero_si256();
        for sum in sums {
            all = _mm256_add_epi64(all, sum);
        }
        let mut lanes = [0_u64; 4];
        // SAFETY: 32 bytes on the stack.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), all) };
        lanes.iter().fold(super::portable::read(rest), |sum, lane| sum.wrapping_add(*lane))
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{black_box, factor};
    use std::arch::x86_64::*;

    /// Vectors of sixteen in flight.
    const SUMS: usize = 24;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn products_f32(rounds: u64) -> (u64, f32) {
        let mut sums = start();
        let (a, b) = (_mm512_set1_ps(factor()), _mm512_set1_ps(factor()));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        (2 * 16 * SUMS as u64, total(sums))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
    pub(super) fn products_bf16(rounds: u64) -> (u64, f32) {
        let mut sums = start();
        let factor = _mm512_set1_ps(factor());
        let pairs = _mm512_cvtne2ps_pbh(factor, factor);
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, pairs, pairs);
            }
        }
        (2 * 32 * SUMS as u64, total(sums))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) fn products_int8(rounds: u64) -> (u64, f32) {
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_set1_epi32(black_box(i as i32));
        }
        let bytes = _mm512_set1_epi8(black_box(1));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, bytes, bytes);
            }
        }
        let mut all = _mm512_setzero_si512();
        for sum in sums {
            all = _mm512_add_epi32(all, sum);
        }
        (2 * 64 * SUMS as u64, _mm512_cvtss_f32(_mm512_cvtepi32_ps(all)))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn start() -> [__m512; SUMS] {
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_set1_ps(black_box(i as f32));
        }
        sums
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn total(sums: [__m512; SUMS]) -> f32 {
        let mut all = _mm512_setzero_ps();
        for sum in sums {
            all = _mm512_add_ps(all, sum);
        }
        _mm512_cvtss_f32(all)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn read(bytes: &[u8]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        let (whole, rest) = bytes.as_chunks::<512>();
        for lines in whole {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: 64 bytes at offset 64 i of 512.
                *sum =
                    _mm512_add_epi64(*sum, unsafe { _mm512_loadu_si512(lines.as_ptr().add(64 * i).cast()) });
            }
        }
        let mut all = _mm512_setzero_si512();
        for sum in sums {
            all = _mm512_add_epi64(all, sum);
        }
        super::portable::read(rest).wrapping_add(_mm512_reduce_add_epi64(all).cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "aarch64")]
    use crate::cpu::I8mm;
    use crate::{Activations, KernelId, KvFormat, OpKind, WeightFormat, testing::Noise};

    #[test]
    fn every_kernel_multiplies_in_a_way_that_its_tier_can_run() {
        for kernels in Tier::ALL.into_iter().filter_map(Kernels::for_tier) {
            let tier = kernels.tier();
            let attention = KernelId::kv(OpKind::Attention, KvFormat::F16, tier);
            let linears = Activations::ALL.into_iter().flat_map(|activations| {
                WeightFormat::ALL.map(|format| KernelId::linear(OpKind::Linear, format, activations, tier))
            });
            for kernel in linears.chain([attention]) {
                let flops = kernels.multiply_adds(Arithmetic::of(kernel.class), 3);
                assert!(flops > 0 && flops.is_multiple_of(3 * 2), "{kernel}: {flops}");
            }
        }
    }

    #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
    #[test]
    fn a_round_is_as_many_products_as_were_added() {
        // Each sum starts at its number and gains 0.5 * 0.5 a product of each lane.
        let expected = |sums: f32, per_lane: f32| sums * (sums - 1.0) / 2.0 + sums * 10.0 * per_lane / 4.0;
        #[cfg(target_arch = "aarch64")]
        if Kernels::for_tier(Tier::Neon).is_some() {
            // SAFETY: the tier is available.
            let (f32s, bytes) = unsafe { (neon::products(10), neon::products_int8::<false>(10)) };
            assert_eq!(f32s, (192, expected(24.0, 1.0)));
            // Four products of 1 a lane.
            assert_eq!(bytes, (768, expected(24.0, 16.0)));
        }
        #[cfg(target_arch = "aarch64")]
        if I8mm::detect().is_some() {
            // SAFETY: the processor has them. Eight products of 1 a lane.
            assert_eq!(unsafe { neon::products_int8::<true>(10) }, (1536, expected(24.0, 32.0)));
        }
        #[cfg(target_arch = "x86_64")]
        a_round_of_x86_64(expected);
    }

    #[cfg(target_arch = "x86_64")]
    fn a_round_of_x86_64(expected: impl Fn(f32, f32) -> f32) {
        if Kernels::for_tier(Tier::Avx2).is_some() {
            // SAFETY: the tier is available.
            let (flops, sum) = unsafe { avx2::products(10) };
            assert_eq!((flops, sum), (192, expected(12.0, 1.0)));
        }
        if Kernels::for_tier(Tier::Avx512).is_some() {
            // SAFETY: the tier is available.
            let (f32s, bytes) = unsafe { (avx512::products_f32(10), avx512::products_int8(10)) };
            assert_eq!(f32s, (768, expected(24.0, 1.0)));
            // Four products of 1 a lane.
            assert_eq!(bytes, (3072, expected(24.0, 16.0)));
        }
        if Kernels::for_tier(Tier::Avx512Bf16).is_some() {
            // SAFETY: the tier is available.
            let bf16s = unsafe { avx512::products_bf16(10) };
            assert_eq!(bf16s, (1536, expected(24.0, 2.0)));
        }
    }

    #[test]
    fn reading_adds_every_word_of_whole_lines_once() {
        let mut noise = Noise::new(3);
        let words: Vec<u64> = (0..139).map(|_| noise.bits()).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for words in [&words[..0], &words[..7], &words[..8], &words[..32], &words[..71], &words] {
            let whole = words.len() / 8 * 8;
            let expected = words[..whole].iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
            for kernels in Tier::ALL.into_iter().filter_map(Kernels::for_tier) {
                assert_eq!(kernels.read(&bytes[..8 * words.len()]), expected, "{}", kernels.tier());
            }
        }
    }
}
