//! The gated activation: `silu(gate) * up`. Equal in every tier.

use super::lanes::{LANES, Lanes, Work, silu};

/// `out = silu(gate) * up`, of one row.
pub(super) struct Swiglu<'a> {
    pub(super) gate: &'a [f32],
    pub(super) up: &'a [f32],
    pub(super) out: &'a mut [f32],
}

impl Work for Swiglu<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { gate, up, out } = self;
        for at in (0..out.len()).step_by(LANES) {
            let gated = s.mul(silu(s, s.load_part(gate, at)), s.load_part(up, at));
            s.store_part(out, at, gated);
        }
    }
}
