//! States that follow each row's logical sequence, by gated delta rules or selective scans. Equal in every tier.
//!
//! A state never leaves its thread: rows are walked so that each begins with the state that another ended with, as far
//! as their sequences agree. Where sequences part, the state there is saved, if there is room, or made again: the same
//! operations give the same bits.

use super::{
    activations::floats_mut,
    lanes::{LANES, Lanes, Work, exp, sigmoid, silu},
};
use crate::{
    Recurrence, RowsMut, StateRule, StateShape,
    kv::{LEAST_SQUARES, STATE_LANES, Source},
};
use std::ops::Range;

const _: () = assert!(STATE_LANES == LANES);

/// Most states that are saved where sequences part: as many parents with several children as are on one path of a
/// usual tree.
const SAVED: usize = 6;

/// Sums over the rows of a state, row `i` in that of number `i` modulo theirs, so that an addition does not wait for
/// the one before it. Their number decides bits.
const CHAINS: usize = 4;

/// Scratch of one thread for rows of so many, bytes.
pub(super) fn scratch_bytes(shape: StateShape, width: usize) -> usize {
    let floats = (1 + SAVED) * shape.unit_state() + row_floats(shape) * (2 + shape.taps);
    (floats + width.next_multiple_of(LANES)) * size_of::<f32>()
}

/// Channels of a unit, each of its parts in whole vectors.
fn row_floats(shape: StateShape) -> usize {
    let padded = |len: usize| len.next_multiple_of(LANES);
    2 * padded(shape.key_dim) + shape.unit_heads() * padded(shape.value_dim)
}

/// Keeps what goes into the given units, then writes their heads.
pub(super) struct Follow<'a> {
    pub(super) args: &'a Recurrence<'a>,
    pub(super) units: Range<usize>,
    pub(super) scratch: &'a mut [u8],
    pub(super) out: RowsMut<'a>,
}

impl Work for Follow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { args, units, scratch, mut out } = self;
        let shape = args.memory.shape();
        let (order, rest) = scratch.split_at_mut(args.x.width().next_multiple_of(LANES) * size_of::<u32>());
        let order = numbers_mut(order);
        let (taps, rest) = floats_mut(rest).split_at_mut(row_floats(shape) * (1 + shape.taps));
        let (row, rest) = rest.split_at_mut(row_floats(shape));
        let (state, saved) = rest.split_at_mut(shape.unit_state());
        let from = args.committed();
        let count = from.map_or(0, |from| args.order(from, order));
        for unit in units {
            for w in 0..out.width() {
                for head in (0..shape.unit_heads()).map(|member| args.value_head(unit, member)) {
                    out.span(w, head * shape.value_dim..(head + 1) * shape.value_dim).fill(0.0);
                }
            }
            if let Some(from) = from {
                let mut step = Step { args, unit, from, taps: &mut *taps, row: &mut *row };
                step.gather_taps();
                let walk = Walk { from, order: &order[..count], state: &mut *state, saved: &mut *saved };
                walk.run(s, &mut step, &mut out);
            }
        }
    }
}

/// Row numbers in bytes that are aligned for them.
fn numbers_mut(bytes: &mut [u8]) -> &mut [u32] {
    // SAFETY: every bit pattern is a number.
    let (before, numbers, after) = unsafe { bytes.align_to_mut() };
    assert!(before.is_empty() && after.is_empty(), "scratch that is aligned");
    numbers
}

/// The walk over all rows of a forward for one unit.
struct Walk<'a> {
    /// Committed rows, whose state all others come from.
    from: usize,
    /// The rows, each after those that its sequence begins with.
    order: &'a [u32],
    state: &'a mut [f32],
    saved: &'a mut [f32],
}

impl Walk<'_> {
    #[inline(always)]
    fn run<S: Lanes>(self, s: S, step: &mut Step<'_>, out: &mut RowsMut<'_>) {
        let Self { from, order, state, saved } = self;
        let (args, unit) = (step.args, step.unit);
        let len = state.len();
        let first = order[0] as usize;
        // SAFETY: `StateLayer::from_raw` reserved the unit to us.
        let committed = unsafe {
            let committed = args.memory.advance(unit, from, |state, row| {
                step.absorb(s, first, row, state, None);
            });
            args.keep(unit);
            &*committed
        };
        let row = |place: usize| order[place] as usize;
        let depth = |place: usize| args.tails.len(row(place)) - from;
        let common = |place: usize| args.common(from, [row(place - 1), row(place)]);
        // Whether a later row goes on from the depth `at` of the path to the row at `place`.
        let parts_at = |place: usize, at: usize| {
            let shared = (place + 1..order.len()).map(common).find(|shared| *shared <= at);
            shared == Some(at)
        };
        // Depths at which states are saved, ascending.
        let (mut depths, mut count) = ([0; SAVED], 0);
        state.copy_from_slice(committed);
        for place in 0..order.len() {
            let mut at = if place == 0 { 0 } else { common(place) };
            if place > 0 && at < depth(place - 1) {
                while count > 0 && depths[count - 1] > at {
                    count -= 1;
                }
                // What lies between is made again.
                let nearest =
                    count.checked_sub(1).map(|last| (&saved[last * len..count * len], depths[last]));
                let (nearest, depth) = nearest.unwrap_or((committed, 0));
                state.copy_from_slice(nearest);
                at = depth;
            }
            let end = depth(place);
            while at < end {
                let is_saved = count > 0 && depths[count - 1] >= at;
                if at > 0 && !is_saved && count < SAVED && parts_at(place, at) {
                    saved[count * len..(count + 1) * len].copy_from_slice(state);
                    depths[count] = at;
                    count += 1;
                }
                at += 1;
                let result = (at == end).then_some(&mut *out);
                step.absorb(s, row(place), from + at - 1, state, result);
            }
            if place > 0 && common(place) == end {
                // It has the sequence of the row before it, and so its results.
                step.repeat(row(place - 1), row(place), out);
            }
        }
    }
}

/// One row's step of a unit's states.
struct Step<'a> {
    args: &'a Recurrence<'a>,
    unit: usize,
    /// Committed rows.
    from: usize,
    /// `[T + 1, ...]`: of each tap, its factors for the channels of the unit; then their biases.
    taps: &'a mut [f32],
    /// The channels of one row after the convolution: query, key, values.
    row: &'a mut [f32],
}

impl<'a> Step<'a> {
    /// The parts of a unit's channels: where they are in rows, and where in `row`.
    #[inline(always)]
    fn parts(&self) -> impl Iterator<Item = (Range<usize>, usize)> + use<'a> {
        let (args, unit, shape) = (self.args, self.unit, self.args.memory.shape());
        let key = shape.key_dim.next_multiple_of(LANES);
        let value = shape.value_dim.next_multiple_of(LANES);
        let of_values = (0..shape.unit_heads())
            .map(move |member| (args.value(args.value_head(unit, member)), 2 * key + member * value));
        [(args.query(unit), 0), (args.key(unit), key)].into_iter().chain(of_values)
    }

    /// Reads the taps of the unit's channels, and their biases.
    #[inline(always)]
    fn gather_taps(&mut self) {
        let count = self.args.memory.shape().taps;
        let len = self.row.len();
        let biases = self.args.weights.scan.map(|scan| scan.channels);
        for (channels, place) in self.parts() {
            for (i, c) in channels.enumerate() {
                for number in 0..count {
                    self.taps[number * len + place + i] = self.args.weights.taps[c * count + number];
                }
                self.taps[count * len + place + i] = biases.map_or(0.0, |biases| biases[c]);
            }
        }
    }

    /// Lets the states of the unit follow the row at a position of the sequence of row `w`, whose results are written
    /// if `out` is given.
    #[inline(always)]
    fn absorb<S: Lanes>(
        &mut self,
        s: S,
        w: usize,
        position: usize,
        state: &mut [f32],
        out: Option<&mut RowsMut<'_>>,
    ) {
        let (args, shape) = (self.args, self.args.memory.shape());
        let (sources, count) = args.read(self.from, w, position);
        self.convolve(s, &sources[..count]);
        let key = shape.key_dim.next_multiple_of(LANES);
        let (query, rest) = self.row.split_at_mut(key);
        let (key, values) = rest.split_at_mut(key);
        let (query, key) = (&mut query[..shape.key_dim], &mut key[..shape.key_dim]);
        if shape.rule == StateRule::Delta {
            scale(s, key, 1.0);
            if out.is_some() {
                scale(s, query, shape.key_dim as f32);
            }
        }
        let mut out = out;
        for (member, values) in values.chunks(shape.value_dim.next_multiple_of(LANES)).enumerate() {
            let head = args.value_head(self.unit, member);
            let [step, rate] = args.said(&sources[0], head);
            let [decay, step] = decay(s, args, head, step);
            let state = &mut state[member * shape.head_state()..][..shape.head_state()];
            let mut results = out
                .as_deref_mut()
                .map(|out| out.span(w, head * shape.value_dim..(head + 1) * shape.value_dim));
            for (block, state) in state.chunks_exact_mut(shape.key_dim * LANES).enumerate() {
                let value = s.load_part(&values[..shape.value_dim], block * LANES);
                let query = results.is_some().then_some(&*query);
                let result = match args.weights.scan {
                    None => {
                        let rate = sigmoid(s, s.splat(rate));
                        let change = s.mul(rate, s.sub(value, known(s, state, decay, key)));
                        update(s, state, [decay, change], key, query)
                    }
                    Some(scan) => {
                        let result = update(s, state, [decay, s.mul(step, value)], key, query);
                        s.fused(s.splat(scan.skips[head]), value, result)
                    }
                };
                if let Some(results) = &mut results {
                    s.store_part(results, block * LANES, result);
                }
            }
        }
    }

    /// Convolves the channels of the unit over these rows, the nearest first.
    #[inline(always)]
    fn convolve<S: Lanes>(&mut self, s: S, sources: &[Source<'_>]) {
        let (count, len) = (self.args.memory.shape().taps, self.row.len());
        for (channels, place) in self.parts() {
            for at in (0..channels.len()).step_by(LANES) {
                let mut sum = s.load_part(self.taps, count * len + place + at);
                for (back, source) in sources.iter().enumerate() {
                    let found = s.load_part(&source.channels()[channels.clone()], at);
                    let tap = s.load_part(self.taps, (count - 1 - back) * len + place + at);
                    sum = s.fused(tap, found, sum);
                }
                let end = place + channels.len();
                s.store_part(&mut self.row[..end], place + at, silu(s, sum));
            }
        }
    }

    /// Gives a row the results of another, which has the same sequence.
    #[inline(always)]
    fn repeat(&self, from: usize, to: usize, out: &mut RowsMut<'_>) {
        let shape = self.args.memory.shape();
        for head in (0..shape.unit_heads()).map(|member| self.args.value_head(self.unit, member)) {
            for column in head * shape.value_dim..(head + 1) * shape.value_dim {
                let result = out.span(from, column..column + 1)[0];
                out.span(to, column..column + 1)[0] = result;
            }
        }
    }
}

/// The decay of a head's state by a row that says `step` of its step, and the step.
#[inline(always)]
fn decay<S: Lanes>(s: S, args: &Recurrence<'_>, head: usize, step: f32) -> [S::V; 2] {
    let zero = s.splat(0.0);
    let stored = s.splat(args.weights.decays[head]);
    let speed = if args.form.is_logarithm { exp(s, stored) } else { s.sub(zero, stored) };
    let [shortest, longest] = args.form.steps.map(|bound| s.splat(bound));
    let step = softplus(s, s.splat(step + args.weights.biases[head]));
    let step = s.min(longest, s.max(shortest, step));
    [exp(s, s.sub(zero, s.mul(speed, step))), step]
}

/// `x / sqrt((x . x + 1e-6) by)`.
#[inline(always)]
fn scale<S: Lanes>(s: S, x: &mut [f32], by: f32) {
    let mut squares = s.splat(0.0);
    for at in (0..x.len()).step_by(LANES) {
        let part = s.load_part(x, at);
        squares = s.fused(part, part, squares);
    }
    let factor = s.splat(1.0 / ((s.sum(squares) + LEAST_SQUARES) * by).sqrt());
    for at in (0..x.len()).step_by(LANES) {
        let part = s.mul(s.load_part(x, at), factor);
        s.store_part(x, at, part);
    }
}

/// `ln(1 + e^x)`, as `max(x, 0) + ln(1 + t)` with `t = e^-|x|`; and `ln(1 + t)` by the series of `2 atanh(t / (2 + t))`,
/// of which 9 terms are enough: the next is below `2^-25` of the sum, since the argument is at most 1/3.
#[inline(always)]
fn softplus<S: Lanes>(s: S, x: S::V) -> S::V {
    let zero = s.splat(0.0);
    let magnitude = s.max(x, s.sub(zero, x));
    let t = exp(s, s.sub(zero, magnitude));
    let z = s.div(t, s.add(s.splat(2.0), t));
    let square = s.mul(z, z);
    let mut sum = s.splat(1.0 / 17.0);
    for term in (0..8).rev() {
        sum = s.fused(sum, square, s.splat(1.0 / (2 * term + 1) as f32));
    }
    s.fused(s.add(z, z), sum, s.max(x, zero))
}

/// Sums over the rows of a state, joined.
#[inline(always)]
fn joined<S: Lanes>(s: S, [a, b, c, d]: [S::V; CHAINS]) -> S::V {
    s.add(s.add(a, c), s.add(b, d))
}

/// What 16 columns of a state, decayed, know of a key: their product.
#[inline(always)]
fn known<S: Lanes>(s: S, state: &[f32], decay: S::V, key: &[f32]) -> S::V {
    assert_eq!(state.len(), key.len() * LANES, "a vector for each element of the key");
    let whole = key.len() / CHAINS * CHAINS;
    // SAFETY: 16 elements for each of the key's, by the assertion.
    let decayed = |i: usize| s.mul(unsafe { s.load(state.as_ptr().add(i * LANES)) }, decay);
    let mut sums = [s.splat(0.0); CHAINS];
    for first in (0..whole).step_by(CHAINS) {
        for (chain, sum) in sums.iter_mut().enumerate() {
            *sum = s.fused(s.splat(key[first + chain]), decayed(first + chain), *sum);
        }
    }
    for i in whole..key.len() {
        sums[i - whole] = s.fused(s.splat(key[i]), decayed(i), sums[i - whole]);
    }
    joined(s, sums)
}

/// Decays 16 columns of a state and adds the product of a key and a change; with a query, gives its product with them.
#[inline(always)]
fn update<S: Lanes>(
    s: S,
    state: &mut [f32],
    [decay, change]: [S::V; 2],
    key: &[f32],
    query: Option<&[f32]>,
) -> S::V {
    assert_eq!(state.len(), key.len() * LANES, "a vector for each element of the key");
    let whole = key.len() / CHAINS * CHAINS;
    let start = state.as_mut_ptr();
    let mut sums = [s.splat(0.0); CHAINS];
    let follow = |i: usize| {
        // SAFETY: 16 elements for each of the key's, by the assertion; the state is ours.
        unsafe {
            let at = start.add(i * LANES);
            let followed = s.fused(s.splat(key[i]), change, s.mul(s.load(at), decay));
            s.store(at, followed);
            followed
        }
    };
    match query {
        None => {
            for i in 0..key.len() {
                let _ = follow(i);
            }
        }
        Some(query) => {
            for first in (0..whole).step_by(CHAINS) {
                for (chain, sum) in sums.iter_mut().enumerate() {
                    *sum = s.fused(s.splat(query[first + chain]), follow(first + chain), *sum);
                }
            }
            for i in whole..key.len() {
                sums[i - whole] = s.fused(s.splat(query[i]), follow(i), sums[i - whole]);
            }
        }
    }
    joined(s, sums)
}
