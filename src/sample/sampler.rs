//! `Sampler`: one request's standardised distribution and its draw at each position.
//!
//! Speculative sampling (Leviathan et al., ICML 2023, <https://arxiv.org/abs/2211.17192>, section 2.2) first turns
//! logits and filters into one plain distribution; argmax is its one-hot case. The contract, bit for bit:
//!
//! 1. *Weights.* `w = exp((logit - max) / temperature)` in f64, so the best token weighs 1. NaN weighs 0.
//! 2. *Top-k.* The first k tokens in rank order (higher logit, then lower id) survive.
//! 3. *Top-p.* The shortest prefix of the survivors in rank order whose weight is at least `top_p` times theirs; the
//!    whole is summed in id order, the prefix in rank order.
//! 4. *Min-p.* Survivors with `w >= min_p`.
//! 5. *Draw.* The survivor with the largest `(logit - max) / temperature + g`, the lowest id of equals, where `g` is
//!    the Gumbel noise of seed, position and token ([`ygg_kernels::noise`]): a draw with the probabilities that the
//!    weights have (Gumbel-max), and one that a drafter can foresee.
//!
//! All sums are sequential f64. The tests hold the code below to a version that sorts the whole vocabulary.

use ygg_kernels::{
    cpu::Kernels,
    noise::{Leader, NoiseKey, score},
};

use super::{
    Candidate, SampleError, Sampling,
    exp::exp_nonpositive,
    rank::{argmax, key, max, select_top},
};

#[cfg(test)]
mod tests;

/// Most tokens sorted at once when looking for the nucleus; each further round takes four times as many.
const FIRST_NUCLEUS_BLOCK: usize = 64;

/// Draws the tokens of one request; holds the scratch that this needs, reserved for one vocabulary.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// Of the fastest tier: all race alike.
    kernels: Kernels,
    vocab: usize,
    /// Survivors in ascending id order, and their weights.
    ids: Vec<u32>,
    weights: Vec<f64>,
    top: Vec<Candidate>,
    keys: Vec<u64>,
}

impl Sampler {
    /// A sampler for rows of `vocab` logits.
    ///
    /// # Errors
    /// If a field of `sampling` is out of its range, or `vocab` is 0 or does not fit a token id.
    pub fn new(sampling: Sampling, vocab: usize) -> Result<Self, SampleError> {
        sampling.validate()?;
        if vocab == 0 || u32::try_from(vocab).is_err() {
            return Err(SampleError::Vocabulary { found: vocab });
        }
        let mut sampler = Self {
            sampling,
            kernels: Kernels::best(),
            vocab,
            ids: vec![],
            weights: vec![],
            top: vec![],
            keys: vec![],
        };
        sampler.reserve();
        Ok(sampler)
    }

    /// Takes over the next request's sampling and keeps the storage.
    ///
    /// # Errors
    /// If a field of `sampling` is out of its range; the sampler is then unchanged.
    pub fn set_sampling(&mut self, sampling: Sampling) -> Result<(), SampleError> {
        sampling.validate()?;
        self.sampling = sampling;
        self.reserve();
        Ok(())
    }

    /// The request's parameters.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The token of output position `position`, given its row of logits `[V]`.
    ///
    /// Depends on the bits of the logits, the sampling and the position only. NaN is never drawn; if nothing but NaN is
    /// there, the token is 0. Negative infinity is drawn only if nothing else is there.
    ///
    /// # Panics
    /// If the row has not the length of the vocabulary.
    pub fn draw(&mut self, logits: &[f32], position: u64) -> u32 {
        self.assert_row(logits.len());
        if self.sampling.is_greedy() {
            return argmax(logits);
        }
        let Sampling { temperature, top_k: _, top_p, min_p, seed } = self.sampling;
        let key = NoiseKey::at(seed, position);
        if self.kept_by_top_k().is_none() && top_p == 1.0 {
            // What is left of the filters asks of a token nothing but its own weight.
            let least = f64::from(min_p);
            let keeps = |x| least == 0.0 || exp_nonpositive(x) >= least;
            return self.kernels.race(logits, temperature, key, keeps).unwrap_or(0);
        }
        let max = self.standardise(logits);
        let mut leader = Leader::NONE;
        for &id in &self.ids {
            leader.offer(id, score(logits[id as usize], max, f64::from(temperature)), key, |_| true);
        }
        leader.token().unwrap_or(0)
    }

    /// Writes the standardised distribution of a row, `[V]`: the probabilities [`Self::draw`] draws with.
    ///
    /// # Panics
    /// If the row or `out` has not the length of the vocabulary.
    pub fn probabilities(&mut self, logits: &[f32], out: &mut [f64]) {
        self.assert_row(logits.len());
        self.assert_row(out.len());
        out.fill(0.0);
        if self.sampling.is_greedy() {
            out[argmax(logits) as usize] = 1.0;
            return;
        }
        self.standardise(logits);
        let total: f64 = self.weights.iter().sum();
        if total == 0.0 {
            out[0] = 1.0;
            return;
        }
        for (&id, &weight) in self.ids.iter().zip(&self.weights) {
            out[id as usize] = weight / total;
        }
    }

    /// Leaves the survivors of all filters in `ids` and `weights`, and gives the largest logit.
    fn standardise(&mut self, logits: &[f32]) -> f32 {
        let Sampling { temperature, top_k: _, top_p, min_p, seed: _ } = self.sampling;
        let max = max(logits);
        let temperature = f64::from(temperature);
        let weight = |logit: f32| exp_nonpositive(score(logit, max, temperature));
        self.ids.clear();
        self.weights.clear();
        match self.kept_by_top_k() {
            Some(k) => {
                select_top(logits, k, &mut self.top);
                self.ids.extend(self.top.iter().map(|c| c.token));
                self.ids.sort_unstable();
                self.weights.extend(self.ids.iter().map(|&id| weight(logits[id as usize])));
            }
            None => {
                self.ids.extend(0..self.vocab as u32);
                self.weights.extend(logits.iter().map(|&logit| weight(logit)));
            }
        }
        if top_p < 1.0
            && let Some(last) = self.nucleus(logits, f64::from(top_p))
        {
            self.retain(|id, weight| weight > 0.0 && key(id, logits[id as usize]) >= last);
        }
        if min_p > 0.0 {
            let least = f64::from(min_p);
            self.retain(|_, weight| weight >= least);
        }
        max
    }

    /// The key of the last token in rank order that belongs to the nucleus; `None` if no token has a weight.
    fn nucleus(&mut self, logits: &[f32], top_p: f64) -> Option<u64> {
        let total: f64 = self.weights.iter().sum();
        let wanted = top_p * total;
        // Tokens below twice this weight hold less than half of what the nucleus leaves out, so it ends before them;
        // the factor of two covers the rounding of weights and sums.
        let floor = (1.0 - top_p) * total / (4.0 * self.ids.len() as f64);
        let all = self.ids.len() == self.vocab;
        self.keys.clear();
        for (&id, &weight) in self.ids.iter().zip(&self.weights) {
            if weight > 0.0 && weight >= floor {
                // Inverted, so that ascending keys are in rank order.
                self.keys.push(!key(id, logits[id as usize]));
            }
        }
        let (mut start, mut block, mut sum) = (0, FIRST_NUCLEUS_BLOCK, 0.0);
        while start < self.keys.len() {
            let end = self.keys.len().min(start + block);
            self.keys[start..].select_nth_unstable(end - start - 1);
            self.keys[start..end].sort_unstable();
            for &inverted in &self.keys[start..end] {
                let id = inverted as u32;
                let at = if all { Ok(id as usize) } else { self.ids.binary_search(&id) };
                sum += self.weights[at.expect("keys are made of survivors")];
                if sum >= wanted {
                    return Some(!inverted);
                }
            }
            start = end;
            block *= 4;
        }
        None
    }

    fn retain(&mut self, keep: impl Fn(u32, f64) -> bool) {
        let mut kept = 0;
        for i in 0..self.ids.len() {
            if keep(self.ids[i], self.weights[i]) {
                (self.ids[kept], self.weights[kept]) = (self.ids[i], self.weights[i]);
                kept += 1;
            }
        }
        self.ids.truncate(kept);
        self.weights.truncate(kept);
    }

    /// How many tokens top-k keeps, if it removes any.
    fn kept_by_top_k(&self) -> Option<usize> {
        let k = self.sampling.top_k as usize;
        (k > 0 && k < self.vocab).then_some(k)
    }

    /// Reserves what this sampling can need; a row then allocates nothing.
    fn reserve(&mut self) {
        if self.sampling.is_greedy() {
            return;
        }
        let kept = self.kept_by_top_k();
        let survivors = kept.unwrap_or(self.vocab);
        reserve_total(&mut self.top, kept.unwrap_or(0));
        reserve_total(&mut self.ids, survivors);
        reserve_total(&mut self.weights, survivors);
        reserve_total(&mut self.keys, if self.sampling.top_p < 1.0 { survivors } else { 0 });
    }

    fn assert_row(&self, len: usize) {
        assert_eq!(len, self.vocab, "a row has one number per token of the vocabulary");
    }
}

fn reserve_total<T>(buffer: &mut Vec<T>, total: usize) {
    buffer.clear();
    buffer.reserve_exact(total);
}
