//! Lanes in four registers of four.

use super::{LANES, LaneOps, Lanes, Work};
use crate::cpu::isa::Neon;
use std::arch::{aarch64::*, asm};

/// One register of four lanes.
#[derive(Clone, Copy, Debug)]
struct Four;

impl LaneOps for Four {
    type V = float32x4_t;

    intrinsics! {
        fn splat(self, x: f32) -> float32x4_t = vdupq_n_f32(x);
        fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        fn fused(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        fn fused_minus(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmsq_f32(c, a, b);
        /// The instruction for it would give NaN where either is.
        fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
        fn min(self, a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), a, b);
        fn zero_below(self, x: float32x4_t, limit: float32x4_t, value: float32x4_t) -> float32x4_t =
            vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(x, limit)));
        fn power_of_two(self, n: float32x4_t) -> float32x4_t = vreinterpretq_f32_u32(vaddq_u32(
            vshlq_n_u32::<23>(vreinterpretq_u32_f32(n)),
            vdupq_n_u32(127 << 23),
        ));
    }
}

type Quad = [float32x4_t; 4];

/// Writes operations of four registers as those of each.
macro_rules! quads {
    ($( fn $name:ident ( $($arg:ident),* ); )*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: Quad),*) -> Quad {
                [
                    Four.$name($($arg[0]),*),
                    Four.$name($($arg[1]),*),
                    Four.$name($($arg[2]),*),
                    Four.$name($($arg[3]),*),
                ]
            }
        )*
    };
}

impl LaneOps for Neon {
    type V = Quad;

    #[inline(always)]
    fn splat(self, x: f32) -> Quad {
        [Four.splat(x); 4]
    }

    quads! {
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

impl Lanes for Neon {
    // A sum takes four of 32 registers. Six units have 24, and eight are left for operands and a factor.
    const SUMS: usize = 5;
    const UNITS: usize = 6;

    #[inline(always)]
    fn load_part(self, x: &[f32], at: usize) -> Quad {
        let x = &x[at.min(x.len())..];
        let mut part = [0.0; LANES];
        let from = match x.first_chunk::<LANES>() {
            Some(all) => all,
            None => {
                part[..x.len()].copy_from_slice(x);
                &part
            }
        };
        // SAFETY: sixteen elements.
        unsafe { self.load(from.as_ptr()) }
    }

    #[inline(always)]
    fn store_part(self, x: &mut [f32], at: usize, lanes: Quad) {
        let at = at.min(x.len());
        let x = &mut x[at..];
        match x.first_chunk_mut::<LANES>() {
            // SAFETY: sixteen elements.
            Some(all) => unsafe { self.store(all.as_mut_ptr(), lanes) },
            None => {
                let mut part = [0.0; LANES];
                // SAFETY: as above.
                unsafe { self.store(part.as_mut_ptr(), lanes) };
                x.copy_from_slice(&part[..x.len()]);
            }
        }
    }

    #[inline(always)]
    fn halves(self, lanes: Quad) -> [u16; LANES] {
        let mut halves = [0; LANES];
        for (i, lanes) in lanes.into_iter().enumerate() {
            // SAFETY: four numbers of sixteen; the token proves the features.
            unsafe { vst1_u16(halves.as_mut_ptr().add(4 * i), narrowed(lanes)) };
        }
        halves
    }

    #[inline(always)]
    fn largest(self, lanes: Quad) -> f32 {
        let [a, b, c, d] = lanes;
        let lanes = Four.max(Four.max(a, c), Four.max(b, d));
        // SAFETY: the token proves the features.
        unsafe {
            let lanes = Four.max(lanes, vextq_f32::<2>(lanes, lanes));
            vgetq_lane_f32::<0>(Four.max(lanes, vextq_f32::<1>(lanes, lanes)))
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: fetching touches nothing, and every processor of the architecture has the instruction.
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) };
    }

    intrinsics! {
        fn sum(self, lanes: Quad) -> f32 = {
            let [a, b, c, d] = lanes;
            let lanes = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
            let lanes = vadd_f32(vget_low_f32(lanes), vget_high_f32(lanes));
            vget_lane_f32::<0>(lanes) + vget_lane_f32::<1>(lanes)
        };
        fn first(self, lanes: Quad) -> f32 = vgetq_lane_f32::<0>(lanes[0]);
        unsafe fn load(self, from: *const f32) -> Quad = [0, 4, 8, 12].map(|at| vld1q_f32(from.add(at)));
        unsafe fn store(self, to: *mut f32, lanes: Quad) = {
            for (i, lanes) in lanes.into_iter().enumerate() {
                vst1q_f32(to.add(4 * i), lanes);
            }
        };
        unsafe fn load_halves(self, from: *const u8) -> Quad =
            [0, 8, 16, 24].map(|at| widened(vld1_u16(from.add(at).cast())));
        unsafe fn load_bytes(self, from: *const u8) -> Quad = {
            let bytes = vld1q_s8(from.cast());
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_high_s16(high)),
            ]
        };
    }

    #[inline(always)]
    fn call<W: Work>(self, work: W) -> W::Out {
        #[target_feature(enable = "neon,dotprod")]
        fn on_neon<W: Work>(s: Neon, work: W) -> W::Out {
            work.run(s)
        }
        // SAFETY: the token proves that the processor has the features.
        unsafe { on_neon(self, work) }
    }
}

/// The values of four f16 numbers.
///
/// # Safety
/// None beyond NEON, which the architecture has: the compiler has no stable name for the instruction.
#[inline(always)]
pub(in crate::cpu) unsafe fn widened(halves: uint16x4_t) -> float32x4_t {
    let values;
    // SAFETY: registers alone.
    unsafe {
        asm!("fcvtl {:v}.4s, {:v}.4h", out(vreg) values, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
    }
    values
}

/// Bits of the nearest f16 numbers, of two the even one.
///
/// # Safety
/// As [`widened`].
#[inline(always)]
unsafe fn narrowed(values: float32x4_t) -> uint16x4_t {
    let halves;
    // SAFETY: registers alone.
    unsafe {
        asm!("fcvtn {:v}.4h, {:v}.4s", out(vreg) halves, in(vreg) values, options(pure, nomem, nostack, preserves_flags));
    }
    halves
}
