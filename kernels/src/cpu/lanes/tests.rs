//! Every lane operation of every tier here: equal to plain Rust to the last bit, and the exponential to its accuracy.

use super::{LANES, Lanes, Portable, Single, Work, exp, gated, single::fused};
use crate::Nonlinearity;
#[cfg(target_arch = "aarch64")]
use crate::cpu::Neon;
#[cfg(target_arch = "x86_64")]
use crate::cpu::{Avx2, Avx512};
use crate::testing::Noise;

/// Runs an operation on every tier that this processor has: all must give the bits of the portable one.
fn on_all<W: Work<Out: PartialEq + std::fmt::Debug> + Clone>(work: W) -> W::Out {
    let expected = Portable.call(work.clone());
    #[cfg(target_arch = "aarch64")]
    if let Some(neon) = Neon::detect() {
        assert_eq!(neon.call(work), expected);
    }
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(avx2) = Avx2::detect() {
            assert_eq!(avx2.call(work.clone()), expected);
        }
        if let Some(avx512) = Avx512::detect() {
            assert_eq!(avx512.call(work), expected);
        }
    }
    expected
}

fn stored<S: Lanes>(s: S, lanes: S::V) -> [u32; LANES] {
    let mut out = [0.0; LANES];
    s.store_part(&mut out, 0, lanes);
    out.map(f32::to_bits)
}

/// Every operation of [`LaneOps`] on three vectors.
#[derive(Clone)]
struct Each([[f32; LANES]; 3]);

impl Work for Each {
    type Out = Vec<[u32; LANES]>;

    fn run<S: Lanes>(self, s: S) -> Self::Out {
        let [a, b, c] = self.0.map(|x| s.load_part(&x, 0));
        let results = [
            s.add(a, b),
            s.sub(a, b),
            s.mul(a, b),
            s.div(a, b),
            s.fused(a, b, c),
            s.fused_minus(a, b, c),
            s.max(a, b),
            s.min(a, b),
            s.zero_below(a, b, c),
        ];
        let mut results: Vec<_> = results.into_iter().map(|lanes| stored(s, lanes)).collect();
        results.push(s.halves(a).map(u32::from));
        results.push(
            [s.sum(a), s.largest(a)].repeat(8).try_into().map(|x: [f32; LANES]| x.map(f32::to_bits)).unwrap(),
        );
        results
    }
}

/// Any finite number, subnormal ones and zeros among them.
fn any(noise: &mut Noise) -> f32 {
    let x = f32::from_bits(noise.bits() as u32);
    let x = if x.is_finite() { x } else { 0.0 };
    match noise.below(4) {
        0 => noise.value(),
        1 => x.clamp(-1e-37, 1e-37),
        _ => x,
    }
}

#[test]
fn operations_are_those_of_plain_rust() {
    let mut noise = Noise::new(1);
    for _ in 0..20_000 {
        let mut operands = [[(); LANES]; 3].map(|lanes| lanes.map(|()| any(&mut noise)));
        if noise.below(2) == 0 {
            // Close to what the product cancels.
            let product = |i: usize| operands[0][i] * operands[1][i];
            operands[2] = std::array::from_fn(|i| -product(i));
            operands[2].iter_mut().for_each(|c| *c = if c.is_finite() { *c } else { 1.0 });
        }
        let results = on_all(Each(operands));
        let [a, b, c] = operands;
        for i in 0..LANES {
            assert_eq!(results[4][i], a[i].mul_add(b[i], c[i]).to_bits(), "{} {} {}", a[i], b[i], c[i]);
            assert_eq!(results[5][i], (-a[i]).mul_add(b[i], c[i]).to_bits());
        }
    }
}

#[test]
fn fused_products_round_once_without_the_instruction() {
    let mut noise = Noise::new(2);
    for _ in 0..2_000_000 {
        let (a, b) = (any(&mut noise), any(&mut noise));
        // Near the product, and half a unit away from it, where two roundings differ from one.
        let c = match noise.below(3) {
            0 => any(&mut noise),
            1 => -(a * b) * (1.0 + noise.value() * 1e-6),
            _ => f32::from_bits(
                (a * b).to_bits().wrapping_add((noise.bits() as u32 % 3) << (20 + noise.below(8))),
            ),
        };
        let (found, exact) = (fused(a, b, c), a.mul_add(b, c));
        assert!(
            found.to_bits() == exact.to_bits() || exact.is_nan(),
            "{a:e} * {b:e} + {c:e} = {found:e}, not {exact:e}"
        );
    }
    for (a, b, c) in
        [(f32::INFINITY, 1.0, 1.0), (f32::MAX, 2.0, f32::NEG_INFINITY), (f32::MAX, f32::MAX, 0.0)]
    {
        assert_eq!(fused(a, b, c), a.mul_add(b, c));
    }
    assert!(fused(f32::NAN, 1.0, 1.0).is_nan() && fused(f32::INFINITY, 1.0, f32::NEG_INFINITY).is_nan());
}

#[derive(Clone)]
struct Exp([f32; LANES]);

impl Work for Exp {
    type Out = [[u32; LANES]; 2];

    fn run<S: Lanes>(self, s: S) -> Self::Out {
        let x = s.load_part(&self.0, 0);
        [stored(s, exp(s, x)), stored(s, gated(s, Nonlinearity::Silu, x, s.splat(1.0)))]
    }
}

#[test]
fn exp_is_within_two_units_in_the_last_place() {
    for i in -5_437..5_523 {
        let x: [f32; LANES] = std::array::from_fn(|lane| (i * 16 + lane as i32) as f32 / 1000.0);
        for (x, found) in x.iter().zip(on_all(Exp(x))[0].map(f32::from_bits)) {
            let exact = f64::from(*x).exp();
            assert!((f64::from(found) - exact).abs() <= exact * 2.4e-7, "exp({x}) = {found}, not {exact}");
        }
    }
}

#[test]
fn exp_and_silu_end_as_they_should() {
    let mut x = [0.0; LANES];
    let edges = [0.0, -0.0, f32::NEG_INFINITY, 1e9, f32::INFINITY, -87.1, -1e30, 88.4, 88.37, -87.0];
    x[..edges.len()].copy_from_slice(&edges);
    let [exp, silu] = on_all(Exp(x)).map(|bits| bits.map(f32::from_bits));
    assert_eq!(exp[..8], [1.0, 1.0, 0.0, f32::INFINITY, f32::INFINITY, 0.0, 0.0, f32::INFINITY]);
    assert!(exp[8].is_finite() && exp[9].is_normal());
    assert!(silu[3] == 1e9 && silu[4] == f32::INFINITY && silu[6] == 0.0);
    assert!(super::exp(Single, f32::NAN).is_nan());
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = Avx512::detect() {
        let nan = avx512.call(Exp([f32::NAN; LANES]));
        assert!(nan.iter().flatten().all(|bits| f32::from_bits(*bits).is_nan()));
    }
}

/// Copies a slice by parts, and reads numbers of other formats.
#[derive(Clone)]
struct Memory {
    x: Vec<f32>,
    bytes: [u8; 2 * LANES],
}

impl Work for Memory {
    type Out = (Vec<u32>, [u32; LANES], [u32; LANES]);

    fn run<S: Lanes>(self, s: S) -> Self::Out {
        let mut out = vec![-1.0; self.x.len()];
        for at in (0..self.x.len() + 20).step_by(LANES) {
            s.store_part(&mut out, at, s.load_part(&self.x, at));
        }
        // SAFETY: there are 32 bytes.
        let [halves, bytes] =
            unsafe { [s.load_halves(self.bytes.as_ptr()), s.load_bytes(self.bytes.as_ptr())] };
        (out.into_iter().map(f32::to_bits).collect(), stored(s, halves), stored(s, bytes))
    }
}

#[test]
fn memory_is_read_and_written_as_it_is() {
    let mut noise = Noise::new(3);
    for len in 0..70 {
        let x = noise.values(len);
        let mut bytes = [(); 2 * LANES].map(|()| noise.bits() as u8);
        for i in (1..2 * LANES).step_by(2) {
            // Not infinite, not NaN.
            bytes[i] &= 0xbf;
        }
        let (copied, halves, numbers) = on_all(Memory { x: x.clone(), bytes });
        assert_eq!(copied, crate::testing::bits(&x));
        for i in 0..LANES {
            let half = half::f16::from_bits(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
            assert_eq!(f32::from_bits(halves[i]), half.to_f32());
            assert_eq!(f32::from_bits(numbers[i]), f32::from(bytes[i].cast_signed()));
        }
    }
}
