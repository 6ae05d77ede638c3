//! The logarithm of a sum of weights, in plain arithmetic: the same bits on every tier and on a GPU.
//!
//! `ln(x) = e ln 2 + 2 atanh((m - 1) / (m + 1))` with `x = 2^e m` and `m` between `1 / sqrt 2` and `sqrt 2`, in f64
//! with products and sums rounded apart. It is taken once for a row, so that its cost is nothing.

/// `1 / (2 i + 1)` from the highest power down. `|s|` is below 0.172, so the first term that is left out is below
/// 1e-15.
const ATANH: [f64; 9] =
    [1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];

/// `ln(x)` of a positive, normal, finite number, rounded once: a sum of weights, of which the largest is 1, is none
/// other.
pub fn ln_positive(x: f32) -> f32 {
    debug_assert!(x.is_normal() && x > 0.0, "{x} is a sum of weights");
    let bits = x.to_bits();
    let mut exponent = f64::from((bits >> 23) & 0xff) - 127.0;
    let mut mantissa = f64::from(f32::from_bits((bits & 0x007f_ffff) | 0x3f80_0000));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = ATANH[0];
    for term in &ATANH[1..] {
        sum = sum * square + term;
    }
    (exponent * std::f64::consts::LN_2 + (s + s) * sum) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_logarithm_rounded_once() {
        let mut x = 1.0_f32;
        let mut rounded_otherwise = 0;
        while x < 1e7 {
            let (found, exact) = (ln_positive(x), f64::from(x).ln());
            let error = (f64::from(found) - exact).abs();
            assert!(
                error <= 0.500_01 * f64::from(f32::EPSILON) * exact.max(1e-30),
                "ln({x}) = {found}, not {exact}"
            );
            rounded_otherwise += u32::from(found != exact as f32);
            x = f32::from_bits(x.to_bits() + 131);
        }
        assert!(rounded_otherwise <= 2, "{rounded_otherwise} are not the nearest");
    }

    #[test]
    fn ends() {
        assert_eq!(ln_positive(1.0).to_bits(), 0);
        assert_eq!(ln_positive(f32::MAX), f32::MAX.ln());
        assert_eq!(ln_positive(0.5), -std::f32::consts::LN_2);
    }
}
