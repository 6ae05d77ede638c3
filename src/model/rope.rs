//! Rotary embedding of a model: its base, its scaling rule, and the frequencies they give.

use std::{f64::consts::TAU, sync::Arc};

use super::ModelError;
use crate::ir::{LongRope, RopeSpec};
use ygg_kernels::RopePairing;

/// How a model was stretched beyond the context it was first trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1's rule: long wavelengths are divided by `factor`, short ones kept, those between interpolated.
    Llama3 {
        /// Divisor of the longest wavelengths.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` count as long.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` count as short.
        high_freq_factor: f64,
        /// Context of the first training, in tokens.
        original_context: f64,
    },
    /// One divisor per pair, `[E / 2]`: how GGUF stores Llama 3.1's rule (`rope_freqs.weight`).
    PerPair(Arc<[f32]>),
    /// This share of the pairs turns, the first ones, with the frequencies that they have where all do.
    Proportional {
        /// Above 0 and at most 1.
        share: f64,
        /// The divisor of their frequencies.
        factor: f64,
    },
    /// YaRN (arXiv 2309.00071, section 3.2): long wavelengths are divided by `factor`, short ones kept, those between
    /// blended.
    Yarn {
        /// Divisor of the longest wavelengths.
        factor: f64,
        /// Context of the first training, in tokens.
        original_context: f64,
        /// Pairs that turn more often than this in the original context are kept.
        fast: f64,
        /// Pairs that turn less often than this are divided.
        slow: f64,
        /// Whether the pairs between which frequencies are blended are whole numbers.
        is_truncated: bool,
        /// What turned elements are multiplied with.
        magnitude: f64,
    },
    /// One divisor per pair, for contexts up to the original one and for longer ones: LongRoPE (arXiv 2402.13753).
    LongShort {
        /// Divisors in sessions with at most the original context.
        short: Arc<[f32]>,
        /// Divisors in sessions with longer contexts.
        long: Arc<[f32]>,
        /// Context of the first training, in tokens.
        original_context: f64,
        /// What turned elements are multiplied with.
        magnitude: f64,
    },
}

/// Where YaRN keeps frequencies if a file does not say.
pub(super) const YARN_FAST: f64 = 32.0;
/// Where YaRN divides frequencies if a file does not say.
pub(super) const YARN_SLOW: f64 = 1.0;

/// YaRN's magnitude for a context that is `factor` times the original one.
pub(super) fn yarn_magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// LongRoPE's magnitude for a context that is `factor` times the original one.
pub(super) fn long_magnitude(factor: f64, original_context: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original_context.ln()).sqrt() }
}

/// Rotary embedding as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// `theta`: pair `i` of `E / 2` turns by `base^(-2 i / E)` per position.
    pub base: f64,
    /// Scaling rule.
    pub scaling: RopeScaling,
}

impl RopeConfig {
    pub(super) fn check(&self, head_dim: usize, base_key: &str, scaling_key: &str) -> Result<(), ModelError> {
        if !(self.base.is_finite() && self.base > 1.0) {
            return Err(ModelError::invalid(
                format_args!("key `{base_key}`"),
                "a finite number above 1",
                self.base,
            ));
        }
        let what = format!("key `{scaling_key}`");
        let factor_fits = |factor: f64| factor.is_finite() && factor > 0.0;
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } if factor_fits(*factor) => Ok(()),
            RopeScaling::Linear { factor } => {
                Err(ModelError::invalid(what, "a finite factor above 0", factor))
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_context,
            } => {
                let fits = factor_fits(*factor) && factor_fits(*low) && factor_fits(*original_context);
                if fits && high.is_finite() && high > low {
                    return Ok(());
                }
                let found = format!(
                    "factor {factor}, low_freq_factor {low}, high_freq_factor {high}, \
                     original_max_position_embeddings {original_context}"
                );
                let expected = "finite numbers above 0 with low_freq_factor below high_freq_factor";
                Err(ModelError::invalid(what, expected, found))
            }
            RopeScaling::PerPair(factors) => check_divisors(factors, head_dim, what),
            RopeScaling::Proportional { share, factor } => {
                if *share > 0.0 && *share <= 1.0 && factor_fits(*factor) {
                    return Ok(());
                }
                let found = format!("a share of {share}, a factor of {factor}");
                Err(ModelError::invalid(what, "a share above 0 and at most 1, a factor above 0", found))
            }
            RopeScaling::Yarn { factor, original_context, fast, slow, is_truncated: _, magnitude } => {
                let all = [factor, original_context, fast, slow, magnitude];
                if all.iter().all(|x| factor_fits(**x)) && fast > slow {
                    return Ok(());
                }
                let found = format!(
                    "factor {factor}, original_max_position_embeddings {original_context}, beta_fast {fast}, \
                     beta_slow {slow}, attention factor {magnitude}"
                );
                Err(ModelError::invalid(what, "finite numbers above 0 with beta_slow below beta_fast", found))
            }
            RopeScaling::LongShort { short, long, original_context, magnitude } => {
                check_divisors(short, head_dim, what.clone())?;
                check_divisors(long, head_dim, what.clone())?;
                if factor_fits(*original_context) && factor_fits(*magnitude) {
                    return Ok(());
                }
                let found = format!("an original context of {original_context}, a magnitude of {magnitude}");
                Err(ModelError::invalid(what, "finite numbers above 0", found))
            }
        }
    }

    /// The rotation of heads of `head_dim` elements, of which the first `rotated` turn.
    pub(super) fn spec(&self, head_dim: usize, rotated: usize, pairing: RopePairing) -> RopeSpec {
        let usual = RopeSpec::new(head_dim, pairing, self.inv_freq(rotated));
        match &self.scaling {
            RopeScaling::Yarn { magnitude, .. } => RopeSpec { magnitude: *magnitude as f32, ..usual },
            RopeScaling::LongShort { long, original_context, magnitude, .. } => {
                let scaling = RopeScaling::PerPair(Arc::clone(long));
                let inv_freq = RopeConfig { base: self.base, scaling }.inv_freq(rotated);
                let long = Some(LongRope { context: *original_context as usize, inv_freq });
                RopeSpec { magnitude: *magnitude as f32, long, ..usual }
            }
            RopeScaling::None
            | RopeScaling::Linear { .. }
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Proportional { .. }
            | RopeScaling::PerPair(_) => usual,
        }
    }

    /// Angle per position of each pair, `[E / 2]`, scaling applied.
    pub fn inv_freq(&self, head_dim: usize) -> Arc<[f32]> {
        (0..head_dim / 2)
            .map(|pair| {
                let plain = self.plain(pair, head_dim);
                (plain / self.divisor(pair, head_dim)) as f32
            })
            .collect()
    }

    /// What each plain frequency is divided by, `[E / 2]`: the content of GGUF's `rope_freqs.weight`.
    pub(super) fn divisors(&self, head_dim: usize) -> Vec<f32> {
        (0..head_dim / 2).map(|pair| self.divisor(pair, head_dim) as f32).collect()
    }

    fn plain(&self, pair: usize, head_dim: usize) -> f64 {
        self.base.powf(-2.0 * pair as f64 / head_dim as f64)
    }

    /// What the frequency of `pair` is divided by.
    fn divisor(&self, pair: usize, head_dim: usize) -> f64 {
        // In positions.
        let wavelength = TAU / self.plain(pair, head_dim);
        match &self.scaling {
            RopeScaling::None => 1.0,
            RopeScaling::Linear { factor } => *factor,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                if wavelength < original_context / high_freq_factor {
                    1.0
                } else if wavelength > original_context / low_freq_factor {
                    *factor
                } else {
                    let smooth = (original_context / wavelength - low_freq_factor)
                        / (high_freq_factor - low_freq_factor);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                }
            }
            RopeScaling::PerPair(factors) => factors[pair].into(),
            // A pair that does not turn has no frequency.
            RopeScaling::Proportional { share, factor } => {
                if pair < (share * (head_dim as f64) / 2.0) as usize { *factor } else { f64::INFINITY }
            }
            RopeScaling::LongShort { short, .. } => short[pair].into(),
            RopeScaling::Yarn { factor, original_context, fast, slow, is_truncated, magnitude: _ } => {
                // The pair that turns so many times in the original context.
                let pair_of = |turns: f64| {
                    head_dim as f64 * (original_context / (turns * TAU)).ln() / (2.0 * self.base.ln())
                };
                let (mut low, mut high) = (pair_of(*fast), pair_of(*slow));
                if *is_truncated {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
                let divided = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                1.0 / (divided / factor + 1.0 - divided)
            }
        }
    }
}

/// Checks that there is a divisor for every pair.
fn check_divisors(factors: &[f32], head_dim: usize, what: String) -> Result<(), ModelError> {
    if factors.len() * 2 != head_dim {
        let expected = format!("{} divisors, one per pair of a head", head_dim / 2);
        return Err(ModelError::invalid(what, expected, factors.len()));
    }
    match factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
        Some(factor) => Err(ModelError::invalid(what, "finite divisors above 0", factor)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: RopeScaling) -> RopeConfig {
        RopeConfig { base: 10_000.0, scaling }
    }

    fn llama3() -> RopeScaling {
        RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        }
    }

    #[test]
    fn plain_frequencies_fall_from_one_by_powers_of_the_base() {
        let found = rope(RopeScaling::None).inv_freq(8);
        assert_eq!(&found[..], &[1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn linear_divides_all() {
        let found = rope(RopeScaling::Linear { factor: 4.0 }).inv_freq(8);
        assert_eq!(&found[..], &[0.25, 0.025, 0.0025, 0.00025]);
    }

    /// Values of Hugging Face's `_compute_llama3_parameters` for Llama 3.1 8B's settings, at pairs on both sides of
    /// the two thresholds.
    #[test]
    fn llama3_keeps_short_divides_long_and_blends_between() {
        let config = RopeConfig { base: 500_000.0, scaling: llama3() };
        let scaled = config.inv_freq(128);
        let plain = RopeConfig { base: 500_000.0, scaling: RopeScaling::None }.inv_freq(128);
        assert_eq!(scaled[..29], plain[..29]);
        for pair in 36..64 {
            assert_eq!(scaled[pair], plain[pair] / 8.0);
        }
        let wavelength = TAU / f64::from(plain[32]);
        let smooth = (8192.0 / wavelength - 1.0) / 3.0;
        let expected = (1.0 - smooth) * f64::from(plain[32]) / 8.0 + smooth * f64::from(plain[32]);
        assert!((f64::from(scaled[32]) / expected - 1.0).abs() < 1e-6);
        assert!(scaled[32] < plain[32] && scaled[32] > plain[32] / 8.0);
    }

    #[test]
    fn per_pair_divisors_equal_the_rule_they_store() {
        let by_rule = RopeConfig { base: 500_000.0, scaling: llama3() };
        let divisors = by_rule.divisors(128).into();
        let stored = RopeConfig { base: 500_000.0, scaling: RopeScaling::PerPair(divisors) };
        for (a, b) in by_rule.inv_freq(128).iter().zip(stored.inv_freq(128).iter()) {
            assert!((a / b - 1.0).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let cases = [
            (RopeScaling::Linear { factor: 0.0 }, "finite factor above 0"),
            (RopeScaling::PerPair(vec![1.0; 3].into()), "4 divisors"),
            (RopeScaling::PerPair(vec![1.0, 1.0, f32::NAN, 1.0].into()), "finite divisors"),
            (
                RopeScaling::Llama3 {
                    factor: 8.0,
                    low_freq_factor: 4.0,
                    high_freq_factor: 1.0,
                    original_context: 8192.0,
                },
                "low_freq_factor below high_freq_factor",
            ),
        ];
        for (scaling, part) in cases {
            let error = rope(scaling).check(8, "theta", "scaling").unwrap_err().to_string();
            assert!(error.contains("`scaling`") && error.contains(part), "{error}");
        }
        let error = RopeConfig { base: f64::INFINITY, scaling: RopeScaling::None };
        assert!(error.check(8, "theta", "scaling").unwrap_err().to_string().contains("`theta`"));
    }
}
