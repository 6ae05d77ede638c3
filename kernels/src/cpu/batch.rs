//! Units of attention that are worked on together: all of one KV head, so that they read the same keys and values.

use crate::{Attention, KvLayer};

/// Units in a full batch: what scratch is reserved for.
pub(super) const UNITS: usize = 4;

/// Blocks of keys behind the prefixes that are scored for every unit, seen by it or not: the nodes of a token tree lie
/// there, side by side.
const TREE_BLOCKS: usize = 8;

const BLOCK: usize = KvLayer::KEY_BLOCK;

/// `U` units of one KV head, and which scores they need.
///
/// Scores are made for whole blocks of slots, `0..16 blocks`; [`Batch::order`] brings them into the logical order of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a, const U: usize> {
    args: &'a Attention<'a>,
    pub(super) kv_head: usize,
    rows: [usize; U],
    heads: [usize; U],
    /// Blocks of keys that are scored for every unit.
    pub(super) blocks: usize,
    /// Slots that every unit sees, in order.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "the portable tier goes unit by unit")
    )]
    pub(super) shared: usize,
}

/// Units from `unit` on that one batch can hold, at least one.
#[cfg(target_arch = "x86_64")]
pub(super) fn batch_len(args: &Attention<'_>, unit: usize, end: usize) -> usize {
    let most = UNITS.min(end - unit);
    (1..most).find(|&i| args.place(unit + i).2 != args.place(unit).2).unwrap_or(most)
}

impl<'a, const U: usize> Batch<'a, U> {
    pub(super) fn new(args: &'a Attention<'a>, unit: usize) -> Self {
        let (tails, kv_head) = (args.tails, args.place(unit).2);
        let (mut rows, mut heads) = ([0; U], [0; U]);
        for u in 0..U {
            (rows[u], heads[u], _) = args.place(unit + u);
        }
        let prefix = |w: usize| tails.prefix[w] as usize;
        let longest = rows.iter().map(|&w| prefix(w)).max().unwrap_or(0);
        let near = (longest.div_ceil(BLOCK) + TREE_BLOCKS).min(args.kv.blocks()) * BLOCK;
        let mut end = longest;
        for &w in &rows {
            let slots = tails.tail(w).iter().map(|&slot| slot as usize).filter(|&slot| slot < near);
            end = slots.fold(end, |end, slot| end.max(slot + 1));
        }
        let shared = rows.iter().map(|&w| prefix(w)).min().unwrap_or(0);
        Self { args, kv_head, rows, heads, blocks: end.div_ceil(BLOCK), shared }
    }

    /// Columns of unit `u` in rows of queries and of output, and its row.
    pub(super) fn place(&self, u: usize) -> (usize, std::ops::Range<usize>) {
        let head_dim = self.args.kv.head_dim();
        (self.rows[u], self.heads[u] * head_dim..(self.heads[u] + 1) * head_dim)
    }

    /// Length of the logical sequence of unit `u`.
    pub(super) fn len(&self, u: usize) -> usize {
        self.args.tails.len(self.rows[u])
    }

    /// Slot of a logical position of unit `u`.
    #[inline]
    pub(super) fn slot(&self, u: usize, position: usize) -> usize {
        self.args.tails.slot(self.rows[u], position)
    }

    /// Writes the turned query of unit `u` (`[D]`).
    #[inline(always)]
    pub(super) fn turn_query(&self, u: usize, query: &mut [f32]) {
        let (w, columns) = self.place(u);
        let raw = &self.args.queries.row(w)[columns];
        match self.args.rope {
            Some(rope) => rope.rotate(self.args.tails.positions[w] as usize, raw, query),
            None => query.copy_from_slice(raw),
        }
    }

    /// Turns the scores of slots `0..16 blocks` into those of the logical sequence of unit `u`, filled up with minus
    /// infinity to a whole block. `score_one(slot)` gives what was not scored.
    #[inline(always)]
    pub(super) fn order(&self, u: usize, scores: &mut [f32], mut score_one: impl FnMut(usize) -> f32) {
        let w = self.rows[u];
        let (prefix, tail) = (self.args.tails.prefix[w] as usize, self.args.tails.tail(w));
        // An entry at or behind its place, in ascending order, is read before it is overwritten.
        let scored = self.blocks * BLOCK;
        let mut last = prefix;
        let in_place = tail.iter().enumerate().all(|(i, &slot)| {
            let slot = slot as usize;
            let fits = slot >= last && slot >= prefix + i && slot < scored;
            last = slot;
            fits
        });
        for (i, &slot) in tail.iter().enumerate() {
            scores[prefix + i] = if in_place { scores[slot as usize] } else { score_one(slot as usize) };
        }
        let len = prefix + tail.len();
        scores[len..len.next_multiple_of(BLOCK)].fill(f32::NEG_INFINITY);
    }
}
