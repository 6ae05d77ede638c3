//! What a request changes in logits before they are filtered: biases, then penalties for what the text has already.
//!
//! The order is part of the contract: bias, repetition, frequency, presence, and after them the filters of
//! [`Sampler`](super::Sampler). A row's result depends on its logits, the request and the tokens before it alone, so it
//! is the same whether those tokens were committed or are a path of drafted ones.

use super::{Parameter, SampleError};

/// What a request changes in logits.
///
/// Costs a copy of every row, `[V]`, and a number for every token of the text; [`Adjustment::NONE`] costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjustment {
    /// Added to the logits of these tokens, from -100 to 100. If a token occurs twice, both are added.
    pub bias: Vec<(u32, f32)>,
    /// For tokens that prompt or output have: divides logits above 0 and multiplies others (Keskar et al., CTRL,
    /// <https://arxiv.org/abs/1909.05858>, section 4.1). Finite and above 0; 1 changes nothing.
    pub repetition: f32,
    /// Subtracted from the logits of tokens that the output has, as often as it has them; from -2 to 2, 0 changes
    /// nothing.
    pub frequency: f32,
    /// Subtracted once from the logits of tokens that the output has; from -2 to 2, 0 changes nothing.
    pub presence: f32,
}

impl Adjustment {
    /// Nothing is changed.
    pub const NONE: Self = Self { bias: Vec::new(), repetition: 1.0, frequency: 0.0, presence: 0.0 };

    /// Whether it changes nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Checks every field for a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// The first field out of its range.
    pub fn validate(&self, vocab: usize) -> Result<(), SampleError> {
        let Self { bias, repetition, frequency, presence } = self;
        for (token, found) in bias {
            if *token as usize >= vocab {
                return Err(SampleError::BiasToken { found: *token, vocabulary: vocab });
            }
            Parameter::LOGIT_BIAS.check(*found)?;
        }
        Parameter::REPETITION_PENALTY.check(*repetition)?;
        Parameter::FREQUENCY_PENALTY.check(*frequency)?;
        Parameter::PRESENCE_PENALTY.check(*presence)?;
        Ok(())
    }
}

impl Default for Adjustment {
    fn default() -> Self {
        Self::NONE
    }
}

/// How often a text has a token.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// In prompt and output.
    text: u32,
    /// In the output.
    output: u32,
}

/// Adjusts the rows of one request after another; the storage for a vocabulary is made when a request first needs it.
#[derive(Clone, Debug, Default)]
pub struct Adjuster {
    adjustment: Adjustment,
    /// `[V]`
    counts: Vec<Count>,
    /// Tokens of the text, each once.
    seen: Vec<u32>,
    /// `[V]`
    row: Vec<f32>,
}

impl Adjuster {
    /// Begins a request over a vocabulary of `vocab` tokens. Adjusting its rows allocates nothing from here on.
    ///
    /// # Errors
    /// If a field of `adjustment` is out of its range; everything is then as it was.
    ///
    /// # Panics
    /// If `prompt` has a token outside the vocabulary.
    pub fn begin(
        &mut self,
        adjustment: &Adjustment,
        prompt: &[u32],
        vocab: usize,
    ) -> Result<(), SampleError> {
        adjustment.validate(vocab)?;
        self.adjustment.clone_from(adjustment);
        for token in self.seen.drain(..) {
            self.counts[token as usize] = Count::default();
        }
        if self.is_idle() {
            return Ok(());
        }
        self.counts.resize(vocab, Count::default());
        self.seen.reserve_exact(vocab);
        self.row.clear();
        self.row.reserve_exact(vocab);
        for token in prompt {
            self.count(*token).text += 1;
        }
        Ok(())
    }

    /// Whether the request changes nothing, so that rows need not be adjusted.
    pub fn is_idle(&self) -> bool {
        self.adjustment.is_none()
    }

    /// Takes note of the next token of the output.
    pub fn push(&mut self, token: u32) {
        if !self.is_idle() {
            let count = self.count(token);
            count.text += 1;
            count.output += 1;
        }
    }

    /// The row `[V]` after the text so far, adjusted.
    pub fn adjust<'a>(&'a mut self, logits: &'a [f32]) -> &'a [f32] {
        if self.is_idle() {
            return logits;
        }
        let Self { adjustment: Adjustment { bias, repetition, frequency, presence }, counts, seen, row } =
            self;
        row.clear();
        row.extend_from_slice(logits);
        for (token, bias) in bias {
            row[*token as usize] += *bias;
        }
        for token in seen {
            let (logit, Count { text: _, output }) = (&mut row[*token as usize], counts[*token as usize]);
            *logit = if *logit > 0.0 { *logit / *repetition } else { *logit * *repetition };
            if output > 0 {
                *logit -= *frequency * output as f32 + *presence;
            }
        }
        row
    }

    fn count(&mut self, token: u32) -> &mut Count {
        let count = &mut self.counts[token as usize];
        if count.text == 0 {
            self.seen.push(token);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn adjusted(adjustment: &Adjustment, prompt: &[u32], output: &[u32], logits: &[f32]) -> Vec<f32> {
        let mut adjuster = Adjuster::default();
        adjuster.begin(adjustment, prompt, logits.len()).unwrap();
        output.iter().for_each(|token| adjuster.push(*token));
        adjuster.adjust(logits).to_vec()
    }

    #[test]
    fn each_part_changes_what_it_says() {
        let logits = [2.0, -2.0, 1.0, 0.5];
        let (prompt, output) = ([0, 1], [2, 2, 1]);
        let with = |adjustment: Adjustment| adjusted(&adjustment, &prompt, &output, &logits);
        assert_eq!(with(Adjustment::NONE), logits);
        let bias = vec![(3, 1.5), (0, -2.0), (3, 1.0)];
        assert_eq!(with(Adjustment { bias, ..Adjustment::NONE }), [0.0, -2.0, 1.0, 3.0]);
        assert_eq!(with(Adjustment { repetition: 2.0, ..Adjustment::NONE }), [1.0, -4.0, 0.5, 0.5]);
        assert_eq!(with(Adjustment { frequency: 0.5, ..Adjustment::NONE }), [2.0, -2.5, 0.0, 0.5]);
        assert_eq!(with(Adjustment { presence: 0.5, ..Adjustment::NONE }), [2.0, -2.5, 0.5, 0.5]);
        let all = Adjustment { bias: vec![(2, 3.0)], repetition: 2.0, frequency: 0.25, presence: 0.5 };
        assert_eq!(with(all), [1.0, -4.75, 1.0, 0.5]);
    }

    #[test]
    fn fields_out_of_range_are_refused_by_name() {
        let none = Adjustment::NONE;
        assert_eq!(none.validate(4), Ok(()));
        for (field, bad) in [
            ("logit_bias", Adjustment { bias: vec![(4, 1.0)], ..none.clone() }),
            ("logit_bias", Adjustment { bias: vec![(1, f32::NAN)], ..none.clone() }),
            ("logit_bias", Adjustment { bias: vec![(1, -100.1)], ..none.clone() }),
            ("repetition", Adjustment { repetition: 0.0, ..none.clone() }),
            ("repetition", Adjustment { repetition: f32::INFINITY, ..none.clone() }),
            ("frequency", Adjustment { frequency: f32::NAN, ..none.clone() }),
            ("presence", Adjustment { presence: f32::NEG_INFINITY, ..none.clone() }),
            ("presence", Adjustment { presence: 2.1, ..none.clone() }),
        ] {
            let message = bad.validate(4).unwrap_err().to_string();
            assert!(message.starts_with(field) && message.contains("expected"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn requests_leave_no_trace_and_counts_are_those_of_the_text(
            texts in prop::collection::vec(prop::collection::vec(0..9_u32, 0..12), 1..5),
            repetition in prop::sample::select(vec![1.0_f32, 0.5, 1.3]),
            frequency in prop::sample::select(vec![0.0_f32, 0.4, -0.3]),
            logits in prop::collection::vec(-9.0..9.0_f32, 9),
        ) {
            let adjustment = Adjustment { bias: vec![(3, 0.5)], repetition, frequency, presence: 0.1 };
            let mut adjuster = Adjuster::default();
            for text in &texts {
                let (prompt, output) = text.split_at(text.len() / 2);
                adjuster.begin(&adjustment, prompt, 9).unwrap();
                output.iter().for_each(|token| adjuster.push(*token));
                let expected = logits.iter().enumerate().map(|(id, logit)| {
                    let id = id as u32;
                    let mut x = *logit + if id == 3 { 0.5 } else { 0.0 };
                    if text.contains(&id) {
                        x = if x > 0.0 { x / repetition } else { x * repetition };
                    }
                    let said = output.iter().filter(|token| **token == id).count();
                    if said > 0 { x - (frequency * said as f32 + 0.1) } else { x }
                });
                prop_assert_eq!(adjuster.adjust(&logits), expected.collect::<Vec<f32>>());
                adjuster.begin(&Adjustment::NONE, prompt, 9).unwrap();
                prop_assert_eq!(adjuster.adjust(&logits), &logits[..]);
            }
        }
    }
}
