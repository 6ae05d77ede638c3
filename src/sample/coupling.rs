//! Drafting by the noise that the verifier draws by.
//!
//! The verifier's token is the one with the largest `log p + g`, and `g` is known to whoever knows the request's seed,
//! so a drafter that has `q` ranks its candidates by `log q + g` instead of by `q` (Gumbel coupling; Daliri, Musco,
//! Suresh, <https://arxiv.org/abs/2408.07978>). Where `q` is `p`, the first candidate is the verifier's token, however
//! unlikely it was. Nothing that is drafted changes a draw.

use ygg_kernels::{
    candidates::{exp_nonpositive, ln_positive},
    noise::NoiseKey,
};

use super::{Candidate, Sampling};

/// The noise of one request, and what its filters leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coupling {
    sampling: Sampling,
}

impl Coupling {
    /// Of a request that is drawn by noise; `None` if it takes the best token.
    pub fn of(sampling: Sampling) -> Option<Self> {
        (!sampling.is_greedy()).then_some(Self { sampling })
    }

    /// The request's seed.
    pub fn seed(&self) -> u64 {
        self.sampling.seed
    }

    /// Whether any token may be drawn, since no filter leaves some out.
    pub fn admits_all(&self) -> bool {
        let Sampling { temperature: _, top_k, top_p, min_p, seed: _ } = self.sampling;
        top_k == 0 && top_p == 1.0 && min_p == 0.0
    }

    /// The temperature that candidates' log-probabilities must be at, which is the request's.
    pub fn temperature(&self) -> f32 {
        self.sampling.temperature
    }

    /// Replaces the best candidates of a drafter for the token at `place`, the most probable first, by the `k`
    /// likeliest winners under the noise, the likeliest first.
    ///
    /// `log_prob` is of the drafter's distribution at the request's [`temperature`](Self::temperature), and becomes the
    /// logarithm of how likely the candidate wins: if the drafter's logits were off by Gumbel-distributed errors of
    /// scale `t_d`, the *draft temperature*, that would be the softmax of `(logit + T g) / t_d`. At temperature 0 that
    /// is what drafters of greedy requests rank by.
    pub fn rank(&self, place: usize, draft_temperature: f32, k: usize, candidates: &mut Vec<Candidate>) {
        self.filter(candidates);
        let key = NoiseKey::at(self.sampling.seed, place as u64);
        for candidate in candidates.iter_mut() {
            candidate.log_prob += key.gumbel(candidate.token) as f32;
        }
        candidates.sort_unstable_by(likelier);
        self.value(draft_temperature, k, candidates);
    }

    /// As [`rank`](Self::rank) of the candidates that are best under the noise, the best first, with its noise added to
    /// what was their log-probability up to a common constant. What is beyond them hardly wins.
    pub fn value(&self, draft_temperature: f32, k: usize, candidates: &mut Vec<Candidate>) {
        let sharpness = self.sampling.temperature / draft_temperature;
        for candidate in candidates.iter_mut() {
            candidate.log_prob *= sharpness;
        }
        let Some(best) = candidates.first().map(|candidate| candidate.log_prob) else { return };
        let total: f32 = candidates.iter().map(|candidate| exp_nonpositive(candidate.log_prob - best)).sum();
        let total = ln_positive(total);
        candidates.truncate(k);
        for candidate in candidates {
            candidate.log_prob = candidate.log_prob - best - total;
        }
    }

    /// Orders tokens with logits as the noise at `place` would choose among them, the winner first, and adds the noise
    /// to their values. Those of negative infinity come last.
    pub fn order(&self, place: usize, candidates: &mut [Candidate]) {
        let key = NoiseKey::at(self.sampling.seed, place as u64);
        for candidate in &mut *candidates {
            candidate.log_prob =
                candidate.log_prob / self.sampling.temperature + key.gumbel(candidate.token) as f32;
        }
        candidates.sort_unstable_by(likelier);
    }

    /// How likely a token wins that has probability `p`, where nothing is known of the others: the best of them all is
    /// as one token with the rest of the probability (Gumbel noise is max-stable), with noise that is not known.
    pub fn chance(&self, place: usize, token: u32, p: f32) -> f32 {
        let odds = p * self.odds(place, token);
        odds / (odds + (1.0 - p) * Self::UNKNOWN_ODDS)
    }

    /// What the noise of a token multiplies its probability with: of tokens that are all known, each wins as likely as
    /// its share in the sum of products.
    pub fn odds(&self, place: usize, token: u32) -> f32 {
        NoiseKey::at(self.sampling.seed, place as u64).odds(token) as f32
    }

    /// [`odds`](Self::odds) of noise that is not known, which has the mean of Euler's constant.
    pub const UNKNOWN_ODDS: f32 = 1.781_072_4;

    /// Leaves what the request's filters leave, by the drafter's probabilities. They are of the whole vocabulary, of
    /// which the candidates are the head: what top-p keeps beyond them is not drafted.
    fn filter(&self, candidates: &mut Vec<Candidate>) {
        let Sampling { temperature: _, top_k, top_p, min_p, seed: _ } = self.sampling;
        let probability = |candidate: &Candidate| exp_nonpositive(candidate.log_prob.min(0.0));
        let mut total = 1.0;
        if top_k > 0 {
            candidates.truncate(top_k as usize);
            total = candidates.iter().map(probability).sum();
        }
        if top_p < 1.0 {
            let mut sum = 0.0;
            let last = candidates.iter().position(|candidate| {
                sum += probability(candidate);
                sum >= top_p * total
            });
            candidates.truncate(last.map_or(candidates.len(), |last| last + 1));
        }
        let least = candidates.first().map_or(0.0, probability) * min_p;
        candidates.retain(|candidate| probability(candidate) >= least);
    }
}

/// Larger values first, of equals the lower id.
fn likelier(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.log_prob.total_cmp(&a.log_prob).then(a.token.cmp(&b.token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sampler;

    fn sampling(temperature: f32, seed: u64) -> Sampling {
        Sampling { temperature, seed, ..Sampling::GREEDY }
    }

    /// The head of a softmax of `logits` at the temperature of `coupling`.
    fn head(logits: &[f32], coupling: &Coupling, k: usize) -> Vec<Candidate> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scaled = |logit: f32| (logit - max) / coupling.temperature();
        let total = logits.iter().map(|logit| scaled(*logit).exp()).sum::<f32>().ln();
        let log_prob = |logit: f32| scaled(logit) - total;
        let all = (0..).zip(logits).map(|(token, logit)| Candidate { token, log_prob: log_prob(*logit) });
        let mut all: Vec<Candidate> = all.collect();
        all.sort_by(|a, b| b.log_prob.total_cmp(&a.log_prob).then(a.token.cmp(&b.token)));
        all.truncate(k);
        all
    }

    fn logits(seed: u64) -> Vec<f32> {
        (0..64).map(|i| (NoiseKey::at(seed, i).0[0] >> 24) as f32 / 40.0).collect()
    }

    #[test]
    fn a_drafter_that_is_right_foresees_every_draw() {
        for (temperature, top_k, top_p, min_p) in [
            (1.0, 0, 1.0, 0.0),
            (0.6, 5, 1.0, 0.0),
            (1.3, 0, 0.7, 0.0),
            (0.8, 20, 0.9, 0.05),
            (1e-3, 0, 1.0, 0.0),
        ] {
            for seed in 0..300 {
                let sampling = Sampling { temperature, top_k, top_p, min_p, seed };
                let (coupling, logits) = (Coupling::of(sampling).unwrap(), logits(seed));
                let mut candidates = head(&logits, &coupling, 64);
                coupling.rank(seed as usize + 7, 1.0, 3, &mut candidates);
                let drawn = Sampler::new(sampling, 64).unwrap().draw(&logits, seed + 7);
                assert_eq!(candidates[0].token, drawn, "{sampling:?}: {candidates:?}");
                assert!(candidates.len() <= 3 && candidates.iter().all(|c| c.log_prob <= 0.0));
            }
        }
        assert_eq!(Coupling::of(Sampling::GREEDY), None);
    }

    /// The verifier's logits are off by what the draft temperature says: the first candidate wins as often as it says.
    #[test]
    fn values_are_how_often_candidates_win() {
        let (mut said, mut won, rounds) = ([0.0; 2], [0.0; 2], 4000);
        for seed in 0..rounds {
            let sampling = sampling(0.9, seed);
            let (coupling, own) = (Coupling::of(sampling).unwrap(), logits(seed / 8));
            let mut candidates = head(&own, &coupling, 64);
            coupling.rank(5, 0.4, 2, &mut candidates);
            let error = |token: usize| 0.4 * NoiseKey::at(seed + rounds, 9).gumbel(token as u32) as f32;
            let theirs: Vec<f32> =
                own.iter().enumerate().map(|(token, logit)| logit + error(token)).collect();
            let drawn = Sampler::new(sampling, 64).unwrap().draw(&theirs, 5);
            for (place, candidate) in candidates.iter().enumerate() {
                said[place] += f64::from(candidate.log_prob).exp() / rounds as f64;
                won[place] += f64::from(u8::from(candidate.token == drawn)) / rounds as f64;
            }
        }
        for place in 0..2 {
            assert!((said[place] - won[place]).abs() < 0.03, "candidate {place}: said {said:?}, won {won:?}");
        }
        assert!(won[0] > 0.5 && won[1] > 0.05, "{won:?}");
    }

    #[test]
    fn few_candidates_and_none_are_ranked_too() {
        let coupling = Coupling::of(Sampling { top_p: 0.5, ..sampling(1.0, 3) }).unwrap();
        let mut none = Vec::new();
        coupling.rank(0, 1.0, 4, &mut none);
        assert_eq!(none, []);
        let mut one = vec![Candidate { token: 8, log_prob: -0.2 }];
        coupling.rank(0, 1.0, 4, &mut one);
        assert_eq!(one, [Candidate { token: 8, log_prob: 0.0 }]);
    }
}
