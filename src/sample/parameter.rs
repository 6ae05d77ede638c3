//! The numbers by which a request sets its sampling, in one table: name, range, and what each does.
//!
//! The library, the command line, HTTP, C and Python read it, so that a number is in range everywhere or nowhere.

use super::SampleError;

/// Values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Finite numbers.
    Decimal {
        /// The least,
        least: f32,
        /// which is a value itself unless values are above it.
        above: bool,
        /// The greatest, which is a value.
        most: f32,
        /// The one that changes nothing.
        neutral: f32,
    },
    /// Whole numbers.
    Integer {
        /// The least.
        least: i128,
        /// The greatest.
        most: i128,
        /// The one that changes nothing, if there is one.
        neutral: Option<i128>,
    },
}

/// A number that a request may set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in requests of HTTP and Python, and with `-` for `_` on the command line.
    pub name: &'static str,
    /// What it may be.
    pub values: Values,
    /// What it does, as a sentence about it without "it".
    pub about: &'static str,
}

impl Parameter {
    /// Of [`Sampling`](super::Sampling).
    pub const TEMPERATURE: Self = Self {
        name: "temperature",
        values: decimal(0.0, false, f32::MAX, 1.0),
        about: "divides the logits; 0 always takes the most probable token",
    };
    /// Of [`Sampling`](super::Sampling).
    pub const TOP_K: Self = Self {
        name: "top_k",
        values: Values::Integer { least: 0, most: u32::MAX as i128, neutral: Some(0) },
        about: "keeps this many of the most probable tokens; 0 keeps all",
    };
    /// Of [`Sampling`](super::Sampling).
    pub const TOP_P: Self = Self {
        name: "top_p",
        values: decimal(0.0, true, 1.0, 1.0),
        about: "keeps the fewest most probable tokens that together have at least this probability",
    };
    /// Of [`Sampling`](super::Sampling).
    pub const MIN_P: Self = Self {
        name: "min_p",
        values: decimal(0.0, false, 1.0, 0.0),
        about: "keeps tokens of at least this share of the highest probability",
    };
    /// Of [`Sampling`](super::Sampling).
    pub const SEED: Self = Self {
        name: "seed",
        values: Values::Integer { least: 0, most: u64::MAX as i128, neutral: None },
        about: "draws the same answer where it is the same",
    };
    /// Of [`Adjustment`](super::Adjustment).
    pub const REPETITION_PENALTY: Self = Self {
        name: "repetition_penalty",
        values: decimal(0.0, true, f32::MAX, 1.0),
        about: "divides positive logits of tokens of the text, multiplies others",
    };
    /// Of [`Adjustment`](super::Adjustment). Its range is OpenAI's.
    pub const FREQUENCY_PENALTY: Self = Self {
        name: "frequency_penalty",
        values: decimal(-2.0, false, 2.0, 0.0),
        about: "is subtracted from a token's logit for every time that the answer has it",
    };
    /// Of [`Adjustment`](super::Adjustment). Its range is OpenAI's.
    pub const PRESENCE_PENALTY: Self = Self {
        name: "presence_penalty",
        values: decimal(-2.0, false, 2.0, 0.0),
        about: "is subtracted once from the logit of each token that the answer has",
    };
    /// Each number of [`Adjustment::bias`](super::Adjustment::bias). Its range is OpenAI's.
    pub const LOGIT_BIAS: Self = Self {
        name: "logit_bias",
        values: decimal(-100.0, false, 100.0, 0.0),
        about: "is added to a token's logit; -100 bans it",
    };

    /// All of them.
    pub const ALL: [&'static Self; 9] = [
        &Self::TEMPERATURE,
        &Self::TOP_K,
        &Self::TOP_P,
        &Self::MIN_P,
        &Self::SEED,
        &Self::REPETITION_PENALTY,
        &Self::FREQUENCY_PENALTY,
        &Self::PRESENCE_PENALTY,
        &Self::LOGIT_BIAS,
    ];

    /// What was expected, to follow that word.
    pub fn expected(&self) -> String {
        match self.values {
            Values::Decimal { least, above: true, most: f32::MAX, .. } => format!("a number above {least}"),
            Values::Decimal { least, above: true, most, .. } => {
                format!("a number above {least} and at most {most}")
            }
            Values::Decimal { least, above: false, most: f32::MAX, .. } => {
                format!("a number that is {least} or more")
            }
            Values::Decimal { least, above: false, most, .. } => format!("a number from {least} to {most}"),
            Values::Integer { least, most, .. } => format!("a whole number from {least} to {most}"),
        }
    }

    /// Whether a number is one of its values. A decimal is compared as the `f32` that it becomes, too: what is too
    /// large for that is infinite there, and what is too small 0.
    pub fn allows(&self, number: f64) -> bool {
        match self.values {
            Values::Decimal { least, above, most, neutral: _ } => {
                let inside = |number: f64| {
                    let (least, most) = (f64::from(least), f64::from(most));
                    number <= most && if above { number > least } else { number >= least }
                };
                inside(number) && inside(f64::from(number as f32))
            }
            Values::Integer { least, most, neutral: _ } => {
                number.fract() == 0.0 && (least..=most).contains(&(number as i128))
            }
        }
    }

    /// The number if it is one of the values of a decimal parameter.
    ///
    /// # Errors
    /// [`SampleError::Parameter`].
    pub fn check(&'static self, found: f32) -> Result<f32, SampleError> {
        let is_good = self.allows(f64::from(found));
        is_good.then_some(found).ok_or(SampleError::Parameter { parameter: self, found })
    }
}

const fn decimal(least: f32, above: bool, most: f32, neutral: f32) -> Values {
    Values::Decimal { least, above, most, neutral }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_ends_and_neutral_values_and_nothing_that_is_no_number() {
        for parameter in Parameter::ALL {
            for nothing in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(!parameter.allows(nothing), "{parameter:?}: {nothing}");
            }
            match parameter.values {
                Values::Decimal { least, above, most, neutral } => {
                    assert!(parameter.allows(f64::from(neutral)) && parameter.allows(f64::from(most)));
                    assert_eq!(parameter.allows(f64::from(least)), !above, "{parameter:?}");
                    assert!(!parameter.allows(f64::from(least) - 0.1), "{parameter:?}");
                    assert!(!parameter.allows(f64::from(most) * 1.0001), "{parameter:?}");
                    assert!(parameter.expected().contains(&least.to_string()), "{parameter:?}");
                }
                Values::Integer { least, most, neutral } => {
                    let neutral = neutral.unwrap_or(least);
                    assert!((least..=most).contains(&neutral) && parameter.allows(neutral as f64));
                    assert!(!parameter.allows(least as f64 - 1.0) && !parameter.allows(1.5), "{parameter:?}");
                    assert!(parameter.expected().contains(&most.to_string()), "{parameter:?}");
                }
            }
            assert!(!parameter.about.is_empty());
        }
        assert!(!Parameter::TEMPERATURE.allows(1e39) && !Parameter::REPETITION_PENALTY.allows(1e-60));
        assert!(Parameter::TEMPERATURE.allows(-0.0) && Parameter::TEMPERATURE.allows(1e-60));
    }
}
