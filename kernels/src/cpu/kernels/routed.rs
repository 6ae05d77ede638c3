//! Experts: which rows use which, and products with their matrices.

use super::{Epilogue, Kernels};
use crate::{
    Nonlinearity, RouteVector, Routes, Routing, Rows, RowsMut, WeightFormat,
    cpu::{PackedLinear, Prepared, TILE, activations::floats_mut, gate::Gate, generic, route::Route},
};
use std::ops::Range;

/// Boundary of the parts of a scratch.
const PART: usize = 64;

/// Gated products of rows with the matrices of the experts that they use.
#[derive(Clone, Copy, Debug)]
pub struct RoutedGated<'a> {
    /// Input `[W, K]`.
    pub x: Rows<'a>,
    /// Routes of the rows.
    pub routes: Routes<'a>,
    /// Function of the gates.
    pub function: Nonlinearity,
    /// What is added to the products with each matrix: vectors `[N]`, one after the other, of gates, then of ups.
    pub biases: Option<&'a [f32]>,
}

/// Sums of products of rows with the matrices of the experts that they use.
#[derive(Clone, Copy, Debug)]
pub struct RoutedLinear<'a> {
    /// Input `[W, k K]`.
    pub x: Rows<'a>,
    /// Routes of the rows.
    pub routes: Routes<'a>,
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
        vector: Option<RouteVector<&[f32]>>,
        routing: &Routing,
        rows: Range<usize>,
        mut out: RowsMut<'_>,
    ) {
        routing.check(scores, vector, &out);
        let [bias, factors] = RouteVector::apart(vector);
        for w in rows {
            self.call(Route { scores: scores.row(w), bias, factors, routing, out: out.row(w) });
        }
    }

    /// Scratch for [`Kernels::routed_gated`] and [`Kernels::routed_linear`] of `width` rows with matrices `[N, K]` in
    /// `format`, bytes.
    pub fn routed_scratch_bytes(
        self,
        format: WeightFormat,
        width: usize,
        [outputs, columns]: [usize; 2],
    ) -> usize {
        let prepared = self.linear_scratch_bytes(format, width, columns).next_multiple_of(PART);
        copies(width, columns) + prepared + 2 * copies(width, outputs)
    }

    /// Gated products with the matrices of experts, all of one format and shape `[N, K]`, for the columns
    /// `16 tiles.start .. 16 tiles.end` of every expert: `out` (`[W, k N]`). `matrix` gives the gates of all `experts`,
    /// then their ups. The bits of a row are those of [`Kernels::linear`] with each of its matrices, of
    /// [`Kernels::add_bias`] with its biases and of [`Kernels::gate`], whatever other rows use.
    ///
    /// Rows that use an expert are gathered, so that its matrices are read once.
    ///
    /// # Panics
    /// If shapes disagree, a matrix is a gated pair, or `scratch` is smaller than [`Kernels::routed_scratch_bytes`] or
    /// not aligned to 64.
    pub fn routed_gated<'m>(
        self,
        RoutedGated { x, routes, function, biases }: RoutedGated<'_>,
        experts: usize,
        matrix: impl Fn(usize) -> &'m PackedLinear,
        tiles: Range<usize>,
        scratch: &mut [u8],
        mut out: RowsMut<'_>,
    ) {
        let products = Products::new(self, 2 * experts, matrix, biases, tiles);
        let (outputs, columns, own) = (products.outputs, products.columns, products.own.clone());
        routes.check(x, [columns, routes.used() * outputs], &out);
        if own.is_empty() {
            return;
        }
        let Room { gathered, prepared, results } = products.room(x.width(), scratch);
        let (gates, ups) = results.split_at_mut(results.len() / 2);
        let mut expert = |number: usize, rows: &Prepared<'_>, w: usize, place: usize, at: usize| {
            if at == 0 {
                products.run(number, rows, gates);
                products.run(experts + number, rows, ups);
            }
            let [gate, up] = [&gates, &ups].map(|results| &results[at * own.len()..][..own.len()]);
            let start = place * outputs;
            let out = out.span(w, start + own.start..start + own.end);
            self.call(Gate { function, gate, up, out });
        };
        if x.width() == 1 {
            // All its experts take the same row, which is prepared once.
            let rows = self.prepare(products.format(), x, None, prepared);
            routes.experts(0).enumerate().for_each(|(place, number)| expert(number, &rows, 0, place, 0));
            return;
        }
        for number in 0..experts {
            let count = gather(gathered, columns, routes.of(number).map(|(w, _)| x.row(w)));
            if count == 0 {
                continue;
            }
            let rows = Rows::new(&gathered[..count * columns], columns);
            let rows = self.prepare(products.format(), rows, None, prepared);
            let uses = routes.of(number).enumerate();
            uses.for_each(|(at, (w, place))| expert(number, &rows, w, place, at));
        }
    }

    /// Sums, in order of experts, of the products of the parts of rows with the matrices of their experts, times the
    /// experts' weights: `out` (`[W, N]`). Otherwise as [`Kernels::routed_gated`].
    ///
    /// # Panics
    /// As [`Kernels::routed_gated`].
    pub fn routed_linear<'m>(
        self,
        RoutedLinear { x, routes, biases }: RoutedLinear<'_>,
        experts: usize,
        matrix: impl Fn(usize) -> &'m PackedLinear,
        tiles: Range<usize>,
        scratch: &mut [u8],
        mut out: RowsMut<'_>,
    ) {
        let products = Products::new(self, experts, matrix, biases, tiles);
        let (columns, own) = (products.columns, products.own.clone());
        routes.check(x, [routes.used() * columns, products.outputs], &out);
        if own.is_empty() {
            return;
        }
        (0..out.width()).for_each(|w| out.span(w, own.clone()).fill(0.0));
        let Room { gathered, prepared, results } = products.room(x.width(), scratch);
        for number in 0..experts {
            let part = |(w, place): (usize, usize)| &x.row(w)[place * columns..][..columns];
            let count = gather(gathered, columns, routes.of(number).map(part));
            if count == 0 {
                continue;
            }
            let rows = Rows::new(&gathered[..count * columns], columns);
            let rows = self.prepare(products.format(), rows, None, prepared);
            products.run(number, &rows, results);
            for (result, (w, place)) in results.chunks(own.len()).zip(routes.of(number)) {
                let weight = routes.weight(w, place);
                let sums = out.span(w, own.clone()).iter_mut();
                sums.zip(result).for_each(|(sum, x)| *sum += weight * x);
            }
        }
    }
}

/// Copies rows of so many columns one after the other; returns how many there are.
fn gather<'x>(to: &mut [f32], columns: usize, rows: impl Iterator<Item = &'x [f32]>) -> usize {
    let mut count = 0;
    for (to, row) in to.chunks_exact_mut(columns).zip(rows) {
        to.copy_from_slice(row);
        count += 1;
    }
    count
}

/// Products with one of several matrices of one format and shape, and their biases.
struct Products<'a, M> {
    kernels: Kernels,
    matrix: M,
    biases: Option<&'a [f32]>,
    tiles: Range<usize>,
    /// Columns of the tiles.
    own: Range<usize>,
    outputs: usize,
    columns: usize,
}

/// The parts of a scratch.
struct Room<'a> {
    /// `[W, K]`.
    gathered: &'a mut [f32],
    prepared: &'a mut [u8],
    /// Two of `[W, N]`.
    results: &'a mut [f32],
}

impl<'a, 'm, M: Fn(usize) -> &'m PackedLinear> Products<'a, M> {
    /// # Panics
    /// If there are other biases than one for each output of `count` matrices.
    fn new(
        kernels: Kernels,
        count: usize,
        matrix: M,
        biases: Option<&'a [f32]>,
        tiles: Range<usize>,
    ) -> Self {
        let (outputs, columns) = (matrix(0).outputs(), matrix(0).columns());
        assert!(biases.is_none_or(|biases| biases.len() == count * outputs), "biases of {count} matrices");
        let own = TILE * tiles.start..outputs.min(TILE * tiles.end);
        Self { kernels, matrix, biases, tiles, own, outputs, columns }
    }

    fn format(&self) -> WeightFormat {
        (self.matrix)(0).format()
    }

    fn room<'s>(&self, width: usize, scratch: &'s mut [u8]) -> Room<'s> {
        let (gathered, scratch) = scratch.split_at_mut(copies(width, self.columns));
        let prepared = self.kernels.linear_scratch_bytes(self.format(), width, self.columns);
        let (prepared, results) = scratch.split_at_mut(prepared.next_multiple_of(PART));
        let results = &mut results[..2 * copies(width, self.outputs)];
        Room { gathered: floats_mut(gathered), prepared, results: floats_mut(results) }
    }

    /// Own columns of the product of rows with a matrix, plus its bias: row after row at the start of `results`.
    fn run(&self, number: usize, rows: &Prepared<'_>, results: &mut [f32]) {
        let Self { own, outputs, .. } = self;
        let results = &mut results[..rows.width() * own.len()];
        let window = RowsMut::window(results, own.clone(), *outputs);
        self.kernels.linear((self.matrix)(number), rows, self.tiles.clone(), Epilogue::Store, window);
        if let Some(biases) = self.biases {
            let bias = &biases[number * outputs..][own.clone()];
            results.chunks_mut(own.len()).for_each(|row| generic::add_into(bias, row));
        }
    }
}
