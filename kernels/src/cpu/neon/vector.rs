//! Vectors of eight outputs in two registers.

use crate::{
    cpu::{
        codes::{ByteProducts, Vector},
        lanes::widened,
    },
    format::Unit,
};
use std::arch::{aarch64::*, asm};

/// `SDOT` adds four products of signed bytes to 32 bits; with `PAIRS`, `SMMLA` adds eight of two rows and two outputs.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Quads<const PAIRS: bool>(());

/// Vectors whose value can be had without a proof.
pub(in crate::cpu) trait Assumed: Vector {
    /// # Safety
    /// The processor has the instructions of the vectors.
    unsafe fn assume() -> Self;
}

impl<const PAIRS: bool> Assumed for Quads<PAIRS> {
    #[inline(always)]
    unsafe fn assume() -> Self {
        Self(())
    }
}

type Bytes = [uint8x16_t; 2];
type Ints = [int32x4_t; 2];
type Floats = [float32x4_t; 2];

/// `SDOT`, whose intrinsic is not stable.
///
/// # Safety
/// The processor has dot products.
#[inline(always)]
pub(in crate::cpu) unsafe fn dot(mut sum: int32x4_t, codes: uint8x16_t, x: int32x4_t) -> int32x4_t {
    // SAFETY: registers alone; the instruction is promised by the caller.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sum,
            in(vreg) codes,
            in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// `SMMLA`, whose intrinsic is not stable: adds to `[r][n]` of two rows and two outputs the products of eight bytes of
/// row `r` and eight of output `n`.
///
/// # Safety
/// The processor has products of matrices of bytes.
#[inline(always)]
pub(in crate::cpu) unsafe fn matrix_product(
    mut sums: int32x4_t,
    x: uint8x16_t,
    codes: uint8x16_t,
) -> int32x4_t {
    // SAFETY: registers alone; the instruction is promised by the caller.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sums,
            in(vreg) x,
            in(vreg) codes,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

impl<const PAIRS: bool> Vector for Quads<PAIRS> {
    const LANES: usize = 8;
    const PRODUCTS: ByteProducts = ByteProducts::Signed;
    const PAIRS: bool = PAIRS;
    // Sums and totals of as many rows take 24 of 32 registers. Two rows are a product of matrices, whose sums of two
    // rows are apart only after the last.
    const FEW: [usize; 2] = if PAIRS { [1, 1] } else { [4, 2] };
    type Bytes = Bytes;
    type Sum = Ints;
    type Ints = Ints;
    type Scale = Ints;
    type Floats = Floats;

    inlined! {
        fn total(self, sum: Ints) -> Ints = sum;
        fn total_signed(self, sum: Ints) -> Ints = sum;
        fn scale(self, scale: Ints) -> Ints = scale;
        fn no_ints(self) -> Ints = self.no_sum();
        fn scaled(self, sum: Ints, scale: Ints) -> Ints = self.times(sum, scale);
    }

    intrinsics! {
        fn and(self, bytes: Bytes, mask: u8) -> Bytes = bytes.map(|bytes| vandq_u8(bytes, vdupq_n_u8(mask)));
        fn or(self, a: Bytes, b: Bytes) -> Bytes = [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])];
        fn minus(self, bytes: Bytes, offset: u8) -> Bytes = bytes.map(|bytes| vsubq_u8(bytes, vdupq_n_u8(offset)));
        fn up<const BITS: i32>(self, bytes: Bytes) -> Bytes = bytes.map(|bytes| vshlq_n_u8::<BITS>(bytes));
        fn down<const BITS: i32>(self, bytes: Bytes) -> Bytes = bytes.map(|bytes| vshrq_n_u8::<BITS>(bytes));
        fn look_up(self, table: &[u8; 16], bytes: Bytes) -> Bytes = {
            let table = vld1q_u8(table.as_ptr());
            bytes.map(|bytes| vqtbl1q_u8(table, bytes))
        };
        fn magnitudes(self, bytes: Bytes) -> Bytes =
            bytes.map(|bytes| vreinterpretq_u8_s8(vabsq_s8(vreinterpretq_s8_u8(bytes))));
        fn no_sum(self) -> Ints = [vdupq_n_s32(0); 2];
        fn add(self, a: Ints, b: Ints) -> Ints = [vaddq_s32(a[0], b[0]), vaddq_s32(a[1], b[1])];
        fn times(self, a: Ints, b: Ints) -> Ints = [vmulq_s32(a[0], b[0]), vmulq_s32(a[1], b[1])];
        fn one_of_pair(self, pairs: Bytes, i: usize) -> Ints = pairs.map(|pairs| {
            let pairs = vreinterpretq_u32_u8(pairs);
            vreinterpretq_s32_u32(if i == 0 {
                vandq_u32(pairs, vdupq_n_u32(0xffff))
            } else {
                vshrq_n_u32::<16>(pairs)
            })
        });
        fn encode(self, values: &[f32; 32], factor: f32, to: &mut [u8; 32]) -> [[i16; 2]; 2] = {
            [0, 1].map(|half| {
                let four = |i: usize| {
                    let values = vld1q_f32(values.as_ptr().add(16 * half + 4 * i));
                    vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(values, factor)))
                };
                let (low, high) = (vcombine_s16(four(0), four(1)), vcombine_s16(four(2), four(3)));
                let bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
                vst1q_s8(to.as_mut_ptr().add(16 * half).cast(), bytes);
                let pairs = vpaddlq_s8(bytes);
                [vaddvq_s16(vuzp1q_s16(pairs, vdupq_n_s16(0))), vaddvq_s16(vuzp2q_s16(pairs, vdupq_n_s16(0)))]
            })
        };
        fn zero(self) -> Floats = [vdupq_n_f32(0.0); 2];
        fn floats(self, ints: Ints) -> Floats = ints.map(|ints| vcvtq_f32_s32(ints));
        fn four_floats(self, bytes: Bytes) -> [Floats; 4] = {
            let ints = bytes.map(|bytes| vreinterpretq_s32_u8(bytes));
            [
                ints.map(|ints| vcvtq_f32_s32(vshrq_n_s32::<24>(vshlq_n_s32::<24>(ints)))),
                ints.map(|ints| vcvtq_f32_s32(vshrq_n_s32::<24>(vshlq_n_s32::<16>(ints)))),
                ints.map(|ints| vcvtq_f32_s32(vshrq_n_s32::<24>(vshlq_n_s32::<8>(ints)))),
                ints.map(|ints| vcvtq_f32_s32(vshrq_n_s32::<24>(ints))),
            ]
        };
        fn sum(self, a: Floats, b: Floats) -> Floats = [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])];
        fn product(self, a: Floats, b: Floats) -> Floats = [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])];
        fn fma(self, a: Floats, b: Floats, c: Floats) -> Floats =
            [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])];
        fn fnma(self, a: Floats, b: Floats, c: Floats) -> Floats =
            [vfmsq_f32(c[0], a[0], b[0]), vfmsq_f32(c[1], a[1], b[1])];
        unsafe fn bytes(self, at: *const u8) -> Bytes = [vld1q_u8(at), vld1q_u8(at.add(16))];
        unsafe fn start(self, at: *const u8) -> Ints = [vdupq_n_s32(at.cast::<i32>().read_unaligned()); 2];
        unsafe fn dot(self, sum: Ints, codes: Bytes, x: *const u8) -> Ints = {
            let x = vdupq_n_s32(x.cast::<i32>().read_unaligned());
            [dot(sum[0], codes[0], x), dot(sum[1], codes[1], x)]
        };
        unsafe fn dot_signed(self, sum: Ints, codes: [Bytes; 2], x: *const u8) -> Ints = self.dot(sum, codes[1], x);
        unsafe fn two_rows(
            self,
            codes: &[Bytes; 8],
            rows: [*const u8; 2],
            starts: [[Ints; 2]; 2],
            by_halves: bool
        ) -> [[Ints; 2]; 2] = {
            let [first, second] = starts;
            let mut low = [both_rows(first[0][0], second[0][0])[0]; 4];
            let mut high = [both_rows(first[1][0], second[1][0])[0]; 4];
            low = add_eight(low, [codes[0], codes[1]], rows, 0);
            low = add_eight(low, [codes[2], codes[3]], rows, 8);
            if by_halves {
                high = add_eight(high, [codes[4], codes[5]], rows, 16);
                high = add_eight(high, [codes[6], codes[7]], rows, 24);
            } else {
                low = add_eight(low, [codes[4], codes[5]], rows, 16);
                low = add_eight(low, [codes[6], codes[7]], rows, 24);
            }
            let low = [both_rows(low[0], low[1]), both_rows(low[2], low[3])];
            let high = [both_rows(high[0], high[1]), both_rows(high[2], high[3])];
            [
                [[low[0][0], low[1][0]], [high[0][0], high[1][0]]],
                [[low[0][1], low[1][1]], [high[0][1], high[1][1]]],
            ]
        };
        unsafe fn unsigned(self, at: *const u8) -> Ints = {
            let words = vmovl_u8(vld1_u8(at));
            [vmovl_u16(vget_low_u16(words)), vmovl_high_u16(words)].map(|ints| vreinterpretq_s32_u32(ints))
        };
        unsafe fn signed(self, at: *const u8) -> Ints = {
            let words = vmovl_s8(vld1_s8(at.cast()));
            [vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)]
        };
        unsafe fn low_nibbles(self, at: *const u8) -> Ints =
            self.unsigned(at).map(|ints| vandq_s32(ints, vdupq_n_s32(15)));
        unsafe fn pairs(self, at: *const u8) -> Bytes = words(vld1q_u8(at));
        unsafe fn high_nibbles(self, first: *const u8, second: *const u8) -> Bytes = {
            let (first, second) = (vld1_u8(first), vld1_u8(second));
            let both = vcombine_u8(vzip1_u8(first, second), vzip2_u8(first, second));
            words(vshrq_n_u8::<4>(both))
        };
        unsafe fn add_pairs(self, ints: Ints, pairs: Bytes, x: *const u8) -> Ints = {
            let x = vreinterpretq_s16_s32(vdupq_n_s32(x.cast::<i32>().read_unaligned()));
            let products = pairs.map(|pairs| {
                let pairs = vreinterpretq_s16_u8(pairs);
                vpaddq_s32(vmull_s16(vget_low_s16(pairs), vget_low_s16(x)), vmull_high_s16(pairs, x))
            });
            self.add(ints, products)
        };
        unsafe fn numbers(self, unit: Unit, at: *const u8) -> Floats = [0, 8].map(|half| {
            let bits = vld1_u16(at.add(half).cast());
            match unit {
                Unit::F16 => widened(bits),
                Unit::BF16 => vreinterpretq_f32_u32(vshll_n_u16::<16>(bits)),
            }
        });
        unsafe fn splat(self, at: *const u8) -> Floats = [vdupq_n_f32(at.cast::<f32>().read_unaligned()); 2];
        unsafe fn load(self, at: *const f32) -> Floats = [vld1q_f32(at), vld1q_f32(at.add(4))];
        unsafe fn store(self, at: *mut f32, floats: Floats) = {
            vst1q_f32(at, floats[0]);
            vst1q_f32(at.add(4), floats[1]);
        };
        unsafe fn load_ints(self, at: *const i32) -> Ints = [vld1q_s32(at), vld1q_s32(at.add(4))];
        unsafe fn store_ints(self, at: *mut i32, ints: Ints) = {
            vst1q_s32(at, ints[0]);
            vst1q_s32(at.add(4), ints[1]);
        };
    }
}

/// The first halves of two vectors, and the second ones.
///
/// # Safety
/// None beyond NEON, which the architecture has.
#[inline(always)]
unsafe fn both_rows(a: int32x4_t, b: int32x4_t) -> Ints {
    // SAFETY: as said.
    unsafe {
        let (a, b) = (vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b));
        [vreinterpretq_s32_s64(vzip1q_s64(a, b)), vreinterpretq_s32_s64(vzip2q_s64(a, b))]
    }
}

/// Adds the products of inputs `at .. at + 8` to the sums `[row][output]` of two rows and each two of eight outputs.
///
/// # Safety
/// The processor has products of matrices of bytes, and the rows have these inputs.
#[inline(always)]
unsafe fn add_eight(
    sums: [int32x4_t; 4],
    codes: [Bytes; 2],
    rows: [*const u8; 2],
    at: usize,
) -> [int32x4_t; 4] {
    // SAFETY: promised by the caller.
    unsafe {
        let x = vcombine_u8(vld1_u8(rows[0].add(at)), vld1_u8(rows[1].add(at)));
        let eights = [eights(codes[0][0], codes[1][0]), eights(codes[0][1], codes[1][1])];
        [
            matrix_product(sums[0], x, eights[0][0]),
            matrix_product(sums[1], x, eights[0][1]),
            matrix_product(sums[2], x, eights[1][0]),
            matrix_product(sums[3], x, eights[1][1]),
        ]
    }
}

/// Eight bytes each of the first two outputs and of the last two, given four each of four outputs twice.
///
/// # Safety
/// None beyond NEON, which the architecture has.
#[inline(always)]
unsafe fn eights(a: uint8x16_t, b: uint8x16_t) -> Bytes {
    // SAFETY: as said.
    unsafe {
        let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
        [vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))]
    }
}

/// Sixteen bytes as numbers of 16 bits, two for each output.
///
/// # Safety
/// None beyond NEON, which the architecture has.
#[inline(always)]
unsafe fn words(bytes: uint8x16_t) -> Bytes {
    // SAFETY: as said.
    unsafe { [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)].map(|words| vreinterpretq_u8_u16(words)) }
}
