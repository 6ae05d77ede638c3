//! Log-probabilities of tokens under a row of logits as the model gives them: before any bias, penalty, temperature or
//! filter.

use super::{exp::exp_nonpositive, rank::max};

/// Turns logits of one row into log-probabilities. Making it costs one softmax over the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormaliser {
    max: f32,
    log_sum: f64,
}

impl LogNormaliser {
    /// Of a row `[V]`; NaN has no share.
    pub fn new(logits: &[f32]) -> Self {
        let max = max(logits);
        let share = |logit: f32| {
            if logit == max { 1.0 } else { exp_nonpositive(f64::from(logit) - f64::from(max)) }
        };
        Self { max, log_sum: logits.iter().map(|logit| share(*logit)).sum::<f64>().ln() }
    }

    /// The log-probability of a logit of the row, at most 0; negative infinity for NaN.
    pub fn log_prob(&self, logit: f32) -> f32 {
        self.nats(logit) as f32
    }

    /// The same before it is rounded.
    pub fn nats(&self, logit: f32) -> f64 {
        if logit.is_nan() {
            return f64::NEG_INFINITY;
        }
        let below = if logit == self.max { 0.0 } else { f64::from(logit) - f64::from(self.max) };
        below - self.log_sum
    }

    /// What a logit of the row exceeds its log-probability by: the logarithm of the sum of all exponentials.
    pub fn total(&self) -> f64 {
        f64::from(self.max) + self.log_sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_keep_the_order() {
        let logits: Vec<f32> = (0..400).map(|i| ((i * 37) % 101) as f32 / 9.0 - 4.0).collect();
        let row = LogNormaliser::new(&logits);
        let sum: f64 = logits.iter().map(|logit| f64::from(row.log_prob(*logit)).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        assert!(row.log_prob(3.0) < row.log_prob(3.5));
        assert!((3.0 - row.total() - row.nats(3.0)).abs() < 1e-12);
        assert_eq!(LogNormaliser::new(&[7.5]).log_prob(7.5), 0.0);
        assert_eq!(LogNormaliser::new(&[1.0, 1.0]).log_prob(1.0), -std::f32::consts::LN_2);
    }

    #[test]
    fn infinities_and_nan_have_log_probabilities_too() {
        let row = [f32::NAN, 1.0, f32::NEG_INFINITY];
        let normaliser = LogNormaliser::new(&row);
        assert_eq!(row.map(|logit| normaliser.log_prob(logit)), [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY]);
        let sure = LogNormaliser::new(&[f32::INFINITY, 1.0]);
        assert_eq!((sure.log_prob(f32::INFINITY), sure.log_prob(1.0)), (0.0, f32::NEG_INFINITY));
        assert_eq!(LogNormaliser::new(&[f32::NAN; 3]).log_prob(f32::NAN), f32::NEG_INFINITY);
    }
}
