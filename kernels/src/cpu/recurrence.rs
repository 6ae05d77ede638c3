//! States that follow each row's logical sequence, by gated delta rules or selective scans. Equal in every tier.
//!
//! A state never leaves its thread: rows are walked so that each begins with the state that another ended with, as far
//! as their sequences agree. Where sequences part, the state there is saved, if there is room, or made again: the same
//! operations give the same bits.
//!
//! Rows that follow each other without a save between them are a run: what they do to states is prepared for all of
//! them, and then 16 columns of a state, which the first cache holds, follow the whole run before the next 16 do.

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

/// Most rows of a run. With more, their keys and queries leave the first cache (16 rows of 128 elements each are 16 KB).
const RUN: usize = 16;

/// Numbers that are kept of what a row says of a head: its decay, its step, its rate.
const SAID: usize = 3;

/// Scratch of one thread for rows of so many, bytes.
pub(super) fn scratch_bytes(shape: StateShape, width: usize) -> usize {
    let floats = (1 + SAVED) * shape.unit_state()
        + row_floats(shape) * (1 + shape.taps)
        + RUN * prepared_floats(shape);
    (floats + Order::ARRAYS * width.next_multiple_of(LANES)) * size_of::<f32>()
}

/// Channels of a unit, each of its parts in whole vectors.
fn row_floats(shape: StateShape) -> usize {
    let padded = |len: usize| len.next_multiple_of(LANES);
    2 * padded(shape.key_dim) + shape.unit_heads() * padded(shape.value_dim)
}

/// A prepared row: its channels, and then what it says of each head.
fn prepared_floats(shape: StateShape) -> usize {
    row_floats(shape) + (SAID * shape.unit_heads()).next_multiple_of(LANES)
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
        let arrays = Order::ARRAYS * args.x.width().next_multiple_of(LANES) * size_of::<u32>();
        let (numbers, rest) = scratch.split_at_mut(arrays);
        let (taps, rest) = floats_mut(rest).split_at_mut(row_floats(shape) * (1 + shape.taps));
        let (rows, rest) = rest.split_at_mut(RUN * prepared_floats(shape));
        let (state, saved) = rest.split_at_mut(shape.unit_state());
        let order = args.committed().map(|from| Order::new(args, from, numbers_mut(numbers)));
        for unit in units {
            for w in 0..out.width() {
                for head in (0..shape.unit_heads()).map(|member| args.value_head(unit, member)) {
                    out.span(w, head * shape.value_dim..(head + 1) * shape.value_dim).fill(0.0);
                }
            }
            if let Some(order) = &order {
                let (taps, rows) = (&mut *taps, &mut *rows);
                let mut run =
                    Run { args, unit, from: order.from, taps, rows, results: [None; RUN], count: 0 };
                run.gather_taps();
                walk(s, order, &mut run, [&mut *state, &mut *saved], &mut out);
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

/// The order in which the rows of a forward are walked, for every unit.
struct Order<'a> {
    /// Committed rows, whose state all others come from.
    from: usize,
    /// The rows, each after those that its sequence begins with.
    rows: &'a [u32],
    /// Of each, positions after the committed ones that its sequence shares with that of the row before it; of the first 0.
    shared: &'a [u32],
    /// Of each, positions of its sequence after the committed ones.
    depths: &'a [u32],
}

impl<'a> Order<'a> {
    const ARRAYS: usize = 3;

    fn new(args: &Recurrence<'_>, from: usize, numbers: &'a mut [u32]) -> Self {
        let each = numbers.len() / Self::ARRAYS;
        let (rows, rest) = numbers.split_at_mut(each);
        let (shared, depths) = rest.split_at_mut(each);
        let count = args.order(from, rows);
        let row = |place: usize| rows[place] as usize;
        for place in 0..count {
            let common = |before: usize| args.common(from, [row(before), row(place)]) as u32;
            shared[place] = place.checked_sub(1).map_or(0, common);
            depths[place] = (args.tails.len(row(place)) - from) as u32;
        }
        Self { from, rows: &rows[..count], shared: &shared[..count], depths: &depths[..count] }
    }

    /// Whether a later row goes on from the depth `at` of the path to the row at `place`.
    fn parts_at(&self, place: usize, at: usize) -> bool {
        self.shared[place + 1..].iter().find(|shared| **shared as usize <= at) == Some(&(at as u32))
    }
}

/// Where a state is that a run begins with.
#[derive(Clone, Copy)]
enum Begin {
    /// Where the run leaves it.
    Here,
    Committed,
    Saved(usize),
}

/// The walk over all rows of a forward for one unit.
#[inline(always)]
fn walk<S: Lanes>(
    s: S,
    order: &Order<'_>,
    run: &mut Run<'_>,
    [state, saved]: [&mut [f32]; 2],
    out: &mut RowsMut<'_>,
) {
    let (args, unit, len) = (run.args, run.unit, state.len());
    let row = |place: usize| order.rows[place] as usize;
    // SAFETY: `StateLayer::from_raw` reserved the unit to us.
    let committed = unsafe {
        let committed = loop {
            let (newest, rows) = args.memory.newest(unit, order.from);
            if rows.is_empty() {
                break newest;
            }
            for position in rows.clone() {
                if run.count == RUN {
                    run.follow(s, None, newest, out);
                }
                run.prepare(s, [row(0), position], false);
            }
            run.follow(s, None, newest, out);
            args.memory.followed(unit, rows.end);
        };
        args.keep(unit);
        &*committed
    };
    // Depths at which states are saved, ascending.
    let (mut depths, mut count) = ([0; SAVED], 0);
    let mut begin = Begin::Committed;
    for place in 0..order.rows.len() {
        let mut at = order.shared[place] as usize;
        if place > 0 && at < order.depths[place - 1] as usize {
            run.follow(s, source(begin, committed, saved, len), state, out);
            while count > 0 && depths[count - 1] > at {
                count -= 1;
            }
            // What lies between is made again.
            (begin, at) = match count.checked_sub(1) {
                Some(last) => (Begin::Saved(last), depths[last]),
                None => (Begin::Committed, 0),
            };
        }
        let end = order.depths[place] as usize;
        while at < end {
            let is_saved = count > 0 && depths[count - 1] >= at;
            if at > 0 && !is_saved && count < SAVED && order.parts_at(place, at) {
                run.follow(s, source(begin, committed, saved, len), state, out);
                begin = Begin::Here;
                saved[count * len..(count + 1) * len].copy_from_slice(state);
                depths[count] = at;
                count += 1;
            }
            if run.count == RUN {
                run.follow(s, source(begin, committed, saved, len), state, out);
                begin = Begin::Here;
            }
            at += 1;
            run.prepare(s, [row(place), order.from + at - 1], at == end);
        }
        if place > 0 && order.shared[place] as usize == end {
            // It has the sequence of the row before it, and so its results.
            run.follow(s, source(begin, committed, saved, len), state, out);
            begin = Begin::Here;
            run.repeat(row(place - 1), row(place), out);
        }
    }
    run.follow(s, source(begin, committed, saved, len), state, out);
}

/// The state that a run begins with, where it is another one than it leaves.
#[inline(always)]
fn source<'a>(begin: Begin, committed: &'a [f32], saved: &'a [f32], len: usize) -> Option<&'a [f32]> {
    match begin {
        Begin::Here => None,
        Begin::Committed => Some(committed),
        Begin::Saved(number) => Some(&saved[number * len..(number + 1) * len]),
    }
}

/// Rows that the states of a unit are to follow, prepared for that.
struct Run<'a> {
    args: &'a Recurrence<'a>,
    unit: usize,
    /// Committed rows.
    from: usize,
    /// `[T + 1, ...]`: of each tap, its factors for the channels of the unit; then their biases.
    taps: &'a mut [f32],
    /// `[RUN, ...]`: of each row its channels after the convolution, query, key and values; and of each head its decay,
    /// its step and its rate.
    rows: &'a mut [f32],
    /// Of each row, the row of the forward that it gives results to.
    results: [Option<usize>; RUN],
    count: usize,
}

impl<'a> Run<'a> {
    /// The parts of a unit's channels: where they are in rows, and where in those that are prepared; the query first.
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
        let shape = self.args.memory.shape();
        let (count, len) = (shape.taps, row_floats(shape));
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

    /// Adds the row at a position of the sequence of row `w`, whose results are those of `w` if it `has_results`.
    #[inline(always)]
    fn prepare<S: Lanes>(&mut self, s: S, [w, position]: [usize; 2], has_results: bool) {
        let (args, shape) = (self.args, self.args.memory.shape());
        let (sources, count) = args.read(self.from, w, position);
        self.convolve(s, &sources[..count], has_results);
        let len = prepared_floats(shape);
        let (channels, said) = self.rows[self.count * len..][..len].split_at_mut(row_floats(shape));
        if shape.rule == StateRule::Delta {
            let key = shape.key_dim.next_multiple_of(LANES);
            scale(s, &mut channels[key..][..shape.key_dim], 1.0);
            if has_results {
                scale(s, &mut channels[..shape.key_dim], shape.key_dim as f32);
            }
        }
        for (member, said) in said.chunks_exact_mut(SAID).take(shape.unit_heads()).enumerate() {
            let head = args.value_head(self.unit, member);
            let [step, rate] = args.said(&sources[0], head);
            let [decay, step] = decay(s, args, head, step);
            said[0] = s.first(decay);
            said[1] = s.first(step);
            said[2] = s.first(sigmoid(s, s.splat(rate)));
        }
        self.results[self.count] = has_results.then_some(w);
        self.count += 1;
    }

    /// Convolves the channels of the unit over these rows, the nearest first; those of the query only if it is asked for.
    #[inline(always)]
    fn convolve<S: Lanes>(&mut self, s: S, sources: &[Source<'_>], has_query: bool) {
        let shape = self.args.memory.shape();
        let (count, len) = (shape.taps, row_floats(shape));
        let to = self.count * prepared_floats(shape);
        for (channels, place) in self.parts().skip(usize::from(!has_query)) {
            for at in (0..channels.len()).step_by(LANES) {
                let mut sum = s.load_part(self.taps, count * len + place + at);
                for (back, source) in sources.iter().enumerate() {
                    let found = s.load_part(&source.channels()[channels.clone()], at);
                    let tap = s.load_part(self.taps, (count - 1 - back) * len + place + at);
                    sum = s.fused(tap, found, sum);
                }
                let end = to + place + channels.len();
                s.store_part(&mut self.rows[..end], to + place + at, silu(s, sum));
            }
        }
    }

    /// Lets the states, which are those of `source` if it is given, follow the rows, of which none are left.
    #[inline(always)]
    fn follow<S: Lanes>(&mut self, s: S, source: Option<&[f32]>, states: &mut [f32], out: &mut RowsMut<'_>) {
        let (args, shape) = (self.args, self.args.memory.shape());
        if self.count == 0 {
            if let Some(source) = source {
                states.copy_from_slice(source);
            }
            return;
        }
        let (len, channels) = (prepared_floats(shape), row_floats(shape));
        let [key, value] = [shape.key_dim, shape.value_dim].map(|len| len.next_multiple_of(LANES));
        for member in 0..shape.unit_heads() {
            let head = args.value_head(self.unit, member);
            let columns = head * shape.value_dim..(head + 1) * shape.value_dim;
            for block in 0..value / LANES {
                let first = member * shape.head_state() + block * shape.key_dim * LANES;
                let of_block = first..first + shape.key_dim * LANES;
                let mut from = source.map(|source| &source[of_block.clone()]);
                let state = &mut states[of_block];
                for (row, result) in self.rows.chunks_exact(len).zip(&self.results[..self.count]) {
                    let (row, said) = row.split_at(channels);
                    let values = &row[2 * key + member * value..][..shape.value_dim];
                    let values = s.load_part(values, block * LANES);
                    let [decay, step, rate] = [0, 1, 2].map(|number| said[member * SAID + number]);
                    let query = result.is_some().then_some(&row[..shape.key_dim]);
                    let key = &row[key..][..shape.key_dim];
                    let decay = s.splat(decay);
                    let found = match args.weights.scan {
                        None => {
                            let known = known(s, from.unwrap_or(state), decay, key);
                            let change = s.mul(s.splat(rate), s.sub(values, known));
                            update(s, from, state, [decay, change], key, query)
                        }
                        Some(scan) => {
                            let change = s.mul(s.splat(step), values);
                            let found = update(s, from, state, [decay, change], key, query);
                            s.fused(s.splat(scan.skips[head]), values, found)
                        }
                    };
                    from = None;
                    if let Some(w) = result {
                        s.store_part(out.span(*w, columns.clone()), block * LANES, found);
                    }
                }
            }
        }
        self.count = 0;
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

/// Decays 16 columns of a state, which are those of `from` if it is given, and adds the product of a key and a change;
/// with a query, gives its product with them.
#[inline(always)]
fn update<S: Lanes>(
    s: S,
    from: Option<&[f32]>,
    state: &mut [f32],
    [decay, change]: [S::V; 2],
    key: &[f32],
    query: Option<&[f32]>,
) -> S::V {
    let len = key.len() * LANES;
    let is_whole =
        from.is_none_or(|from| from.len() == len) && query.is_none_or(|query| query.len() == key.len());
    assert!(state.len() == len && is_whole, "a vector for each element of the key");
    let whole = key.len() / CHAINS * CHAINS;
    let to = state.as_mut_ptr();
    let from = from.map_or(to.cast_const(), <[f32]>::as_ptr);
    let mut sums = [s.splat(0.0); CHAINS];
    // SAFETY: 16 elements for each of the key's, by the assertion; the state is ours.
    unsafe {
        match query {
            None => {
                for (i, key) in key.iter().enumerate() {
                    follow_element(s, [decay, change], *key, from.add(i * LANES), to.add(i * LANES));
                }
            }
            Some(query) => {
                for first in (0..whole).step_by(CHAINS) {
                    for (chain, sum) in sums.iter_mut().enumerate() {
                        let i = first + chain;
                        let (from, to) = (from.add(i * LANES), to.add(i * LANES));
                        let followed = follow_element(s, [decay, change], key[i], from, to);
                        *sum = s.fused(s.splat(query[i]), followed, *sum);
                    }
                }
                for i in whole..key.len() {
                    let (from, to) = (from.add(i * LANES), to.add(i * LANES));
                    let followed = follow_element(s, [decay, change], key[i], from, to);
                    sums[i - whole] = s.fused(s.splat(query[i]), followed, sums[i - whole]);
                }
            }
        }
    }
    joined(s, sums)
}

/// The same of one element of the key.
///
/// # Safety
/// There are 16 numbers at each address, and nobody else uses those at the second.
#[inline(always)]
unsafe fn follow_element<S: Lanes>(
    s: S,
    [decay, change]: [S::V; 2],
    key: f32,
    from: *const f32,
    to: *mut f32,
) -> S::V {
    // SAFETY: promised by the caller.
    unsafe {
        let followed = s.fused(s.splat(key), change, s.mul(s.load(from), decay));
        s.store(to, followed);
        followed
    }
}
