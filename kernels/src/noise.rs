//! Gumbel noise that whoever knows the key can compute for any token: what tokens are drawn by.
//!
//! The token with the largest `x + g`, each `x` a log-probability up to a common constant and each `g` of a standard
//! Gumbel distribution of its own, is a draw from the distribution (Gumbel-max; Maddison, Tarlow, Minka, "A* Sampling",
//! NIPS 2014, section 2). Here `g` is a function of a key and the token, so a drafter that has the key ranks its
//! candidates by the noise that will decide (Gumbel coupling; Daliri, Musco, Suresh, <https://arxiv.org/abs/2408.07978>).
//!
//! The meaning, which every implementation has to the last bit:
//!
//! 1. *Bits.* 64 random bits of a token are two hashes of it, the upper half by words 0 and 1 of the key and the lower
//!    by words 2 and 3. The hash is a Weyl step and a mixer of two products (constants of Wellons' `hash-prospector`,
//!    bias 0.1 of 32 bits), with the second word of the key added between them: keys whose first words name the same
//!    hash a few tokens further part there. Words of a key are random, and not those of another key.
//! 2. *Noise.* With `v = (bits + 1/2) / 2^64`, rounded to f64, `g = -ln(-ln(1 - v))`: few bits, much noise.
//! 3. *Race.* Of the tokens with a score `x + g` the largest wins, the lowest id of equals.
//!
//! A hash costs about a cycle in vector code and a noise a hundred, so a race looks at the upper hash of every token
//! and computes the noise of those alone that may win by it: [`most`].

use crate::philox::philox4x32_10;

const WEYL: u32 = 0x9E37_79B9;
const MIX: [u32; 2] = [0x21F0_AAAD, 0xD35A_2D97];

/// The noise of one place of a text: a key of four independent random words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoiseKey(pub [u32; 4]);

impl NoiseKey {
    /// The noise that decides the token at `place` of a text, counted from 0, under a seed.
    pub const fn at(seed: u64, place: u64) -> Self {
        let counter = [place as u32, (place >> 32) as u32, 0, 0];
        Self(philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]))
    }

    /// The noise of a token.
    #[inline]
    pub fn gumbel(self, token: u32) -> f64 {
        gumbel(self.bits(token))
    }

    /// What the noise of a token multiplies its probability with, `e^g`.
    #[inline]
    pub fn odds(self, token: u32) -> f64 {
        1.0 / exponential(self.bits(token))
    }

    /// All bits of a token.
    #[inline]
    pub const fn bits(self, token: u32) -> u64 {
        let Self([_, _, c, d]) = self;
        (self.upper(token) as u64) << 32 | hash(token, c, d) as u64
    }

    /// The upper half of a token's bits.
    #[inline(always)]
    pub const fn upper(self, token: u32) -> u32 {
        let Self([a, b, _, _]) = self;
        hash(token, a, b)
    }
}

#[inline(always)]
const fn hash(token: u32, a: u32, b: u32) -> u32 {
    let x = token.wrapping_mul(WEYL).wrapping_add(a);
    let x = (x ^ x >> 16).wrapping_mul(MIX[0]);
    let x = (x ^ x >> 15).wrapping_add(b).wrapping_mul(MIX[1]);
    x ^ x >> 15
}

/// What no noise of a token with this upper half of bits exceeds.
///
/// With `z` leading zeros `v > 2^-(z + 1)`, and `-ln(1 - v) >= v`, so `g < (z + 1) ln 2`. Where all of the half are
/// zero the lower half decides. A millionth more stands for what rounding adds.
#[inline]
pub fn most(upper: u32) -> f64 {
    let zeros = if upper == 0 { 64 } else { upper.leading_zeros() };
    f64::from(zeros + 1) * std::f64::consts::LN_2 + 1e-6
}

/// [`most`] in f32, rounded up.
#[inline(always)]
pub(crate) fn most_of(upper: u32) -> f32 {
    // Above ln 2, and by enough for the sum of 65.
    const STEP: f32 = 0.693_148;
    let zeros = upper.leading_zeros();
    (zeros + 1 + if upper == 0 { 32 } else { 0 }) as f32 * STEP + 2e-6
}

/// The score of a logit without its noise: relative to the largest, in f64. Equal infinities have no difference.
#[inline(always)]
pub fn score(logit: f32, largest: f32, temperature: f64) -> f64 {
    if logit == largest { 0.0 } else { (f64::from(logit) - f64::from(largest)) / temperature }
}

/// The best of the tokens that were offered in ascending order of ids.
#[derive(Clone, Copy, Debug)]
pub struct Leader {
    token: Option<u32>,
    noisy: f64,
}

impl Leader {
    /// Before the first.
    pub const NONE: Self = Self { token: None, noisy: f64::NEG_INFINITY };

    /// The token, if one was offered that is worth a number.
    pub const fn token(self) -> Option<u32> {
        self.token
    }

    /// Its score with noise; negative infinity before the first.
    pub const fn noisy(self) -> f64 {
        self.noisy
    }

    /// Offers a token with its score, if `keeps` admits that; asked only where the token may win.
    #[inline(always)]
    pub fn offer(&mut self, token: u32, x: f64, key: NoiseKey, keeps: impl FnOnce(f64) -> bool) {
        // NaN never wins, and negative infinity need not: the largest logit scores 0.
        let may_win = x > f64::NEG_INFINITY && x + most(key.upper(token)) >= self.noisy;
        if may_win && keeps(x) {
            let noisy = x + key.gumbel(token);
            if noisy > self.noisy {
                *self = Self { token: Some(token), noisy };
            }
        }
    }
}

/// The noise of random bits: a standard Gumbel variate, from -3.7 to 45.1.
pub fn gumbel(bits: u64) -> f64 {
    -ln(exponential(bits))
}

/// The standard exponential variate of random bits, `-ln(1 - v)`.
fn exponential(bits: u64) -> f64 {
    // 2^-64; the half keeps v above 0, and below 1 where rounding would reach it.
    const UNIT: f64 = 1.0 / (1_u128 << 64) as f64;
    let v = ((bits as f64 + 0.5) * UNIT).min(1.0 - f64::EPSILON / 2.0);
    // Near 0, the logarithm of 1 - v is that of a number that has lost v's digits; the series has them.
    if v < 0.25 { -twice_atanh(-v / (2.0 - v)) } else { -ln(1.0 - v) }
}

/// `ln(x)` of a positive, normal number within 2 units in the last place of the larger of it and 1, in plain
/// arithmetic: the same bits everywhere.
fn ln(x: f64) -> f64 {
    /// Bits of 1, and of sqrt(1/2) as far as they tell mantissas apart.
    const ONE: u64 = 1023 << 52;
    const HALF_ROOT: u64 = 0x3FE6_A09E_0000_0000;
    /// ln 2 in two parts; the first has 21 trailing zero bits, so that its products with exponents are exact.
    const LN2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
    const LN2_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);
    let bits = x.to_bits().wrapping_sub(HALF_ROOT);
    let exponent = (bits as i64 >> 52) as f64;
    // Between sqrt(1/2) and sqrt(2).
    let m = f64::from_bits((bits & ((1 << 52) - 1)) + HALF_ROOT);
    debug_assert!(m.to_bits() < 2 * ONE);
    let f = m - 1.0;
    exponent * LN2_HIGH + (twice_atanh(f / (2.0 + f)) + exponent * LN2_LOW)
}

/// `2 atanh(s)`, which is `ln((1 + s) / (1 - s))`, for `|s| < 0.172` by its series.
#[inline]
fn twice_atanh(s: f64) -> f64 {
    const TERMS: [f64; 10] = [
        1.0 / 21.0,
        1.0 / 19.0,
        1.0 / 17.0,
        1.0 / 15.0,
        1.0 / 13.0,
        1.0 / 11.0,
        1.0 / 9.0,
        1.0 / 7.0,
        1.0 / 5.0,
        1.0 / 3.0,
    ];
    let square = s * s;
    let mut sum = 0.0;
    for term in TERMS {
        sum = (sum + term) * square;
    }
    2.0 * (s + s * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_and_place_has_a_block_of_its_own() {
        assert_eq!(NoiseKey::at(0, 0), NoiseKey([0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]));
        assert_eq!(NoiseKey::at(4 << 32 | 3, 2 << 32 | 1), NoiseKey(philox4x32_10([1, 2, 0, 0], [3, 4])));
    }

    #[test]
    fn logarithms_are_close_to_the_library() {
        let near_one = (-2000..2000).map(|i| 1.0 + f64::from(i) * 1.7e-4);
        let wide = (-660..60).map(|i| 1.093_f64.powi(i) * 1.000_1);
        for x in near_one.chain(wide) {
            let (got, want) = (ln(x), x.ln());
            assert!(
                (got - want).abs() <= 2.0 * f64::EPSILON * want.abs().max(1.0),
                "ln({x}) = {got}, expected {want}"
            );
        }
    }

    #[test]
    fn noise_is_close_to_its_definition_and_ends_are_finite() {
        let mut bits = 1_u64;
        for _ in 0..64 {
            for bits in [bits, bits.wrapping_mul(0x9E37_79B9_7F4A_7C15), !bits] {
                let v = (bits as f64 + 0.5) / 2_f64.powi(64);
                let want = -(-(-v.min(1.0 - f64::EPSILON / 2.0)).ln_1p()).ln();
                let got = gumbel(bits);
                assert!(
                    (got - want).abs() <= 4.0 * f64::EPSILON * want.abs().max(1.0),
                    "{bits:#x}: {got}, expected {want}"
                );
            }
            bits = bits << 1 | 1;
        }
        assert!(gumbel(0) < 45.1 && gumbel(u64::MAX) > -3.7, "{} {}", gumbel(0), gumbel(u64::MAX));
        assert!(gumbel(0).is_finite() && gumbel(u64::MAX).is_finite());
    }

    #[test]
    fn no_noise_exceeds_what_its_upper_half_allows() {
        for shift in 0..32 {
            for upper in [1_u32 << shift, u32::MAX >> shift, (1_u32 << shift).wrapping_sub(1)] {
                for lower in [0, 1, u32::MAX] {
                    let bits = u64::from(upper) << 32 | u64::from(lower);
                    assert!(gumbel(bits) < most(upper), "{bits:#x}: {} of {}", gumbel(bits), most(upper));
                    assert!(most(upper) < f64::from(most_of(upper)), "{upper:#x}");
                }
            }
        }
        assert!(most(u32::MAX) < 0.7);
    }

    /// Moments, and independence of neighbours among tokens, keys and bits. Four standard deviations each.
    #[test]
    fn hashes_of_tokens_and_keys_are_as_good_as_random() {
        let n = 1 << 16;
        let mut noise = 1_u64;
        let mut random = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (noise >> 32) as u32
        };
        let mut keys: Vec<[u32; 4]> = (0..6).map(|_| std::array::from_fn(|_| random())).collect();
        // The same tokens a place further, which the second word tells apart; and keys that no block gives twice.
        keys.push([keys[0][0].wrapping_add(WEYL), random(), keys[0][2].wrapping_sub(WEYL), random()]);
        keys.extend([[0, 0, 1, 1], [u32::MAX, u32::MAX, 0, 1]]);
        let unit = |x: u32| f64::from(x) / 2_f64.powi(32) - 0.5;
        let correlation = |a: &dyn Fn(u32) -> f64, b: &dyn Fn(u32) -> f64| {
            (0..n).map(|i| a(i) * b(i)).sum::<f64>() / f64::from(n) * 12.0
        };
        let limit = 4.0 / f64::from(n).sqrt();
        for (place, key) in keys.iter().copied().map(NoiseKey).enumerate() {
            let upper = |token: u32| unit(key.upper(token));
            let lower = |token: u32| unit(key.bits(token) as u32);
            let mean = (0..n).map(upper).sum::<f64>() / f64::from(n) * 12_f64.sqrt();
            assert!(mean.abs() < limit, "key {place}: {mean}");
            for lag in [1, 2, 3, 8, 64, 4096] {
                let c = correlation(&upper, &|token| upper(token + lag));
                assert!(c.abs() < limit, "key {place}, lag {lag}: {c}");
            }
            let c = correlation(&upper, &lower);
            assert!(c.abs() < limit || place > 6, "halves of key {place}: {c}");
            for (other, key) in keys.iter().copied().map(NoiseKey).enumerate().take(7).skip(place + 1) {
                for lag in 0..3 {
                    let c = correlation(&upper, &|token| unit(key.upper(token + lag)));
                    assert!(c.abs() < limit, "keys {place} and {other}, lag {lag}: {c}");
                }
            }
            // Every output bit flips with every input bit about half of the time.
            for bit in 0..17 {
                let mut flips = [0_u32; 32];
                for token in 0..4096 {
                    let changed = key.upper(token) ^ key.upper(token ^ 1 << bit);
                    for (i, flips) in flips.iter_mut().enumerate() {
                        *flips += changed >> i & 1;
                    }
                }
                let worst = flips.iter().map(|f| (f64::from(*f) / 4096.0 - 0.5).abs()).fold(0.0, f64::max);
                assert!(worst < 0.06, "key {place}, bit {bit}: {worst}");
            }
        }
    }
}
