//! The gate of an MLP, and the bound of logits. Equal in every tier.

use super::lanes::{LANES, Lanes, Work, gated, softcap};
use crate::Nonlinearity;

/// `out = function(gate) * up`, of one row.
pub(super) struct Gate<'a> {
    pub(super) function: Nonlinearity,
    pub(super) gate: &'a [f32],
    pub(super) up: &'a [f32],
    pub(super) out: &'a mut [f32],
}

impl Work for Gate<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { function, gate, up, out } = self;
        for at in (0..out.len()).step_by(LANES) {
            let product = gated(s, function, s.load_part(gate, at), s.load_part(up, at));
            s.store_part(out, at, product);
        }
    }
}

/// `x = cap * tanh(x / cap)`, of one row.
pub(super) struct Softcap<'a> {
    pub(super) cap: f32,
    pub(super) x: &'a mut [f32],
}

impl Work for Softcap<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { cap, x } = self;
        for at in (0..x.len()).step_by(LANES) {
            let bounded = softcap(s, cap, s.load_part(x, at));
            s.store_part(x, at, bounded);
        }
    }
}
