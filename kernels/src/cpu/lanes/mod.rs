//! Sixteen lanes of f32 with the same arithmetic on every tier: an op written once over them gives the same bits on
//! each.
//!
//! A tier's proof token implements [`Lanes`]: [`Portable`] by arrays, `Neon` by four registers,
//! [`Avx2`](super::isa::Avx2) by two, [`Avx512`](super::isa::Avx512) by one. Every operation is exact or rounds once, as IEEE 754 says; [`LaneOps::fused`]
//! never rounds its product. Sums over lanes go by halves. What is not exact in one operation, [`exp`], is a fixed
//! sequence of them.

mod array;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod exp;
#[cfg(target_arch = "aarch64")]
mod neon;
mod single;

#[cfg(test)]
mod tests;

pub(super) use array::Portable;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::first_of_sixteen;
pub(super) use exp::{exp, gated, sigmoid, silu, softcap};
#[cfg(target_arch = "aarch64")]
pub(super) use neon::widened;
pub(super) use single::Single;

/// Lanes of a vector: those of an AVX-512 register. Narrower tiers have several registers for one, so that lanes, and
/// with them the order of sums, are the same on every tier.
pub(super) const LANES: usize = 16;

/// Operations lane by lane, over a vector of any length.
pub(super) trait LaneOps: Copy {
    /// The vector.
    type V: Copy;

    fn splat(self, x: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fused(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once.
    fn fused_minus(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a` where it is larger, else `b`: `b` also where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a` where it is smaller, else `b`: `b` also where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Zero where `x < limit`, else `value`: `value` also where `x` is NaN.
    fn zero_below(self, x: Self::V, limit: Self::V, value: Self::V) -> Self::V;
    /// `2^n` of an integer `n` in -127..=128 that is given as the sum `n + 1.5 * 2^23`: 0 for -127, infinity for 128.
    /// Of other numbers, any bits.
    fn power_of_two(self, n: Self::V) -> Self::V;
}

/// Sixteen lanes: memory, reductions, and how many of them the processor's registers hold.
pub(super) trait Lanes: LaneOps {
    /// Sums that fit the registers together with their operands.
    const SUMS: usize;
    /// Most units of attention that are worked on together, at most [`super::attention::MOST_UNITS`].
    const UNITS: usize;

    /// # Safety
    /// 16 elements are readable.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// # Safety
    /// 16 elements are writable.
    unsafe fn store(self, to: *mut f32, lanes: Self::V);
    /// Elements `at..at + 16`, zeros past the end.
    fn load_part(self, x: &[f32], at: usize) -> Self::V;
    /// Writes lanes to elements `at..at + 16` as far as they exist.
    fn store_part(self, x: &mut [f32], at: usize, lanes: Self::V);
    /// The values of 16 f16 numbers.
    ///
    /// # Safety
    /// 32 bytes are readable.
    unsafe fn load_halves(self, from: *const u8) -> Self::V;
    /// The values of 16 signed bytes.
    ///
    /// # Safety
    /// 16 bytes are readable.
    unsafe fn load_bytes(self, from: *const u8) -> Self::V;
    /// Bits of the nearest f16 numbers, of two the even one.
    fn halves(self, lanes: Self::V) -> [u16; LANES];
    /// Sum of all lanes, by halves.
    fn sum(self, lanes: Self::V) -> f32;
    /// Largest lane, by halves: lanes `i` and `i + n` as `max` of these.
    fn largest(self, lanes: Self::V) -> f32;
    /// The first lane.
    fn first(self, lanes: Self::V) -> f32;
    /// Asks for the line of an address, which may be anywhere, for the second cache: the first is full of what is
    /// worked on.
    fn prefetch(self, at: *const u8);

    /// Does the work in code that is compiled for the tier's instructions.
    fn call<W: Work>(self, work: W) -> W::Out;
}

/// What can be done on the lanes of any tier.
pub(super) trait Work {
    /// Its result.
    type Out;

    /// Does it. Implementations are always inlined, so that [`Lanes::call`] decides the instructions.
    fn run<S: Lanes>(self, s: S) -> Self::Out;
}
