//! The race of a row of logits, by the meaning in [`crate::noise`].

use super::{HASHED, largest, least_upper};
use crate::{
    cpu::lanes::{Lanes, Work},
    noise::{Leader, NoiseKey, score},
};

/// Finds the winner among the tokens of `logits` that `keeps` admits by their scores without noise.
pub(in crate::cpu) struct Race<'a, F> {
    pub(in crate::cpu) logits: &'a [f32],
    pub(in crate::cpu) temperature: f64,
    pub(in crate::cpu) key: NoiseKey,
    pub(in crate::cpu) keeps: F,
}

impl<F: FnMut(f64) -> bool> Work for Race<'_, F> {
    type Out = Option<u32>;

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) -> Option<u32> {
        let Self { logits, temperature, key, mut keeps } = self;
        let max = largest(logits);
        let mut leader = Leader::NONE;
        for (block, first) in logits.chunks(HASHED).zip((0_u32..).step_by(HASHED)) {
            let is_whole = block.len() == HASHED;
            if is_whole && !leader.may_lose(score(largest(block), max, temperature), least_upper(key, first))
            {
                continue;
            }
            for (&logit, token) in block.iter().zip(first..) {
                let x = score(logit, max, temperature);
                if leader.may_lose(x, key.upper(token)) && keeps(x) {
                    leader.offer(token, x, key);
                }
            }
        }
        leader.token()
    }
}
