//! The exponential and what is made of it, as one sequence of operations.
//!
//! Polynomial and parts of ln 2 are those of `expf` in S. Moshier's Cephes library
//! (<https://www.netlib.org/cephes/>, single precision).

use super::LaneOps;
use crate::Nonlinearity;
use std::f32::consts::LOG2_E;

/// `1.5 * 2^23`. Adding it rounds to the nearest integer, which is left in the low bits of the sum: there the last
/// place of an f32 is 1, for negative integers as well.
const ROUND: f32 = 12_582_912.0;

/// Below it, the exponential is 0: no result and no factor is subnormal, since the least normal f32 is `e^-87.34`.
const LOWEST: f32 = -87.0;

/// From here on the exponential is infinite: the power of two is `2^128`, which an f32 does not hold.
const HIGHEST: f32 = 88.5;

/// `e^x` within 2 units in the last place: 0 below -87, infinite above 88.376, NaN for NaN.
#[inline(always)]
pub(in crate::cpu) fn exp<S: LaneOps>(s: S, x: S::V) -> S::V {
    let limited = s.min(s.splat(HIGHEST), x);
    let shifted = s.fused(limited, s.splat(LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    // ln 2 in two parts, so that n times the first is exact.
    let r = s.fused_minus(n, s.splat(0.693_359_4), limited);
    let r = s.fused_minus(n, s.splat(-2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    p = s.fused(p, r, s.splat(1.398_2e-3));
    p = s.fused(p, r, s.splat(8.333_452e-3));
    p = s.fused(p, r, s.splat(4.166_579_6e-2));
    p = s.fused(p, r, s.splat(1.666_666_5e-1));
    p = s.fused(p, r, s.splat(0.5));
    let p = s.fused(p, s.mul(r, r), s.add(r, s.splat(1.0)));
    s.zero_below(x, s.splat(LOWEST), s.mul(p, s.power_of_two(shifted)))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(in crate::cpu) fn silu<S: LaneOps>(s: S, x: S::V) -> S::V {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x))))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(in crate::cpu) fn sigmoid<S: LaneOps>(s: S, x: S::V) -> S::V {
    s.div(s.splat(1.0), s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x))))
}

/// `function(gate) * up`, as the function's definition says.
#[inline(always)]
pub(in crate::cpu) fn gated<S: LaneOps>(s: S, function: Nonlinearity, gate: S::V, up: S::V) -> S::V {
    match function {
        Nonlinearity::Silu => s.mul(silu(s, gate), up),
        Nonlinearity::Sigmoid => s.mul(sigmoid(s, gate), up),
        Nonlinearity::GeluTanh => {
            let square = s.mul(gate, gate);
            let cubic = s.fused(s.splat(Nonlinearity::CUBIC as f32), square, s.splat(1.0));
            let argument = s.mul(s.mul(s.splat(-Nonlinearity::SLOPE as f32), gate), cubic);
            s.mul(s.div(gate, s.add(s.splat(1.0), exp(s, argument))), up)
        }
        Nonlinearity::ClampedSilu => {
            let bound = Nonlinearity::CLAMPED_BOUND as f32;
            let [least, most, one] = [-bound, bound, 1.0].map(|x| s.splat(x));
            // What is no number stays none: bounds give their second operand then.
            let x = s.min(most, gate);
            let argument = s.mul(s.splat(-Nonlinearity::CLAMPED_SLOPE as f32), x);
            let factor = s.add(s.max(least, s.min(most, up)), one);
            s.mul(s.div(x, s.add(one, exp(s, argument))), factor)
        }
    }
}

/// `cap * tanh(x / cap)`, as `cap - 2 cap / (1 + e^(2 x / cap))`: off by a few units in the last place of the cap.
#[inline(always)]
pub(in crate::cpu) fn softcap<S: LaneOps>(s: S, cap: f32, x: S::V) -> S::V {
    let grown = exp(s, s.mul(x, s.splat(2.0 / cap)));
    let rest = s.div(s.splat(2.0 * cap), s.add(s.splat(1.0), grown));
    s.sub(s.splat(cap), rest)
}
