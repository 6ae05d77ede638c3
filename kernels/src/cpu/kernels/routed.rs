//! Experts: which rows use which, and products with their matrices.

use super::{Epilogue, Kernels};
use crate::{
    Routed, Routes, Routing, Rows, RowsMut, WeightFormat,
    cpu::{PackedLinear, TILE, activations::floats_mut, generic, route::Route},
};
use std::ops::Range;

/// Boundary of the parts of a scratch.
const PART: usize = 64;

/// A product of rows with the matrices of the experts that they use.
#[derive(Clone, Copy, Debug)]
pub struct RoutedLinear<'a> {
    /// Input `[W, K]` or `[W, k K]`.
    pub x: Rows<'a>,
    /// Routes of the rows.
    pub routes: Routes<'a>,
    /// Which side has a part for each expert.
    pub routed: Routed,
    /// What is added to the products with each expert's matrix: vectors `[N]`, one after the other.
    pub biases: Option<&'a [f32]>,
}

/// Bytes of what rows that use one expert have in a scratch: their inputs, and their results.
fn copies(width: usize, columns: usize) -> usize {
    (width * columns * size_of::<f32>()).next_multiple_of(PART)
}

impl Kernels {
    /// Chooses experts and their weights for the given rows: `out` (`[W, 2 k]`) by `scores` (`[W, E]`). Equal bits in
    /// every tier.
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn route(
        self,
        scores: Rows<'_>,
        bias: Option<&[f32]>,
        routing: &Routing,
        rows: Range<usize>,
        mut out: RowsMut<'_>,
    ) {
        routing.check(scores, bias, &out);
        for w in rows {
            self.call(Route { scores: scores.row(w), bias, routing, out: out.row(w) });
        }
    }

    /// Scratch for [`Kernels::routed_linear`] of `width` rows with matrices `[N, K]` in `format`, bytes.
    pub fn routed_scratch_bytes(
        self,
        format: WeightFormat,
        width: usize,
        [outputs, columns]: [usize; 2],
    ) -> usize {
        let prepared = self.linear_scratch_bytes(format, width, columns).next_multiple_of(PART);
        copies(width, columns) + prepared + copies(width, outputs)
    }

    /// Products with the matrices of experts, all of one format and shape `[N, K]`, for the columns
    /// `16 tiles.start .. 16 tiles.end` of every expert. The bits of a row are those of [`Kernels::linear`] with each
    /// of its matrices, and of [`Kernels::add_bias`] with its biases; sums are in order of experts, whatever other rows
    /// use.
    ///
    /// Rows that use an expert are gathered, so that its matrix is read once.
    ///
    /// # Panics
    /// If shapes disagree, a matrix is a gated pair, or `scratch` is smaller than [`Kernels::routed_scratch_bytes`] or
    /// not aligned to 64.
    pub fn routed_linear<'m>(
        self,
        RoutedLinear { x, routes, routed, biases }: RoutedLinear<'_>,
        experts: usize,
        expert: impl Fn(usize) -> &'m PackedLinear,
        tiles: Range<usize>,
        scratch: &mut [u8],
        mut out: RowsMut<'_>,
    ) {
        let (format, outputs, columns) = (expert(0).format(), expert(0).outputs(), expert(0).columns());
        routed.check(x, routes, [outputs, columns], &out);
        assert!(biases.is_none_or(|biases| biases.len() == experts * outputs), "biases of {experts} experts");
        let own = TILE * tiles.start..outputs.min(TILE * tiles.end);
        if own.is_empty() {
            return;
        }
        if routed == Routed::Joined {
            (0..out.width()).for_each(|w| out.span(w, own.clone()).fill(0.0));
        }
        let (gathered, scratch) = scratch.split_at_mut(copies(x.width(), columns));
        let prepared = self.linear_scratch_bytes(format, x.width(), columns).next_multiple_of(PART);
        let (prepared, results) = scratch.split_at_mut(prepared);
        let (gathered, results) = (floats_mut(gathered), floats_mut(results));
        for number in 0..experts {
            let mut count = 0;
            for (row, (w, place)) in gathered.chunks_exact_mut(columns).zip(routes.of(number)) {
                row.copy_from_slice(routed.input(x, w, place, columns));
                count += 1;
            }
            if count == 0 {
                continue;
            }
            let rows = Rows::new(&gathered[..count * columns], columns);
            let prepared = self.prepare(format, rows, None, prepared);
            let results = &mut results[..count * own.len()];
            let window = RowsMut::window(results, own.clone(), outputs);
            self.linear(expert(number), &prepared, tiles.clone(), Epilogue::Store, window);
            for (result, (w, place)) in results.chunks_exact_mut(own.len()).zip(routes.of(number)) {
                if let Some(biases) = biases {
                    generic::add_into(&biases[number * outputs..][own.clone()], result);
                }
                match routed {
                    Routed::Spread => {
                        let start = place * outputs;
                        out.span(w, start + own.start..start + own.end).copy_from_slice(result);
                    }
                    Routed::Joined => {
                        let weight = routes.weight(w, place);
                        let sums = out.span(w, own.clone()).iter_mut();
                        sums.zip(result).for_each(|(sum, x)| *sum += weight * *x);
                    }
                }
            }
        }
    }
}
