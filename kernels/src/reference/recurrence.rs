//! States that follow each row's logical sequence, by gated delta rules or selective scans.

use crate::{
    Recurrence, RowsMut, StateRule,
    kv::{LEAST_SQUARES, STATE_LANES},
};
use std::ops::Range;

/// Keeps what goes in of every row that has a slot, then writes `out` (`[W, H B]`), row by row from the committed
/// state. States are of f32; all else is of f64.
pub fn recurrence(args: &Recurrence<'_>, mut out: RowsMut<'_>) {
    args.check(&out);
    let shape = args.memory.shape();
    for w in 0..out.width() {
        out.row(w).fill(0.0);
    }
    let Some(from) = args.committed() else { return };
    for unit in 0..args.units() {
        let members = || (0..shape.unit_heads()).map(|member| args.value_head(unit, member));
        // One row of the forward sees all rows that every one sees.
        let any = args.stored().next().expect("a row that is no padding").0;
        // SAFETY: `StateLayer::from_raw` reserved the unit to us.
        let committed = unsafe {
            let committed = loop {
                let (state, rows) = args.memory.newest(unit, from);
                if rows.is_empty() {
                    break state;
                }
                for row in rows.clone() {
                    absorb(args, unit, [from, any, row], state);
                }
                args.memory.followed(unit, rows.end);
            };
            args.keep(unit);
            &*committed
        };
        for (w, _) in args.stored() {
            let mut state = committed.to_vec();
            let mut results = Vec::new();
            for position in from..args.tails.len(w) {
                results = absorb(args, unit, [from, w, position], &mut state);
            }
            for (head, result) in members().zip(results) {
                let columns = head * shape.value_dim..(head + 1) * shape.value_dim;
                for (to, result) in out.span(w, columns).iter_mut().zip(result) {
                    *to = result as f32;
                }
            }
        }
    }
}

/// Where a state has the element of row `i` and of a column.
fn place(key_dim: usize, i: usize, column: usize) -> usize {
    (column / STATE_LANES * key_dim + i) * STATE_LANES + column % STATE_LANES
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Lets the states of a unit follow the row at a position of the sequence of row `w`, where the first `from` positions
/// are committed; gives the results of each of its heads.
fn absorb(
    args: &Recurrence<'_>,
    unit: usize,
    [from, w, position]: [usize; 3],
    state: &mut [f32],
) -> Vec<Vec<f64>> {
    let (shape, weights) = (args.memory.shape(), args.weights);
    let (sources, count) = args.read(from, w, position);
    let convolved = |channels: Range<usize>| -> Vec<f64> {
        let channel = |c: usize| {
            let tap = |back: usize| f64::from(weights.taps[c * shape.taps + shape.taps - 1 - back]);
            let sum: f64 = (0..count).map(|back| tap(back) * f64::from(sources[back].channels()[c])).sum();
            let sum = sum + weights.scan.map_or(0.0, |scan| f64::from(scan.channels[c]));
            sum * sigmoid(sum)
        };
        channels.map(channel).collect()
    };
    let divided = |x: Vec<f64>, by: f64| -> Vec<f64> {
        let squares: f64 = x.iter().map(|x| x * x).sum();
        let divisor = ((squares + f64::from(LEAST_SQUARES)) * by).sqrt();
        x.into_iter().map(|x| x / divisor).collect()
    };
    let [mut query, mut key] = [args.query(unit), args.key(unit)].map(&convolved);
    if shape.rule == StateRule::Delta {
        (query, key) = (divided(query, shape.key_dim as f64), divided(key, 1.0));
    }
    let of_head = |member: usize| -> Vec<f64> {
        let head = args.value_head(unit, member);
        let [step, rate] = args.said(&sources[0], head).map(f64::from);
        let stored = f64::from(weights.decays[head]);
        let speed = if args.form.is_logarithm { stored.exp() } else { -stored };
        let [shortest, longest] = args.form.steps.map(f64::from);
        let step = (step + f64::from(weights.biases[head])).exp().ln_1p().clamp(shortest, longest);
        let decay = (-speed * step).exp();
        let state = &mut state[member * shape.head_state()..][..shape.head_state()];
        let follow = |(column, value): (usize, f64)| {
            let at = |i: usize| place(shape.key_dim, i, column);
            let decayed = |state: &[f32], i: usize| decay * f64::from(state[at(i)]);
            let change = match shape.rule {
                StateRule::Delta => {
                    let known: f64 = key.iter().enumerate().map(|(i, k)| k * decayed(state, i)).sum();
                    sigmoid(rate) * (value - known)
                }
                StateRule::Scan => step * value,
            };
            for (i, k) in key.iter().enumerate() {
                state[at(i)] = (decayed(state, i) + k * change) as f32;
            }
            let product: f64 = query.iter().enumerate().map(|(i, q)| q * f64::from(state[at(i)])).sum();
            product + weights.scan.map_or(0.0, |scan| f64::from(scan.skips[head]) * value)
        };
        convolved(args.value(head)).into_iter().enumerate().map(follow).collect()
    };
    (0..shape.unit_heads()).map(of_head).collect()
}
