//! Units of one KV head that go through its partitions together.

use super::{PARTITION, TEAM};
use crate::{Attention, Tails};
use std::ops::Range;

/// A row and a query head of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) row: usize,
    pub(super) head: usize,
    /// The first position that it sees.
    pub(super) first: usize,
    /// Positions, from the first, whose slots have their number: the prefix, and what of the tail continues it.
    pub(super) seen: usize,
    /// Length of the logical sequence.
    pub(super) len: usize,
}

/// At most [`TEAM`] units.
#[derive(Debug)]
pub(super) struct Team<'a> {
    pub(super) args: &'a Attention<'a>,
    pub(super) kv_head: usize,
    units: [Unit; TEAM],
    count: usize,
}

impl<'a> Team<'a> {
    /// Units from `first` on, before `end`: as many as there is room for, of one KV head.
    pub(super) fn new(args: &'a Attention<'a>, first: usize, end: usize) -> Self {
        let per_head = args.units_per_kv_head();
        let count = TEAM.min(end - first).min(per_head - first % per_head);
        let mut units = [Unit { row: usize::MAX, head: 0, first: 0, seen: 0, len: 0 }; TEAM];
        for i in 0..count {
            let (row, head, _) = args.place(first + i);
            let before = units[i.saturating_sub(1)];
            let (seen, len) = if before.row == row {
                (before.seen, before.len)
            } else {
                (seen(&args.tails, row), args.tails.len(row))
            };
            units[i] = Unit { row, head, first: args.scoring.first_of(len), seen, len };
        }
        Self { args, kv_head: first / per_head, units, count }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn unit(&self, unit: usize) -> &Unit {
        &self.units[unit]
    }

    pub(super) fn units(&self, batch: Range<usize>) -> &[Unit] {
        &self.units[batch]
    }

    /// Length of the longest logical sequence.
    fn longest(&self) -> usize {
        self.units[..self.count].iter().map(|unit| unit.len).max().unwrap_or(0)
    }

    /// Partitions that some unit sees.
    pub(super) fn partitions(&self) -> Range<usize> {
        let first = self.units[..self.count].iter().map(|unit| unit.first).min().unwrap_or(0);
        first / PARTITION..self.longest().div_ceil(PARTITION)
    }

    /// Its units in batches of at most `most`, as even as can be.
    pub(super) fn batches(&self, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, batches) = (self.count, self.count.div_ceil(most));
        (0..batches).map(move |b| count * b / batches..count * (b + 1) / batches)
    }

    /// Columns of a unit in rows of queries and of output, and its row.
    pub(super) fn place(&self, unit: usize) -> (usize, Range<usize>) {
        let (Unit { row, head, .. }, head_dim) = (self.units[unit], self.args.kv.head_dim());
        (row, head * head_dim..(head + 1) * head_dim)
    }

    /// Writes the turned query of a unit (`[D]`).
    #[inline(always)]
    pub(super) fn turn_query(&self, unit: usize, query: &mut [f32]) {
        let (w, columns) = self.place(unit);
        let raw = &self.args.queries.row(w)[columns];
        match self.args.rope {
            Some(rope) => rope.rotate(self.args.tails.positions[w] as usize, raw, query),
            None => query.copy_from_slice(raw),
        }
    }
}

fn seen(tails: &Tails<'_>, w: usize) -> usize {
    let prefix = tails.prefix[w] as usize;
    let continues = |(i, slot): &(usize, &u32)| **slot as usize == prefix + i;
    prefix + tails.tail(w).iter().enumerate().take_while(continues).count()
}
