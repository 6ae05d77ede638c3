//! The race of a row of logits, by the meaning in [`crate::noise`].

use crate::{
    cpu::lanes::{Lanes, Work},
    noise::{Leader, NoiseKey, score},
};

/// Lanes of the searches for a largest logit and a least hash.
const LANES: usize = 16;
/// Tokens that are passed over together. Of fewer, the bound would be computed more often; of more, it would be higher
/// and single tokens be looked at more often.
const BLOCK: usize = 4 * LANES;

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
        for (block, first) in logits.chunks(BLOCK).zip((0_u32..).step_by(BLOCK)) {
            let is_whole = block.len() == BLOCK;
            if is_whole && !leader.may_lose(score(largest(block), max, temperature), least_hash(key, first)) {
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

/// The largest logit that is a number; negative infinity if there is none.
#[inline(always)]
fn largest(logits: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = logits.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    lanes.iter().chain(chunks.remainder()).copied().fold(f32::NEG_INFINITY, larger)
}

/// The least upper half of a block's bits.
#[inline(always)]
fn least_hash(key: NoiseKey, first: u32) -> u32 {
    let mut lanes = [u32::MAX; LANES];
    for chunk in 0..(BLOCK / LANES) as u32 {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = (*lane).min(key.upper(first + chunk * LANES as u32 + i as u32));
        }
    }
    lanes.into_iter().fold(u32::MAX, u32::min)
}
