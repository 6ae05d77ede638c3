//! Candidates for drafting: the best k tokens of a drafter's row and their log-probabilities.

use super::{
    exp::exp_nonpositive_f32,
    rank::{before, select_top},
};

#[cfg(test)]
mod tests;

const LANES: usize = 16;

/// A continuation that a drafter offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub token: u32,
    /// Its log-probability under the drafter.
    pub log_prob: f32,
}

impl From<Candidate> for (u32, f32) {
    fn from(candidate: Candidate) -> Self {
        (candidate.token, candidate.log_prob)
    }
}

/// Replaces `out` by the best `k` tokens of `softmax(logits / temperature)`, most probable first, ties by lowest id.
///
/// `temperature` is the plan's draft temperature and not the request's: candidates scored with a greedy request's
/// one-hot distribution would make every tree a chain (Yggdrasil, <https://arxiv.org/abs/2512.23858>). Fewer than `k`
/// come out if the row has fewer numbers that are not NaN. Nothing is allocated if `out` has room for `k`.
///
/// Log-probabilities are computed in f32; the normalisation is a sum in 16 lanes whose relative error stays below
/// `V / 16` roundings (2e-4 at 49,152 tokens). They rank drafts and never decide a token that is emitted.
///
/// # Panics
/// If `temperature` is not finite and positive.
pub fn draft_candidates(logits: &[f32], k: usize, temperature: f32, out: &mut Vec<Candidate>) {
    assert!(
        temperature.is_finite() && temperature > 0.0,
        "a draft temperature of {temperature} is not positive"
    );
    select_top(logits, k, out);
    out.sort_unstable_by(|a, b| before(b, a).cmp(&before(a, b)));
    let Some(best) = out.first() else { return };
    let max = best.log_prob;
    // Infinity minus itself is NaN.
    let scaled = |logit: f32| if logit == max { 0.0 } else { (logit - max) / temperature };
    let mut lanes = [0.0_f32; LANES];
    let mut chunks = logits.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane += exp_nonpositive_f32(scaled(logit));
        }
    }
    let rest: f32 = chunks.remainder().iter().map(|&logit| exp_nonpositive_f32(scaled(logit))).sum();
    let log_sum = (lanes.iter().sum::<f32>() + rest).ln();
    for candidate in out {
        candidate.log_prob = scaled(candidate.log_prob) - log_sum;
    }
}
