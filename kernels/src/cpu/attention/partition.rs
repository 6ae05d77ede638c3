//! One partition of keys and values, for a batch of units.

use super::{
    BLOCK, MOST_UNITS, PARTITION, TEAM,
    columns::weigh,
    element::Element,
    score::score,
    team::{Team, Unit},
};
use crate::cpu::lanes::{self, LANES, Lanes, exp};
use std::ops::Range;

/// From the scores of a unit to those of the next: no power of two, so that they do not compete for the sets of a
/// cache.
pub(super) const STRIDE: usize = PARTITION + BLOCK;

/// Blocks of keys after the prefixes that are scored for all units at once: the nodes of a token tree lie there in
/// adjacent slots.
const TREE_BLOCKS: usize = PARTITION / BLOCK;

/// Maximum of some scores, and the sum of their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) max: f32,
    pub(super) sum: f32,
}

impl Mark {
    pub(super) const NOTHING: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Scratch of one thread.
pub(super) struct Room<'a> {
    /// Turned queries of a team; of each batch `[D, U]`, at `padded_dim` times its first unit.
    queries: &'a mut [f32],
    /// `[U, padded_dim]`.
    totals: &'a mut [f32],
    /// `[U, STRIDE]`: scores of a partition by position, then its weights.
    scores: &'a mut [f32],
    /// `[U, STRIDE]`: scores of slots after the prefixes, then of one block elsewhere.
    tree: &'a mut [f32],
    padded_dim: usize,
}

impl<'a> Room<'a> {
    /// Numbers that it needs.
    pub(super) const fn len(head_dim: usize) -> usize {
        (TEAM + MOST_UNITS) * head_dim.next_multiple_of(LANES) + 2 * MOST_UNITS * STRIDE
    }

    pub(super) fn new(scratch: &'a mut [f32], head_dim: usize) -> Self {
        let padded_dim = head_dim.next_multiple_of(LANES);
        let (queries, scratch) = scratch.split_at_mut(TEAM * padded_dim);
        let (totals, scratch) = scratch.split_at_mut(MOST_UNITS * padded_dim);
        let (scores, tree) = scratch.split_at_mut(MOST_UNITS * STRIDE);
        Self { queries, totals, scores, tree: &mut tree[..MOST_UNITS * STRIDE], padded_dim }
    }

    #[inline(always)]
    pub(super) fn turn_queries<S: Lanes>(&mut self, team: &Team<'_>) {
        let head_dim = team.args.kv.head_dim();
        for batch in team.batches(S::UNITS) {
            let units = batch.len();
            let queries = &mut self.queries[batch.start * self.padded_dim..][..units * head_dim];
            for (u, unit) in batch.enumerate() {
                let turned = &mut self.totals[..head_dim];
                team.turn_query(unit, turned);
                for (queries, element) in queries.chunks_exact_mut(units).zip(turned) {
                    queries[u] = *element;
                }
            }
        }
    }

    /// Sums of values of unit `u` of the batch that a partition was computed for last.
    #[inline(always)]
    pub(super) fn total(&self, u: usize) -> &[f32] {
        &self.totals[u * self.padded_dim..][..self.padded_dim]
    }
}

/// Positions of partition `p` among the first `positions`.
#[inline(always)]
fn within(p: usize, positions: usize) -> usize {
    positions.saturating_sub(p * PARTITION).min(PARTITION)
}

/// Marks of a batch in partition `p`, and its sums of values in the room. Units that do not reach it get nothing.
#[inline(always)]
pub(super) fn partition<S: Lanes, E: Element>(
    s: S,
    team: &Team<'_>,
    batch: Range<usize>,
    p: usize,
    room: &mut Room<'_>,
) -> [Mark; MOST_UNITS] {
    let units = team.units(batch.clone());
    let (kv, head_dim) = (team.args.kv, team.args.kv.head_dim());
    let queries = &room.queries[batch.start * room.padded_dim..][..units.len() * head_dim];
    let seen = units.iter().map(|unit| within(p, unit.seen));
    let (common, farthest) = seen.fold((PARTITION, 0), |(least, most), n| (least.min(n), most.max(n)));
    let first = p * PARTITION / BLOCK;
    let blocks = first..first + farthest.div_ceil(BLOCK);
    // What is read next lies in the same order: the values of these slots, then the keys of the next partition, or for
    // the next batch those of this one.
    let values = kv.values(team.kv_head).wrapping_add(first * kv.block_bytes());
    let next = if batch.start == 0 { first + PARTITION / BLOCK } else { first };
    let keys = kv.keys(team.kv_head).wrapping_add(next * kv.block_bytes());
    score::<S, E>(s, team, units.len(), blocks, queries, room.scores, values);
    if units.iter().any(|unit| within(p, unit.len) > within(p, unit.seen)) {
        score_tails::<S, E>(s, team, units, p, queries, room.scores, room.tree);
    }
    let mut marks = [Mark::NOTHING; MOST_UNITS];
    for (u, unit) in units.iter().enumerate() {
        let scores = &mut room.scores[u * STRIDE..][..STRIDE];
        let positions = within(p, unit.first)..within(p, unit.len);
        marks[u] = soften(s, scores, positions, team.args.scoring.softcap);
        if E::IS_SCALED {
            scale_weights(s, team, unit, p, scores);
        }
    }
    let totals = &mut room.totals[..units.len() * room.padded_dim];
    totals.fill(0.0);
    weigh::<S, E>(s, team, units.len(), p * PARTITION..p * PARTITION + common, room.scores, totals, keys);
    for (u, unit) in units.iter().enumerate() {
        let total = &mut totals[u * room.padded_dim..][..room.padded_dim];
        let (mut at, end) = (common, within(p, unit.len));
        while at < end {
            let slot = |at: usize| team.args.tails.slot(unit.row, p * PARTITION + at);
            let first = slot(at);
            let mut run = 1;
            while at + run < end && slot(at + run) == first + run {
                run += 1;
            }
            assert!(first + run <= kv.slots(), "slots {first} and {run} more");
            weigh::<S, E>(s, team, 1, first..first + run, &room.scores[u * STRIDE + at..], total, keys);
            at += run;
        }
    }
    marks
}

/// Writes the scores of positions after the part that is seen in order.
#[inline(always)]
fn score_tails<S: Lanes, E: Element>(
    s: S,
    team: &Team<'_>,
    units: &[Unit],
    p: usize,
    queries: &[f32],
    scores: &mut [f32],
    tree: &mut [f32],
) {
    let tails = &team.args.tails;
    let positions = |unit: &Unit| within(p, unit.seen)..within(p, unit.len);
    let slot = |unit: &Unit, at: usize| tails.slot(unit.row, p * PARTITION + at);
    let first = units.iter().map(|unit| unit.seen).min().unwrap_or(0) / BLOCK;
    let limit = (first + TREE_BLOCKS).min(team.args.kv.blocks());
    let mut near = first..first;
    for unit in units {
        for at in positions(unit) {
            let block = slot(unit, at) / BLOCK;
            if (first..limit).contains(&block) {
                near.end = near.end.max(block + 1);
            }
        }
    }
    score::<S, E>(s, team, units.len(), near.clone(), queries, tree, queries.as_ptr().cast());
    for (u, unit) in units.iter().enumerate() {
        for at in positions(unit) {
            let slot = slot(unit, at);
            let (block, lane) = (slot / BLOCK, slot % BLOCK);
            scores[u * STRIDE + at] = if near.contains(&block) {
                tree[u * STRIDE + (block - near.start) * BLOCK + lane]
            } else {
                score::<S, E>(
                    s,
                    team,
                    units.len(),
                    block..block + 1,
                    queries,
                    &mut tree[PARTITION..],
                    queries.as_ptr().cast(),
                );
                tree[u * STRIDE + PARTITION + lane]
            };
        }
    }
}

/// Multiplies the weights of a unit with the scales of the values.
#[inline(always)]
fn scale_weights<S: Lanes>(s: S, team: &Team<'_>, unit: &Unit, p: usize, weights: &mut [f32]) {
    let (kv, tails) = (&team.args.kv, &team.args.tails);
    let seen = within(p, unit.seen) / LANES * LANES;
    for at in (0..seen).step_by(LANES) {
        let weights = &mut weights[at..at + LANES];
        // SAFETY: 16 weights, and the scales of 16 slots of a block.
        unsafe {
            let scales = s.load(kv.value_scale(team.kv_head, p * PARTITION + at));
            s.store(weights.as_mut_ptr(), s.mul(s.load(weights.as_ptr()), scales));
        }
    }
    let len = within(p, unit.len);
    for (at, weight) in weights.iter_mut().enumerate().take(len).skip(seen) {
        let slot = tails.slot(unit.row, p * PARTITION + at);
        // SAFETY: the scale of a slot in the cache.
        *weight *= unsafe { *kv.value_scale(team.kv_head, slot) };
    }
}

/// Replaces the scores of positions by their weights; those before them get none.
#[inline(always)]
fn soften<S: Lanes>(s: S, scores: &mut [f32], positions: Range<usize>, softcap: Option<f32>) -> Mark {
    let Range { start, end: len } = positions;
    if len <= start {
        return Mark::NOTHING;
    }
    // What fills the last vector becomes 0.
    let scores = &mut scores[..len.next_multiple_of(LANES)];
    if let Some(cap) = softcap {
        for at in (0..scores.len()).step_by(LANES) {
            let scores = &mut scores[at..at + LANES];
            // SAFETY: 16 elements.
            unsafe { s.store(scores.as_mut_ptr(), lanes::softcap(s, cap, s.load(scores.as_ptr()))) };
        }
    }
    scores[..start].fill(f32::NEG_INFINITY);
    scores[len..].fill(f32::NEG_INFINITY);
    let mut max = s.splat(f32::NEG_INFINITY);
    for at in (0..scores.len()).step_by(LANES) {
        // SAFETY: whole vectors.
        max = s.max(max, unsafe { s.load(scores.as_ptr().add(at)) });
    }
    let max = s.largest(max);
    let mut sums = s.splat(0.0);
    for at in (0..scores.len()).step_by(LANES) {
        let scores = &mut scores[at..at + LANES];
        // SAFETY: 16 elements.
        let weights = exp(s, s.sub(unsafe { s.load(scores.as_ptr()) }, s.splat(max)));
        sums = s.add(sums, weights);
        // SAFETY: as above.
        unsafe { s.store(scores.as_mut_ptr(), weights) };
    }
    Mark { max, sum: s.sum(sums) }
}
