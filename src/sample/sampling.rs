//! Sampling parameters of a request, and their ranges.

use serde::Serialize;

use super::Parameter;

/// How a request's tokens are drawn from the verifier's logits.
///
/// The filters apply in the order of the fields; the order is part of the contract (see [`super::Sampler`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// Divides the logits; finite and not negative. 0 is greedy decoding: the argmax, whatever else is set.
    pub temperature: f32,
    /// Keeps this many tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the fewest most probable tokens that together have at least this probability; in (0, 1], 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this share as probable as the most probable one; in [0, 1], 0 keeps all.
    pub min_p: f32,
    /// Key of the draws.
    pub seed: u64,
}

impl Sampling {
    /// The argmax at each position.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };

    /// Whether every distribution is one-hot at the argmax.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks every field against its range.
    ///
    /// # Errors
    /// The first field out of its range.
    pub fn validate(&self) -> Result<(), SampleError> {
        let Self { temperature, top_k: _, top_p, min_p, seed: _ } = *self;
        Parameter::TEMPERATURE.check(temperature)?;
        Parameter::TOP_P.check(top_p)?;
        Parameter::MIN_P.check(min_p)?;
        Ok(())
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self::GREEDY
    }
}

/// A request that cannot be sampled. The fault is the requester's, except for [`SampleError::Vocabulary`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A number out of its range.
    #[error("{}: expected {}, found {found}; it {}", parameter.name, parameter.expected(), parameter.about)]
    Parameter {
        /// Which.
        parameter: &'static Parameter,
        /// The value given.
        found: f32,
    },
    /// A bias for a token that there is not.
    #[error("logit_bias: expected token ids below {vocabulary}, found {found}; leave it out")]
    BiasToken {
        /// The token given.
        found: u32,
        /// Tokens that there are.
        vocabulary: usize,
    },
    /// More log-probabilities of a token than there are tokens.
    #[error(
        "log-probabilities: expected at most the {vocabulary} tokens of the vocabulary, found {found}; ask for fewer"
    )]
    LogProbs {
        /// The given number.
        found: usize,
        /// Tokens that there are.
        vocabulary: usize,
    },
    /// A model without tokens, or with more than an id can name.
    #[error("vocabulary: expected 1 to 4294967295 tokens, found {found}; check the model file")]
    Vocabulary {
        /// The size given.
        found: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_out_of_range_are_refused_by_name() {
        let good = Sampling { temperature: 0.7, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 1 };
        assert_eq!((good.validate(), Sampling::GREEDY.validate()), (Ok(()), Ok(())));
        assert_eq!(Sampling { temperature: -0.0, min_p: 1.0, ..good }.validate(), Ok(()));
        for (field, bad) in [
            ("temperature", Sampling { temperature: -1.0, ..good }),
            ("temperature", Sampling { temperature: f32::INFINITY, ..good }),
            ("temperature", Sampling { temperature: f32::NAN, ..good }),
            ("top_p", Sampling { top_p: 0.0, ..good }),
            ("top_p", Sampling { top_p: 1.01, ..good }),
            ("top_p", Sampling { top_p: f32::NAN, ..good }),
            ("min_p", Sampling { min_p: -0.1, ..good }),
            ("min_p", Sampling { min_p: 1.1, ..good }),
            ("min_p", Sampling { min_p: f32::NAN, ..good }),
        ] {
            let message = bad.validate().unwrap_err().to_string();
            assert!(message.starts_with(field) && message.contains("found"), "{message}");
        }
    }
}
