//! Attention of many units at once, which share the keys and values of a KV head. Equal in every tier.
//!
//! The meaning, to the last bit. The logical sequence of a row is cut into partitions of [`PARTITION`] positions,
//! aligned to its first. For a unit (row, query head):
//!
//! 1. *Scores.* Of each position, one chain of fused products over the elements of its key, from zero, then times the
//!    scale; over codes, times the product of the scale and that of the key. Then the bound, if there is one. Positions
//!    before the row's window count as minus infinity; partitions that lie before it count as not there.
//! 2. *Partition.* Its maximum `m`, its weights `exp(score - m)`, their sum `l` over 16 lanes (by position modulo 16,
//!    joined by halves), and for each element of the values one chain `o` of fused products with the weights, by
//!    position, from zero. Over codes, the weights of this chain are those times the scales of the values.
//! 3. *Join.* Partitions in order, [`fold`]: what has the smaller maximum is multiplied with `exp` of the difference
//!    and added to what has the larger, by one fused product.
//! 4. *Result.* `o` times `1 / l`. With a sink `s`, `m'` is the larger of `m` and `s`, and `o` is multiplied with
//!    `exp(m - m')` divided by the fused sum `l * exp(m - m') + exp(s - m')`.
//!
//! Nothing of it depends on slots, on other rows, or on how units and partitions are dealt to threads.

mod columns;
mod element;
mod partition;
mod score;
mod team;

use super::lanes::{LANES, Lanes, Work, exp};
use crate::{Attention, KvFormat, KvLayer, PartialsShape, Rows, RowsMut};
use element::{Code, Element, Float, Half};
use partition::{Mark, Room, partition};
use std::ops::Range;
use team::{Team, Unit};

/// Positions that are weighed together.
const PARTITION: usize = Attention::PARTITION;

/// Units that any tier works on together: the largest [`Lanes::UNITS`].
pub(super) const MOST_UNITS: usize = 6;

/// Units that meet a partition of keys and values while it is in a near cache: full batches of every tier's
/// [`Lanes::UNITS`].
pub(super) const TEAM: usize = 48;

/// Slots whose keys lie together.
const BLOCK: usize = KvLayer::KEY_BLOCK;

/// Numbers before the sums of values in a row of partial results: the maximum, the sum of weights, nothing.
const HEADER: usize = PartialsShape::HEADER;

/// Numbers of scratch.
pub(super) const fn scratch_len(head_dim: usize) -> usize {
    Room::len(head_dim)
}

/// Computes units, each over all of its logical sequence.
pub(super) struct WholeUnits<'a> {
    pub(super) args: &'a Attention<'a>,
    pub(super) units: Range<usize>,
    pub(super) scratch: &'a mut [f32],
    pub(super) out: RowsMut<'a>,
}

impl Work for WholeUnits<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        match self.args.kv.format() {
            KvFormat::F16 => self.over::<S, Half>(s),
            KvFormat::F32 => self.over::<S, Float>(s),
            KvFormat::Q8 => self.over::<S, Code>(s),
        }
    }
}

impl WholeUnits<'_> {
    #[inline(always)]
    fn over<S: Lanes, E: Element>(mut self, s: S) {
        let args = self.args;
        let mut room = Room::new(self.scratch, args.kv.head_dim());
        let mut first = self.units.start;
        while first < self.units.end {
            let team = Team::new(args, first, self.units.end);
            let mut marks = [Mark::NOTHING; TEAM];
            room.turn_queries::<S>(&team);
            for p in team.partitions() {
                for batch in team.batches(S::UNITS) {
                    let found = partition::<S, E>(s, &team, batch.clone(), p, &mut room);
                    for (i, (unit, found)) in batch.zip(found).enumerate() {
                        let Unit { first, len, .. } = team.unit(unit);
                        let first = first / PARTITION;
                        if (first..len.div_ceil(PARTITION)).contains(&p) {
                            let (w, columns) = team.place(unit);
                            let out = self.out.span(w, columns);
                            fold(s, &mut marks[unit], out, found, room.total(i), p == first);
                        }
                    }
                }
            }
            for (unit, mark) in marks.iter().enumerate().take(team.count()) {
                let (w, columns) = team.place(unit);
                let sink = args.sink(team.unit(unit).head);
                finish(s, *mark, sink, self.out.span(w, columns));
            }
            first += team.count();
        }
    }
}

/// Computes the partial results of items, (KV head, partition) in this order: of each, rows for all units of the KV
/// head.
pub(super) struct Partials<'a> {
    pub(super) args: &'a Attention<'a>,
    pub(super) items: Range<usize>,
    pub(super) scratch: &'a mut [f32],
    pub(super) out: RowsMut<'a>,
}

impl Work for Partials<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        match self.args.kv.format() {
            KvFormat::F16 => self.over::<S, Half>(s),
            KvFormat::F32 => self.over::<S, Float>(s),
            KvFormat::Q8 => self.over::<S, Code>(s),
        }
    }
}

impl Partials<'_> {
    #[inline(always)]
    fn over<S: Lanes, E: Element>(mut self, s: S) {
        let (args, per_head) = (self.args, self.args.units_per_kv_head());
        let (partitions, first_seen) = (args.partitions(), args.first_partition());
        let mut room = Room::new(self.scratch, args.kv.head_dim());
        let mut item = self.items.start;
        while item < self.items.end {
            let kv_head = item / partitions;
            let until = self.items.end.min((kv_head + 1) * partitions);
            let mut first = kv_head * per_head;
            while first < (kv_head + 1) * per_head {
                let team = Team::new(args, first, (kv_head + 1) * per_head);
                room.turn_queries::<S>(&team);
                // What no row sees is joined to nothing.
                for item in (item..until).filter(|item| item % partitions >= first_seen) {
                    for batch in team.batches(S::UNITS) {
                        let found = partition::<S, E>(s, &team, batch.clone(), item % partitions, &mut room);
                        for (i, (unit, found)) in batch.zip(found).enumerate() {
                            let row = self.out.row(item * per_head + first - kv_head * per_head + unit);
                            (row[0], row[1]) = (found.max, found.sum);
                            row[HEADER..].copy_from_slice(room.total(i));
                        }
                    }
                }
                first += team.count();
            }
            item = until;
        }
    }
}

/// Joins the partial results of units.
pub(super) struct Join<'a> {
    pub(super) args: &'a Attention<'a>,
    pub(super) units: Range<usize>,
    pub(super) partials: Rows<'a>,
    pub(super) out: RowsMut<'a>,
}

impl Work for Join<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        let (args, per_head) = (self.args, self.args.units_per_kv_head());
        let head_dim = args.kv.head_dim();
        for unit in self.units {
            let (w, head, kv_head) = args.place(unit);
            let out = self.out.span(w, head * head_dim..(head + 1) * head_dim);
            let mut mark = Mark::NOTHING;
            let len = args.tails.len(w);
            let first = args.scoring.first_of(len) / PARTITION;
            for p in first..len.div_ceil(PARTITION) {
                let item = kv_head * args.partitions() + p;
                let row = self.partials.row(item * per_head + unit % per_head);
                fold(s, &mut mark, out, Mark { max: row[0], sum: row[1] }, &row[HEADER..], p == first);
            }
            finish(s, mark, args.sink(head), out);
        }
    }
}

/// Joins the next partition, `found` and `total`, to those before it, `mark` and `out`.
#[inline(always)]
fn fold<S: Lanes>(s: S, mark: &mut Mark, out: &mut [f32], found: Mark, total: &[f32], is_first: bool) {
    if is_first {
        *mark = found;
        out.copy_from_slice(&total[..out.len()]);
        return;
    }
    let grows = found.max > mark.max;
    let (less, more) = if grows { (*mark, found) } else { (found, *mark) };
    let factor = exp(s, s.splat(less.max - more.max));
    let sum = s.first(s.fused(s.splat(less.sum), factor, s.splat(more.sum)));
    *mark = Mark { max: more.max, sum };
    for at in (0..out.len()).step_by(LANES) {
        let (before, next) = (s.load_part(out, at), s.load_part(total, at));
        let (less, more) = if grows { (before, next) } else { (next, before) };
        s.store_part(out, at, s.fused(less, factor, more));
    }
}

/// Divides by the sum of weights, that of the sink among them; zeros if there are no others.
#[inline(always)]
fn finish<S: Lanes>(s: S, mark: Mark, sink: Option<f32>, out: &mut [f32]) {
    if mark == Mark::NOTHING {
        out.fill(0.0);
        return;
    }
    let inverse = match sink {
        None => s.splat(1.0 / mark.sum),
        Some(sink) => {
            let max = s.splat(mark.max.max(sink));
            let kept = exp(s, s.sub(s.splat(mark.max), max));
            let own = exp(s, s.sub(s.splat(sink), max));
            s.div(kept, s.fused(s.splat(mark.sum), kept, own))
        }
    };
    for at in (0..out.len()).step_by(LANES) {
        s.store_part(out, at, s.mul(s.load_part(out, at), inverse));
    }
}
