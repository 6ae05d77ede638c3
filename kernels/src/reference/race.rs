//! The race of a row of logits, by the meaning in [`crate::noise`].

use crate::noise::{NoiseKey, score};

/// The winner among the tokens whose score without noise `keeps` admits.
pub fn race(logits: &[f32], temperature: f32, key: NoiseKey, keeps: impl Fn(f64) -> bool) -> Option<u32> {
    let max = logits.iter().copied().filter(|x| !x.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let mut winner = None;
    let mut best = f64::NEG_INFINITY;
    for (token, &logit) in (0..).zip(logits) {
        let x = score(logit, max, f64::from(temperature));
        if x > f64::NEG_INFINITY && keeps(x) && x + key.gumbel(token) > best {
            (winner, best) = (Some(token), x + key.gumbel(token));
        }
    }
    winner
}
