//! The race of a row of logits, by the meaning in [`crate::noise`].

use super::{
    columns::{BLOCK, Columns},
    largest,
};
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
        // Finite, so that differences that are tiny themselves stay so.
        let inverse = (1.0 / temperature).min(f64::from(f32::MAX)) as f32;
        let mut leader = Leader::NONE;
        let mut offer = |logit: f32, token: u32, leader: &mut Leader| {
            leader.offer(token, score(logit, max, temperature), key, &mut keeps);
        };
        let (blocks, rest) = logits.as_chunks::<BLOCK>();
        for (block, first) in blocks.iter().zip((0_u32..).step_by(BLOCK)) {
            let columns = Columns::of(block, key, |place| first + place as u32);
            for place in columns.reaching(leader.noisy(), max, inverse) {
                offer(block[place], first + place as u32, &mut leader);
            }
        }
        for (&logit, token) in rest.iter().zip((blocks.len() * BLOCK) as u32..) {
            offer(logit, token, &mut leader);
        }
        leader.token()
    }
}
