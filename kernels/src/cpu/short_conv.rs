//! A short convolution along each row's logical sequence, between two gates. Equal in every tier.

use super::lanes::{LANES, Lanes, Work};
use crate::{RowsMut, ShortConv};
use std::ops::Range;

const _: () = assert!(ShortConv::UNIT == LANES);

/// Keeps what goes in of the given units, then writes them.
pub(super) struct Convolve<'a> {
    pub(super) args: &'a ShortConv<'a>,
    pub(super) units: Range<usize>,
    pub(super) out: RowsMut<'a>,
}

impl Work for Convolve<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { args, units, mut out } = self;
        let (memory, count) = (args.memory, args.tap_count());
        for channels in units.map(|unit| args.channels(unit)) {
            for (w, slot) in args.stored() {
                // SAFETY: channels that `ConvLayer::from_raw` reserved to us.
                s.store_part(
                    unsafe { memory.kept_mut(slot, channels.clone()) },
                    0,
                    goes_in(s, args, w, &channels),
                );
            }
            let mut taps = [s.splat(0.0); ShortConv::MOST_TAPS];
            for (number, taps) in taps[..count].iter_mut().enumerate() {
                let mut lanes = [0.0; LANES];
                for (lane, c) in lanes.iter_mut().zip(channels.clone()) {
                    *lane = args.taps[c * count + number];
                }
                *taps = s.load_part(&lanes, 0);
            }
            for w in 0..args.x.width() {
                let mut sum = s.mul(taps[count - 1], goes_in(s, args, w, &channels));
                for (slot, number) in args.before(w) {
                    // SAFETY: as above; nobody writes them now.
                    let kept = unsafe { memory.kept(slot, channels.clone()) };
                    sum = s.fused(taps[number], s.load_part(kept, 0), sum);
                }
                let gate = s.load_part(args.parts(w, &channels)[1], 0);
                s.store_part(out.span(w, channels.clone()), 0, s.mul(gate, sum));
            }
        }
    }
}

/// What a row keeps of these channels.
#[inline(always)]
fn goes_in<S: Lanes>(s: S, args: &ShortConv<'_>, w: usize, channels: &Range<usize>) -> S::V {
    let [gate, _, value] = args.parts(w, channels);
    s.mul(s.load_part(gate, 0), s.load_part(value, 0))
}
