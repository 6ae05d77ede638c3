//! Vectors in memory: the portable tier, and what the instructions of the others mean.

use super::{ByteProducts, Vector};
use crate::{
    cpu::lanes::{LaneOps, Single},
    format::Unit,
};

/// `N` outputs, with sums of 32 bits; up to `FEW` rows have kernels of their own.
///
/// Unit tests call the longer operations: inlined into the kernels of two tile widths of every format, they'd be half
/// of the tests' build.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Array<const N: usize, const FEW: usize>;

/// Four bytes of each output; numbers of 16 bits lie in pairs of them.
type Four = [u8; 4];

fn pair(four: Four) -> [i32; 2] {
    [0, 2].map(|i| i32::from(i16::from_le_bytes([four[i], four[i + 1]])))
}

fn shifted(four: Four, shift: impl Fn(u16) -> u16) -> Four {
    let [a, b] = [0, 2].map(|i| shift(u16::from_le_bytes([four[i], four[i + 1]])).to_le_bytes());
    [a[0], a[1], b[0], b[1]]
}

impl<const N: usize, const FEW: usize> Vector for Array<N, FEW> {
    const LANES: usize = N;
    const PRODUCTS: ByteProducts = ByteProducts::Unsigned;
    const FEW: [usize; 2] = [FEW; 2];
    type Bytes = [Four; N];
    type Sum = [i32; N];
    type Ints = [i32; N];
    type Scale = [i32; N];
    type Floats = [f32; N];

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    unsafe fn bytes(self, at: *const u8) -> [Four; N] {
        // SAFETY: promised by the caller, here and below.
        unsafe { at.cast::<[Four; N]>().read_unaligned() }
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn and(self, mut bytes: [Four; N], mask: u8) -> [Four; N] {
        bytes.as_flattened_mut().iter_mut().for_each(|byte| *byte &= mask);
        bytes
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn or(self, mut a: [Four; N], b: [Four; N]) -> [Four; N] {
        a.as_flattened_mut().iter_mut().zip(b.as_flattened()).for_each(|(a, b)| *a |= b);
        a
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn minus(self, mut bytes: [Four; N], offset: u8) -> [Four; N] {
        bytes.as_flattened_mut().iter_mut().for_each(|byte| *byte = byte.wrapping_sub(offset));
        bytes
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn up<const BITS: i32>(self, mut bytes: [Four; N]) -> [Four; N] {
        bytes.iter_mut().for_each(|four| *four = shifted(*four, |word| word << BITS));
        bytes
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn down<const BITS: i32>(self, mut bytes: [Four; N]) -> [Four; N] {
        bytes.iter_mut().for_each(|four| *four = shifted(*four, |word| word >> BITS));
        bytes
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn look_up(self, table: &[u8; 16], mut bytes: [Four; N]) -> [Four; N] {
        bytes.as_flattened_mut().iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
        bytes
    }

    #[inline(always)]
    fn no_sum(self) -> [i32; N] {
        [0; N]
    }

    #[inline(always)]
    unsafe fn start(self, at: *const u8) -> [i32; N] {
        // SAFETY: see `bytes`.
        [unsafe { at.cast::<i32>().read_unaligned() }; N]
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    unsafe fn dot(self, mut sum: [i32; N], codes: [Four; N], x: *const u8) -> [i32; N] {
        // SAFETY: see `bytes`.
        let x = unsafe { x.cast::<[i8; 4]>().read() };
        for (sum, four) in sum.iter_mut().zip(codes) {
            for (code, x) in four.into_iter().zip(x) {
                *sum += i32::from(i16::from(code) * i16::from(x));
            }
        }
        sum
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn scaled(self, mut sum: [i32; N], scale: [i32; N]) -> [i32; N] {
        sum.iter_mut().zip(scale).for_each(|(sum, scale)| *sum *= scale);
        sum
    }

    #[inline(always)]
    fn no_ints(self) -> [i32; N] {
        [0; N]
    }

    #[inline(always)]
    fn add(self, mut a: [i32; N], b: [i32; N]) -> [i32; N] {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    }

    #[inline(always)]
    fn magnitudes(self, mut bytes: [Four; N]) -> [Four; N] {
        bytes.as_flattened_mut().iter_mut().for_each(|byte| *byte = byte.cast_signed().unsigned_abs());
        bytes
    }

    /// Sums have 32 bits here anyway.
    #[inline(always)]
    unsafe fn dot_signed(self, _: [i32; N], _: [[Four; N]; 2], _: *const u8) -> [i32; N] {
        unreachable!("bytes are unsigned")
    }

    #[inline(always)]
    unsafe fn unsigned(self, at: *const u8) -> [i32; N] {
        // SAFETY: see `bytes`.
        unsafe { at.cast::<[u8; N]>().read() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn signed(self, at: *const u8) -> [i32; N] {
        // SAFETY: see `bytes`.
        unsafe { at.cast::<[i8; N]>().read() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn low_nibbles(self, at: *const u8) -> [i32; N] {
        // SAFETY: see `bytes`.
        unsafe { self.unsigned(at) }.map(|byte| byte & 15)
    }

    #[inline(always)]
    unsafe fn pairs(self, at: *const u8) -> [Four; N] {
        // SAFETY: see `bytes`.
        unsafe { at.cast::<[[u8; 2]; N]>().read() }.map(|[a, b]| [a, 0, b, 0])
    }

    #[inline(always)]
    unsafe fn high_nibbles(self, first: *const u8, second: *const u8) -> [Four; N] {
        let mut pairs = [[0; 4]; N];
        for (n, pair) in pairs.iter_mut().enumerate() {
            // SAFETY: see `bytes`.
            unsafe { (pair[0], pair[2]) = (*first.add(n) >> 4, *second.add(n) >> 4) };
        }
        pairs
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    unsafe fn add_pairs(self, mut ints: [i32; N], pairs: [Four; N], x: *const u8) -> [i32; N] {
        // SAFETY: see `bytes`.
        let x = pair(unsafe { x.cast::<Four>().read() });
        for (int, four) in ints.iter_mut().zip(pairs) {
            let [a, b] = pair(four);
            *int += a * x[0] + b * x[1];
        }
        ints
    }

    #[inline(always)]
    fn encode(self, values: &[f32; 32], factor: f32, to: &mut [u8; 32]) -> [[i16; 2]; 2] {
        // Adding it to a number of at most 22 bits leaves the nearest integer in the low bits.
        const TO_INTEGER: f32 = 12_582_912.0;
        let mut sums = [[0; 2]; 2];
        for (i, (value, to)) in values.iter().zip(to).enumerate() {
            let code = (value * factor + TO_INTEGER).to_bits() as u8;
            *to = code;
            sums[i / 16][i / 2 % 2] += i16::from(code.cast_signed());
        }
        sums
    }

    #[inline(always)]
    fn zero(self) -> [f32; N] {
        [0.0; N]
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    unsafe fn numbers(self, unit: Unit, at: *const u8) -> [f32; N] {
        // SAFETY: see `bytes`.
        let bits = unsafe { at.cast::<[u16; N]>().read_unaligned() };
        bits.map(|bits| unit.value(bits))
    }

    #[inline(always)]
    unsafe fn splat(self, at: *const u8) -> [f32; N] {
        // SAFETY: see `bytes`.
        [unsafe { at.cast::<f32>().read_unaligned() }; N]
    }

    #[inline(always)]
    fn sum(self, mut a: [f32; N], b: [f32; N]) -> [f32; N] {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    }

    #[inline(always)]
    fn product(self, mut a: [f32; N], b: [f32; N]) -> [f32; N] {
        a.iter_mut().zip(b).for_each(|(a, b)| *a *= b);
        a
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn fma(self, a: [f32; N], b: [f32; N], mut c: [f32; N]) -> [f32; N] {
        for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
            *c = Single.fused(a, b, *c);
        }
        c
    }

    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> [f32; N] {
        // SAFETY: see `bytes`.
        unsafe { at.cast::<[f32; N]>().read() }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, floats: [f32; N]) {
        // SAFETY: see `bytes`.
        unsafe { at.cast::<[f32; N]>().write(floats) }
    }

    #[inline(always)]
    unsafe fn load_ints(self, at: *const i32) -> [i32; N] {
        // SAFETY: see `bytes`.
        unsafe { at.cast::<[i32; N]>().read() }
    }

    #[inline(always)]
    unsafe fn store_ints(self, at: *mut i32, ints: [i32; N]) {
        // SAFETY: see `bytes`.
        unsafe { at.cast::<[i32; N]>().write(ints) }
    }

    #[cfg_attr(not(test), inline(always))]
    #[cfg_attr(test, inline(never))]
    fn four_floats(self, bytes: [Four; N]) -> [[f32; N]; 4] {
        [0, 1, 2, 3].map(|i| bytes.map(|four| f32::from(four[i].cast_signed())))
    }

    inlined! {
        fn total(self, sum: [i32; N]) -> [i32; N] = sum;
        fn times(self, a: [i32; N], b: [i32; N]) -> [i32; N] = self.scaled(a, b);
        fn total_signed(self, sum: [i32; N]) -> [i32; N] = sum;
        fn scale(self, scale: [i32; N]) -> [i32; N] = scale;
        fn one_of_pair(self, pairs: [Four; N], i: usize) -> [i32; N] = pairs.map(|four| pair(four)[i]);
        fn floats(self, ints: [i32; N]) -> [f32; N] = ints.map(|int| int as f32);
        fn fnma(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] = self.fma(a.map(|a| -a), b, c);
    }
}

#[cfg(target_arch = "x86_64")]
impl super::TileVector for Array<16, 0> {
    type Factor = [i32; 16];
    type Biased = ([i32; 16], u8);

    unsafe fn store_bytes(self, at: *mut u8, bytes: [Four; 16]) {
        // SAFETY: promised by the caller.
        unsafe { at.cast::<[Four; 16]>().write(bytes) }
    }

    fn parts(self, scale: [i32; 16], bits: u32) -> [[i32; 16]; 2] {
        assert!(scale.iter().all(|scale| (0..1 << (2 * bits)).contains(scale)), "scales {scale:?}");
        [scale.map(|scale| scale & ((1 << bits) - 1)), scale.map(|scale| scale >> bits)]
    }

    fn products(self, bytes: [Four; 16], factor: [i32; 16]) -> [Four; 16] {
        let product = |byte, n| u8::try_from(i32::from(byte) * factor[n]).expect("products are below 256");
        std::array::from_fn(|n: usize| bytes[n].map(|byte| product(byte, n)))
    }

    fn biased(self, scale: [i32; 16], bias: u8) -> ([i32; 16], u8) {
        assert!(scale.iter().all(|scale| i8::try_from(*scale).is_ok()), "scales {scale:?}");
        (scale, bias)
    }

    fn long_products(self, bytes: [Four; 16], (scale, bias): ([i32; 16], u8)) -> [[Four; 16]; 2] {
        let (mut low, mut high) = (bytes, bytes);
        for n in 0..16 {
            for i in 0..4 {
                let product = (i32::from(bytes[n][i]) - i32::from(bias)) * scale[n];
                let product = i16::try_from(product).expect("products have 16 bits");
                [low[n][i], high[n][i]] = product.to_le_bytes();
            }
        }
        [low, high]
    }

    fn joined(self, low: [i32; 16], high: [i32; 16], bits: u32) -> [i32; 16] {
        std::array::from_fn(|n| low[n] + (high[n] << bits))
    }
}
