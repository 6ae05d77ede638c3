//! Candidates that each thread found in its ranges of every row of logits, until they are merged.
//!
//! Every thread has a part of one memory. A part has, for each row, a list of its best logits and the largest logit and
//! the sum of each of its ranges, in words: `[count, ranges, ids, logits, largest, sums]`; counts and ids by their
//! bits. Parts are in the order of their ranges.

use super::activations::{floats, floats_mut};
use crate::candidates::ranges;

/// Bytes from which a thread's part starts, so that no two share a line of a cache, or the pair of
/// lines that a processor brings together.
const ALIGNMENT: usize = 128;

/// How what is found of some rows lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLayout {
    rows: usize,
    most: usize,
    /// Ranges that one thread may have.
    ranges: usize,
    threads: usize,
}

impl FoundLayout {
    /// For `rows` rows of `vocabulary` logits of which at most `most` are kept, their ranges shared evenly by
    /// `threads`.
    ///
    /// # Panics
    /// If there are no rows, no candidates to find or no threads.
    pub const fn new(rows: usize, vocabulary: usize, most: usize, threads: usize) -> Self {
        assert!(rows > 0 && vocabulary > 0 && most > 0 && threads > 0, "rows, tokens, candidates, threads");
        Self { rows, most, ranges: ranges(vocabulary).div_ceil(threads), threads }
    }

    /// Bytes of one thread's part.
    pub const fn part_bytes(&self) -> usize {
        (4 * self.rows * self.row_words()).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of all parts, one after the other.
    pub const fn bytes(&self) -> usize {
        self.threads * self.part_bytes()
    }

    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    pub(super) const fn most(&self) -> usize {
        self.most
    }

    const fn row_words(&self) -> usize {
        2 + 2 * self.most + 2 * self.ranges
    }

    /// A thread's part, with nothing found yet.
    ///
    /// # Panics
    /// If `bytes` are not as many as a part has, or not aligned.
    pub fn part<'a>(&self, bytes: &'a mut [u8]) -> FoundPart<'a> {
        assert_eq!(bytes.len(), self.part_bytes(), "bytes of a part");
        let mut part = FoundPart { layout: *self, words: floats_mut(bytes) };
        for r in 0..self.rows {
            let row = part.row(r);
            (*row.count, *row.folded) = (0.0, 0.0);
        }
        part
    }

    /// What the threads found of row `r`, in the order of their ranges: ids and logits of each list, largest and sum of
    /// each range.
    pub(super) fn found<'a>(&self, bytes: &'a [u8], r: usize) -> impl Iterator<Item = FoundLists<'a>> {
        let Self { most, ranges, .. } = *self;
        let words = self.row_words();
        bytes.chunks_exact(self.part_bytes()).map(move |part| {
            let row = &floats(part)[r * words..][..words];
            let (count, folded) = (row[0].to_bits() as usize, row[1].to_bits() as usize);
            let (ids, rest) = row[2..].split_at(most);
            let (logits, rest) = rest.split_at(most);
            let (largest, sums) = rest.split_at(ranges);
            FoundLists {
                ids: &ids[..count],
                logits: &logits[..count],
                largest: &largest[..folded],
                sums: &sums[..folded],
            }
        })
    }
}

/// What one thread found of a row.
pub(super) struct FoundLists<'a> {
    pub(super) ids: &'a [f32],
    pub(super) logits: &'a [f32],
    pub(super) largest: &'a [f32],
    pub(super) sums: &'a [f32],
}

/// One thread's part, to write.
#[derive(Debug)]
pub struct FoundPart<'a> {
    layout: FoundLayout,
    words: &'a mut [f32],
}

impl FoundPart<'_> {
    pub(super) fn layout(&self) -> FoundLayout {
        self.layout
    }

    pub(super) fn row(&mut self, r: usize) -> FoundRow<'_> {
        let FoundLayout { most, ranges, .. } = self.layout;
        let words = self.layout.row_words();
        let row = &mut self.words[r * words..][..words];
        let [count, folded, rest @ ..] = row else { unreachable!("a row has two counts") };
        let (ids, rest) = rest.split_at_mut(most);
        let (logits, rest) = rest.split_at_mut(most);
        let (largest, sums) = rest.split_at_mut(ranges);
        FoundRow { count, folded, ids, logits, largest, sums }
    }
}

/// What a thread has found of a row so far.
#[derive(Debug)]
pub(super) struct FoundRow<'a> {
    count: &'a mut f32,
    folded: &'a mut f32,
    /// Ids of the list by their bits; those past the count mean nothing.
    pub(super) ids: &'a mut [f32],
    /// Logits of the list, largest first.
    pub(super) logits: &'a mut [f32],
    largest: &'a mut [f32],
    sums: &'a mut [f32],
}

impl FoundRow<'_> {
    /// Entries of the list.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count.to_bits() as usize
    }

    #[inline(always)]
    pub(super) fn set_count(&mut self, count: usize) {
        *self.count = f32::from_bits(count as u32);
    }

    /// Adds the next range: its largest logit and its sum.
    #[inline(always)]
    pub(super) fn add_range(&mut self, largest: f32, sum: f32) {
        let folded = self.folded.to_bits() as usize;
        (self.largest[folded], self.sums[folded]) = (largest, sum);
        *self.folded = f32::from_bits(folded as u32 + 1);
    }
}
