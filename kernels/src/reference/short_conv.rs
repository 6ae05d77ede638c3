//! A short convolution along each row's logical sequence, between two gates.

use crate::{RowsMut, ShortConv};

/// Keeps what goes in of every row that has a slot, then writes `out` (`[W, C]`).
pub fn short_conv(args: &ShortConv<'_>, mut out: RowsMut<'_>) {
    args.check(&out);
    let (memory, taps) = (args.memory, args.tap_count());
    for c in (0..args.units()).flat_map(|unit| args.channels(unit)) {
        let here = c..c + 1;
        let goes_in = |w: usize| {
            let [gate, _, value] = args.parts(w, &here);
            gate[0] * value[0]
        };
        for (w, slot) in args.stored() {
            // SAFETY: a channel that `ConvLayer::from_raw` reserved to us.
            unsafe { memory.kept_mut(slot, here.clone())[0] = goes_in(w) };
        }
        for w in 0..args.x.width() {
            let tap = |number: usize| f64::from(args.taps[c * taps + number]);
            // SAFETY: as above; nobody writes it now.
            let kept = |slot: usize| f64::from(unsafe { memory.kept(slot, here.clone()) }[0]);
            let before: f64 = args.before(w).map(|(slot, number)| tap(number) * kept(slot)).sum();
            let sum = tap(taps - 1) * f64::from(goes_in(w)) + before;
            out.span(w, here.clone())[0] = (f64::from(args.parts(w, &here)[1][0]) * sum) as f32;
        }
    }
}
