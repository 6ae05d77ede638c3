//! The exponential of numbers that are not positive, in plain arithmetic: the same bits on every tier, in a vector loop
//! or alone.
//!
//! `exp(x) = 2^n exp(r)` with `n` the integer nearest to `x / ln 2`, and a Taylor polynomial for `|r| <= ln(2) / 2`. No
//! branch but a final selection, so that loops over logits vectorise.

/// Terms 1 / n! from the highest power down. The first that is left out, `r^8 / 8!`, is below 6e-9, a tenth of a
/// rounding.
const TAYLOR: [f32; 8] = [1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];

/// `exp(x)` for `x <= 0` within 2 units in the last place; exactly 1 at 0, and exactly 0 below -87 and for NaN.
#[inline(always)]
pub fn exp_nonpositive(x: f32) -> f32 {
    /// Adding it leaves the nearest integer in the low bits of the sum.
    const ROUND: f32 = 1.5 * (1_u32 << 23) as f32;
    /// ln 2 in two parts; products of the first with `n` are exact.
    const LN2_HIGH: f32 = f32::from_bits(0x3F31_7200);
    const LN2_LOW: f32 = f32::from_bits(0x35BF_BE8E);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut sum = TAYLOR[0];
    for term in &TAYLOR[1..] {
        sum = sum * r + term;
    }
    let scale = f32::from_bits(rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    if x >= -87.0 { sum * scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for i in 0..=870_000 {
            let x = -(i as f32) / 10_000.0;
            let (found, exact) = (f64::from(exp_nonpositive(x)), f64::from(x).exp());
            assert!(
                (found - exact).abs() <= 2.0 * f64::from(f32::EPSILON) * exact,
                "exp({x}) = {found}, not {exact}"
            );
        }
    }

    #[test]
    fn ends_and_nan() {
        for x in [-87.1, -1e9, -1e38, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(exp_nonpositive(x), 0.0);
        }
        assert_eq!((exp_nonpositive(0.0), exp_nonpositive(-0.0)), (1.0, 1.0));
    }

    #[test]
    fn a_vector_loop_gives_the_bits_of_a_lone_call() {
        let inputs: Vec<f32> = (0..1003).map(|i| -(i as f32) * 0.0931).collect();
        let mut looped = vec![0.0; inputs.len()];
        for (y, x) in looped.iter_mut().zip(&inputs) {
            *y = exp_nonpositive(*x);
        }
        for (y, x) in looped.iter().zip(&inputs) {
            assert_eq!(y.to_bits(), exp_nonpositive(std::hint::black_box(*x)).to_bits());
        }
    }
}
