//! Exponential without branches, and the functions made of it.

use std::f32::consts::LOG2_E;

/// `e^x` within 2 units in the last place, for `x` clamped to -87..=88: powers of two stay normal numbers.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    // Adding 1.5 * 2^23 rounds to the nearest integer.
    let shifted = x * LOG2_E + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    // ln 2 in two parts, so that n times the first is exact.
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let p = p * (r * r) + r + 1.0;
    p * f32::from_bits(((n as i32 + 127) << 23).cast_unsigned())
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for i in -87_000..88_000 {
            let x = i as f32 / 1000.0;
            let exact = f64::from(x).exp();
            assert!(
                (f64::from(exp(x)) - exact).abs() <= exact * 2.4e-7,
                "exp({x}) = {}, not {exact}",
                exp(x)
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 1.7e-38 && exp(f32::NAN).is_nan() && exp(1e9).is_finite());
    }
}
