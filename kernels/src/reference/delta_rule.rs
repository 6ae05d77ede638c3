//! Gated delta rules along each row's logical sequence.

use crate::{
    DeltaRule, RowsMut,
    kv::{LEAST_SQUARES, STATE_LANES},
};
use std::ops::Range;

/// Keeps what goes in of every row that has a slot, then writes `out` (`[W, H B]`), row by row from the committed
/// state. States are of f32; all else is of f64.
pub fn delta_rule(args: &DeltaRule<'_>, mut out: RowsMut<'_>) {
    args.check(&out);
    let shape = args.memory.shape();
    for w in 0..out.width() {
        out.row(w).fill(0.0);
    }
    let Some(from) = args.committed() else { return };
    for unit in 0..args.units() {
        let members = || (0..shape.group()).map(|member| args.value_head(unit, member));
        // One row of the forward sees all rows that every one sees.
        let any = args.stored().next().expect("a row that is no padding").0;
        // SAFETY: `DeltaLayer::from_raw` reserved the unit to us.
        let committed = unsafe {
            let state = args.memory.advance(unit, from, |state, row| {
                absorb(args, unit, any, row, state);
            });
            args.keep(unit);
            &*state
        };
        for (w, _) in args.stored() {
            let mut state = committed.to_vec();
            let mut query = Vec::new();
            for position in from..args.tails.len(w) {
                query = absorb(args, unit, w, position, &mut state);
            }
            for (member, head) in members().enumerate() {
                let state = &state[member * shape.head_state()..][..shape.head_state()];
                let results = out.span(w, head * shape.value_dim..(head + 1) * shape.value_dim);
                for (column, result) in results.iter_mut().enumerate() {
                    let products = query
                        .iter()
                        .enumerate()
                        .map(|(i, q)| q * f64::from(state[place(shape.key_dim, i, column)]));
                    *result = products.sum::<f64>() as f32;
                }
            }
        }
    }
}

/// Where a state has the element of row `i` and of a column.
fn place(key_dim: usize, i: usize, column: usize) -> usize {
    (column / STATE_LANES * key_dim + i) * STATE_LANES + column % STATE_LANES
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Lets the states of a unit follow the row at a position of the sequence of row `w`; gives its query.
fn absorb(args: &DeltaRule<'_>, unit: usize, w: usize, position: usize, state: &mut [f32]) -> Vec<f64> {
    let (shape, weights) = (args.memory.shape(), args.weights);
    let (slots, count) = args.read(w, position);
    // SAFETY: parts of the unit, which is ours; nobody writes them now.
    let kept = |slot: usize, at: usize| f64::from(unsafe { args.memory.kept(slot, at..at + 1) }[0]);
    let convolved = |channels: Range<usize>| -> Vec<f64> {
        let channel = |c: usize| {
            let tap = |back: usize| f64::from(weights.taps[c * shape.taps + shape.taps - 1 - back]);
            silu((0..count).map(|back| tap(back) * kept(slots[back], c)).sum())
        };
        channels.map(channel).collect()
    };
    let divided = |x: Vec<f64>, by: f64| -> Vec<f64> {
        let squares: f64 = x.iter().map(|x| x * x).sum();
        let divisor = ((squares + f64::from(LEAST_SQUARES)) * by).sqrt();
        x.into_iter().map(|x| x / divisor).collect()
    };
    let query = divided(convolved(args.query(unit)), shape.key_dim as f64);
    let key = divided(convolved(args.key(unit)), 1.0);
    for member in 0..shape.group() {
        let head = args.value_head(unit, member);
        let [decay, rate] = args.said(head).map(|at| kept(slots[0], at));
        let stored = f64::from(weights.decays[head]);
        let speed = if args.form.is_logarithm { stored.exp() } else { -stored };
        let decay = (-speed * (decay + f64::from(weights.biases[head])).exp().ln_1p()).exp();
        let rate = 1.0 / (1.0 + (-rate).exp());
        let state = &mut state[member * shape.head_state()..][..shape.head_state()];
        for (column, value) in convolved(args.value(head)).into_iter().enumerate() {
            let at = |i: usize| place(shape.key_dim, i, column);
            let decayed = |state: &[f32], i: usize| decay * f64::from(state[at(i)]);
            let known: f64 = key.iter().enumerate().map(|(i, k)| k * decayed(state, i)).sum();
            for (i, k) in key.iter().enumerate() {
                state[at(i)] = (decayed(state, i) + k * rate * (value - known)) as f32;
            }
        }
    }
    query
}
