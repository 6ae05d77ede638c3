//! The best tokens of rows of logits: found by threads in ranges of the vocabulary, then merged.

use super::{Epilogue, Kernels};
use crate::{
    Rows, RowsMut,
    candidates::{Choice, RANGE, RowNoise, TokenNoise, finish_row, ranges, weight},
    cpu::{
        FoundLayout, FoundPart, PackedLinear, Prepared, TILE,
        activations::floats_mut,
        found::{FoundLists, FoundRow},
        generic,
    },
};
use std::ops::Range;

/// Ranges whose weights are made together when a row is merged, so that the loop over them vectorises. Any number
/// works: the sum is in order of ranges.
const TOGETHER: usize = 64;

/// Scratch for [`Kernels::head_candidates`] of `width` rows, bytes: the logits of one range.
pub const fn head_scratch_bytes(width: usize) -> usize {
    4 * width * RANGE
}

impl Kernels {
    /// Finds the candidates of `logits` (`[R, V]`) among the ids of the given ranges, by their values under `noise` if
    /// there is some.
    ///
    /// # Panics
    /// If shapes disagree or the choice is impossible.
    pub fn candidates(
        self,
        logits: Rows<'_>,
        ranges: Range<usize>,
        (choice, noise): (Choice, Option<RowNoise<'_>>),
        mut part: FoundPart<'_>,
    ) {
        self.check_part((logits.width(), logits.columns()), &ranges, (choice, noise), &part);
        for range in ranges {
            let ids = ids(range, logits.columns());
            for r in 0..logits.width() {
                let noise = noise.map(|noise| noise.of_row(r));
                self.fold(&logits.row(r)[ids.clone()], ids.start, (choice, noise), &mut part.row(r));
            }
        }
    }

    /// As [`Kernels::candidates`] of the logits that [`Kernels::linear`] would store, to the last bit; but they are
    /// made range by range in `scratch` and forgotten.
    ///
    /// # Panics
    /// As [`Kernels::candidates`] and [`Kernels::linear`]; if `scratch` is smaller than [`head_scratch_bytes`] or not
    /// aligned to 64.
    pub fn head_candidates(
        self,
        weights: &PackedLinear,
        x: &Prepared<'_>,
        ranges: Range<usize>,
        (choice, noise): (Choice, Option<RowNoise<'_>>),
        scratch: &mut [u8],
        mut part: FoundPart<'_>,
    ) {
        let (width, vocabulary) = (x.width(), weights.outputs());
        self.check_part((width, vocabulary), &ranges, (choice, noise), &part);
        assert!(scratch.as_ptr().addr().is_multiple_of(64), "scratch must be aligned to 64");
        let block = floats_mut(&mut scratch[..head_scratch_bytes(width)]);
        for range in ranges {
            let ids = ids(range, vocabulary);
            let block = &mut block[..width * ids.len()];
            let tiles = ids.start / TILE..ids.end.div_ceil(TILE);
            self.linear(weights, x, tiles, Epilogue::Store, RowsMut::window(block, ids.clone(), vocabulary));
            for (r, logits) in block.chunks_exact(ids.len()).enumerate() {
                let noise = noise.map(|noise| noise.of_row(r));
                self.fold(logits, ids.start, (choice, noise), &mut part.row(r));
            }
        }
    }

    fn check_part(
        self,
        (width, vocabulary): (usize, usize),
        of: &Range<usize>,
        (choice, noise): (Choice, Option<RowNoise<'_>>),
        part: &FoundPart<'_>,
    ) {
        let layout = part.layout();
        choice.check(layout.most());
        if let Some(RowNoise { keys, temperature, tokens }) = noise {
            assert!(keys.len() >= width, "{} keys of {width} rows", keys.len());
            assert!(temperature > 0.0 && choice.temperature.is_none(), "values under noise are not summed");
            assert!(
                tokens.is_none_or(|tokens| tokens.len() == vocabulary),
                "a token for each of {vocabulary} places"
            );
        }
        assert_eq!(width, layout.rows(), "rows of logits and of what is found");
        assert!(of.end <= ranges(vocabulary), "ranges {of:?} of {vocabulary} tokens");
    }

    fn fold(
        self,
        logits: &[f32],
        first: usize,
        (choice, noise): (Choice, Option<TokenNoise<'_>>),
        found: &mut FoundRow<'_>,
    ) {
        self.call(generic::Fold { logits, first, k: choice.k, inverse: choice.inverse(), noise, found });
    }

    /// Merges what all threads found into the given rows of candidates, `[R, 2 most + 1]`. Together the parts have
    /// every range of the vocabulary once, in order. Equal bits in every tier and for every number of parts.
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn merge_candidates(
        self,
        layout: &FoundLayout,
        parts: &[u8],
        rows: Range<usize>,
        choice: Choice,
        mut out: RowsMut<'_>,
    ) {
        let most = layout.most();
        choice.check(most);
        assert!(
            parts.len() == layout.bytes() && out.width() == layout.rows() && out.columns() == 1 + 2 * most,
            "candidates of {layout:?} to [{}, {}]",
            out.width(),
            out.columns()
        );
        for r in rows {
            let row = out.row(r);
            let (ids, logits) = row[1..].split_at_mut(most);
            let (ids, logits) = (&mut ids[..choice.k], &mut logits[..choice.k]);
            let mut count = 0;
            for FoundLists { ids: found, logits: values, .. } in layout.found(parts, r) {
                for (&id, &logit) in found.iter().zip(values) {
                    // Lists are sorted, so nothing after the first that comes too late belongs here.
                    if count == choice.k && logit <= logits[choice.k - 1] {
                        break;
                    }
                    count = generic::insert(ids, logits, count, id, logit);
                }
            }
            let sum = match choice.inverse() {
                Some(inverse) if count > 0 => Some((row_sum(layout, parts, r, logits[0], inverse), inverse)),
                Some(_) | None => None,
            };
            finish_row(row, count, sum);
        }
    }
}

/// Ids of a range.
fn ids(range: usize, vocabulary: usize) -> Range<usize> {
    range * RANGE..vocabulary.min((range + 1) * RANGE)
}

/// Step 3 of the meaning: the ranges' sums in order, each by the weight of its largest logit.
fn row_sum(layout: &FoundLayout, parts: &[u8], r: usize, largest: f32, inverse: f32) -> f32 {
    let mut sum = 0.0;
    for found in layout.found(parts, r) {
        for (largest_of, sums) in found.largest.chunks(TOGETHER).zip(found.sums.chunks(TOGETHER)) {
            let mut weighted = [0.0; TOGETHER];
            for ((weighted, &largest_of), &sum) in weighted.iter_mut().zip(largest_of).zip(sums) {
                *weighted = sum * weight(largest_of, largest, inverse);
            }
            for weighted in &weighted[..sums.len()] {
                sum += weighted;
            }
        }
    }
    sum
}
