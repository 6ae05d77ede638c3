//! One lane in plain Rust: what every vector does in each of its lanes.

use super::LaneOps;

/// One f32.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Single;

impl LaneOps for Single {
    type V = f32;

    #[inline(always)]
    fn fused(self, a: f32, b: f32, c: f32) -> f32 {
        // Elsewhere it would be a call of the C library for every lane.
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            a.mul_add(b, c)
        } else {
            fused(a, b, c)
        }
    }

    inlined! {
        fn splat(self, x: f32) -> f32 = x;
        fn add(self, a: f32, b: f32) -> f32 = a + b;
        fn sub(self, a: f32, b: f32) -> f32 = a - b;
        fn mul(self, a: f32, b: f32) -> f32 = a * b;
        fn div(self, a: f32, b: f32) -> f32 = a / b;
        fn fused_minus(self, a: f32, b: f32, c: f32) -> f32 = self.fused(-a, b, c);
        fn max(self, a: f32, b: f32) -> f32 = if a > b { a } else { b };
        fn min(self, a: f32, b: f32) -> f32 = if a < b { a } else { b };
        fn zero_below(self, x: f32, limit: f32, value: f32) -> f32 = if x < limit { 0.0 } else { value };
        fn power_of_two(self, n: f32) -> f32 = f32::from_bits((n.to_bits() << 23).wrapping_add(127 << 23));
    }
}

/// `a * b + c`, rounded once, without the instruction and without branches.
///
/// The product is exact in f64. The sum is rounded to odd there, which makes the second rounding, to f32, that of the
/// exact sum (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008, theorem 1).
#[inline(always)]
pub(super) fn fused(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // What the sum lacks, exactly (Knuth's two-sum); NaN if the sum is not finite.
    let of_c = sum - product;
    let error = (product - (sum - of_c)) + (c - of_c);
    let bits = sum.to_bits();
    // An even sum with an error is adjacent to the odd one that has to be taken: one unit further from zero if sum and
    // error have one sign, else one nearer.
    let is_inexact = u64::from(error.abs() > 0.0);
    let step = 1_u64.wrapping_sub((bits ^ error.to_bits()) >> 63 << 1);
    f64::from_bits(bits.wrapping_add(step & (is_inexact & !bits & 1).wrapping_neg())) as f32
}
