//! Lanes in an array: the portable tier, and on any processor the arithmetic of the others.

use super::{LANES, LaneOps, Lanes, Single, Work};
use crate::format::f16_to_f32;

/// Plain Rust.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Portable;

type Array = [f32; LANES];

/// An array by its lanes: a loop, which vectorises, where `std::array::from_fn` would call for every lane.
#[inline(always)]
fn lanes(lane: impl Fn(usize) -> f32) -> Array {
    let mut lanes = [0.0; LANES];
    for (i, to) in lanes.iter_mut().enumerate() {
        *to = lane(i);
    }
    lanes
}

impl LaneOps for Portable {
    type V = Array;

    #[inline(always)]
    fn splat(self, x: f32) -> Array {
        [x; LANES]
    }

    inlined! {
        fn add(self, a: Array, b: Array) -> Array = lanes(|i| a[i] + b[i]);
        fn sub(self, a: Array, b: Array) -> Array = lanes(|i| a[i] - b[i]);
        fn mul(self, a: Array, b: Array) -> Array = lanes(|i| a[i] * b[i]);
        fn div(self, a: Array, b: Array) -> Array = lanes(|i| a[i] / b[i]);
        fn fused(self, a: Array, b: Array, c: Array) -> Array = lanes(|i| Single.fused(a[i], b[i], c[i]));
        fn fused_minus(self, a: Array, b: Array, c: Array) -> Array =
            lanes(|i| Single.fused_minus(a[i], b[i], c[i]));
        fn max(self, a: Array, b: Array) -> Array = lanes(|i| Single.max(a[i], b[i]));
        fn min(self, a: Array, b: Array) -> Array = lanes(|i| Single.min(a[i], b[i]));
        fn zero_below(self, x: Array, limit: Array, value: Array) -> Array =
            lanes(|i| Single.zero_below(x[i], limit[i], value[i]));
        fn power_of_two(self, n: Array) -> Array = lanes(|i| Single.power_of_two(n[i]));
    }
}

impl Lanes for Portable {
    // A vector takes four of the sixteen registers of SSE2: two leave room for the operands of a product.
    const SUMS: usize = 2;
    const UNITS: usize = 2;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Array {
        // SAFETY: promised by the caller.
        unsafe { from.cast::<Array>().read() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, lanes: Array) {
        // SAFETY: promised by the caller.
        unsafe { to.cast::<Array>().write(lanes) }
    }

    #[inline(always)]
    fn load_part(self, x: &[f32], at: usize) -> Array {
        let x = &x[at.min(x.len())..];
        match x.first_chunk::<LANES>() {
            Some(all) => *all,
            None => lanes(|i| if i < x.len() { x[i] } else { 0.0 }),
        }
    }

    #[inline(always)]
    fn store_part(self, x: &mut [f32], at: usize, lanes: Array) {
        let at = at.min(x.len());
        let x = &mut x[at..];
        match x.first_chunk_mut::<LANES>() {
            Some(all) => *all = lanes,
            None => x.iter_mut().zip(lanes).for_each(|(x, lane)| *x = lane),
        }
    }

    #[inline(always)]
    unsafe fn load_halves(self, from: *const u8) -> Array {
        // SAFETY: promised by the caller.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        lanes(|i| f16_to_f32(bits[i]))
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> Array {
        // SAFETY: promised by the caller.
        let bytes = unsafe { from.cast::<[i8; LANES]>().read() };
        lanes(|i| f32::from(bytes[i]))
    }

    #[inline(always)]
    fn sum(self, lanes: Array) -> f32 {
        let mut lanes = lanes;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    }

    #[inline(always)]
    fn largest(self, lanes: Array) -> f32 {
        let mut lanes = lanes;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] = Single.max(lanes[i], lanes[i + half]);
            }
        }
        lanes[0]
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        let _ = at;
    }

    inlined! {
        fn halves(self, lanes: Array) -> [u16; LANES] = lanes.map(|lane| half::f16::from_f32(lane).to_bits());
        fn first(self, lanes: Array) -> f32 = lanes[0];
    }
    #[inline(never)]
    fn call<W: Work>(self, work: W) -> W::Out {
        work.run(self)
    }
}
