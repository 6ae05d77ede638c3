//! Exponentials of numbers that are not positive, in plain arithmetic: the same bits on every platform, in a vector
//! loop or alone.
//!
//! `exp(x) = 2^n exp(r)` with `n` the integer nearest to `x / ln 2`, and a Taylor polynomial for `|r| <= ln(2) / 2`. No
//! branch but a final selection, so that loops over logits vectorise.

/// Terms 1 / n! from the highest power down.
const TAYLOR: [f64; 14] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// `exp(x)` for `x <= 0` within 2 units in the last place; exactly 1 at 0, and exactly 0 below -708 and for NaN.
#[inline]
pub(super) fn exp_nonpositive(x: f64) -> f64 {
    /// Adding it leaves the nearest integer in the low bits of the sum.
    const ROUND: f64 = 1.5 * (1_u64 << 52) as f64;
    /// ln 2 in two parts; the first has 21 trailing zero bits, so that its products with `n` are exact.
    const LN2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
    const LN2_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);
    let rounded = x * std::f64::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut sum = TAYLOR[0];
    for term in &TAYLOR[1..] {
        sum = sum * r + term;
    }
    let scale = f64::from_bits(rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(1023) << 52);
    if x >= -708.0 { sum * scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_library() {
        for i in 0..=708_000 {
            let x = -f64::from(i) / 1000.0;
            let (got, want) = (exp_nonpositive(x), x.exp());
            assert!((got - want).abs() <= 2.0 * f64::EPSILON * want, "exp({x}) = {got}, expected {want}");
        }
    }

    #[test]
    fn ends_and_nan() {
        for x in [-708.1, -1e9, -1e300, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(exp_nonpositive(x), 0.0);
        }
        assert_eq!((exp_nonpositive(0.0), exp_nonpositive(-0.0)), (1.0, 1.0));
    }

    #[test]
    fn a_vector_loop_gives_the_bits_of_a_lone_call() {
        let inputs: Vec<f64> = (0..1003).map(|i| -f64::from(i) * 0.731).collect();
        let mut looped = vec![0.0; inputs.len()];
        for (y, x) in looped.iter_mut().zip(&inputs) {
            *y = exp_nonpositive(*x);
        }
        for (y, x) in looped.iter().zip(&inputs) {
            assert_eq!(y.to_bits(), exp_nonpositive(std::hint::black_box(*x)).to_bits());
        }
    }
}
