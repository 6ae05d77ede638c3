//! Root-mean-square normalisation. Equal in every tier.

use super::lanes::{LANES, Lanes, Work};
use crate::Norm;

/// Chains of squares, each of vectors `i` modulo their number, so that a sum does not wait for the one before it. Their
/// number decides bits.
const CHAINS: usize = 2;

/// Normalises one row.
pub(super) struct RmsNorm<'a> {
    pub(super) x: &'a [f32],
    pub(super) norm: Norm<'a>,
    pub(super) out: &'a mut [f32],
}

impl Work for RmsNorm<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { x, norm, out } = self;
        let scale = s.splat(scale(s, x, norm.eps));
        for at in (0..x.len()).step_by(LANES) {
            let scaled = s.mul(s.load_part(x, at), scale);
            s.store_part(out, at, s.mul(scaled, s.load_part(norm.weight, at)));
        }
    }
}

/// `1 / sqrt(mean(x^2) + eps)`: what a row is multiplied with, before it is multiplied with the weights.
#[inline(always)]
pub(super) fn scale<S: Lanes>(s: S, x: &[f32], eps: f32) -> f32 {
    let mut chains = [s.splat(0.0); CHAINS];
    for at in (0..x.len()).step_by(CHAINS * LANES) {
        for (i, chain) in chains.iter_mut().enumerate() {
            let x = s.load_part(x, at + i * LANES);
            *chain = s.fused(x, x, *chain);
        }
    }
    let squares = s.sum(s.add(chains[0], chains[1]));
    1.0 / (squares / x.len() as f32 + eps).sqrt()
}
