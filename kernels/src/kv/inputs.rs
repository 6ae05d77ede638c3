//! Inputs of the two ops over KV memory, and how they are shared between threads.

use super::{KvLayer, Tails};
use crate::{Rope, Rows, RowsMut};

/// Inputs of `append_kv`: turns the keys of `W` new rows and stores keys and values.
#[derive(Clone, Copy, Debug)]
pub struct AppendKv<'a> {
    /// `[W, G * D]`.
    pub keys: Rows<'a>,
    /// `[W, G * D]`.
    pub values: Rows<'a>,
    /// `[W]`: position of each row in the text.
    pub positions: &'a [u32],
    /// `[W]`: where each row goes, or [`KvLayer::NO_SLOT`].
    pub slots: &'a [u32],
    /// Rotation of the keys.
    pub rope: Option<Rope<'a>>,
    /// Destination.
    pub kv: KvLayer<'a>,
}

impl AppendKv<'_> {
    /// Independent pieces of work: unit `g` stores KV head `g` of every row, as rows share the memory of a key block.
    pub fn units(&self) -> usize {
        self.kv.kv_heads
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self) {
        let (width, columns) = (self.keys.width(), self.kv.kv_heads * self.kv.head_dim);
        assert!(self.values.width() == width && self.positions.len() == width && self.slots.len() == width);
        assert!(
            self.keys.columns() == columns && self.values.columns() == columns,
            "keys of {columns} columns"
        );
    }

    /// Value of KV head `head` of row `w` (`[D]`).
    #[inline(always)]
    pub(crate) fn value(&self, w: usize, head: usize) -> &[f32] {
        let head_dim = self.kv.head_dim;
        &self.values.row(w)[head * head_dim..(head + 1) * head_dim]
    }

    /// Key of KV head `head` of row `w` (`[D]`), turned in `buffer` if the keys turn.
    #[inline(always)]
    pub(crate) fn turned_key<'k>(&'k self, w: usize, head: usize, buffer: &'k mut [f32]) -> &'k [f32] {
        let head_dim = self.kv.head_dim;
        let key = &self.keys.row(w)[head * head_dim..(head + 1) * head_dim];
        let Some(rope) = self.rope else { return key };
        rope.rotate(self.positions[w] as usize, key, buffer);
        buffer
    }

    /// Rows that are stored, with their slots.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (usize, usize)> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| **slot != KvLayer::NO_SLOT).map(|(w, slot)| (w, *slot as usize))
    }
}

/// Inputs of `attention`: each query head reads the logical sequence of its row.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// `[W, H * D]`.
    pub queries: Rows<'a>,
    /// Rotation of the queries.
    pub rope: Option<Rope<'a>>,
    /// Keys and values; `H` is a multiple of its heads.
    pub kv: KvLayer<'a>,
    /// What each row sees.
    pub tails: Tails<'a>,
    /// Query heads, `H`.
    pub heads: usize,
    /// What scores are made of, and which positions have one.
    pub scoring: Scoring,
    /// Of each query head a score without a value, which takes its share of the weights (arXiv 2309.17453, section
    /// 3.3): `[H]`.
    pub sinks: Option<&'a [f32]>,
}

/// How products of queries and keys become scores, and which positions have one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scoring {
    /// Factor of the products, `1 / sqrt(D)` as a rule.
    pub scale: f32,
    /// Scaled products `x` become `cap * tanh(x / cap)`; above 0.
    pub softcap: Option<f32>,
    /// A row sees so many positions, its own the last of them; at least 1. Without it, all of its logical sequence.
    pub window: Option<u32>,
}

impl Scoring {
    /// Scaled products with all positions.
    pub const fn scaled(scale: f32) -> Self {
        Self { scale, softcap: None, window: None }
    }

    /// The first position that a row with a logical sequence of `len` positions sees.
    pub(crate) fn first_of(self, len: usize) -> usize {
        self.window.map_or(0, |window| len.saturating_sub(window as usize))
    }
}

impl Attention<'_> {
    /// Positions that are weighed together, before their sums are joined to those before them.
    pub(crate) const PARTITION: usize = 128;

    /// Independent pieces of work, ordered by KV head, then row, then query head of the group: near units share keys.
    pub fn units(&self) -> usize {
        self.queries.width() * self.heads
    }

    /// Row, query head and KV head of a unit.
    pub(crate) fn place(&self, unit: usize) -> (usize, usize, usize) {
        let group = self.heads / self.kv.kv_heads;
        let (row, i) = (unit / group, unit % group);
        let (kv_head, w) = (row / self.queries.width(), row % self.queries.width());
        (w, kv_head * group + i, kv_head)
    }

    /// The sink of a query head.
    pub(crate) fn sink(&self, head: usize) -> Option<f32> {
        self.sinks.map(|sinks| sinks[head])
    }

    /// Units of one KV head.
    pub(crate) fn units_per_kv_head(&self) -> usize {
        self.units() / self.kv.kv_heads
    }

    /// Partitions of the longest logical sequence.
    pub(crate) fn partitions(&self) -> usize {
        self.longest().div_ceil(Self::PARTITION)
    }

    /// Pieces of work of attention in two halves, ordered by KV head, then partition: of the first half.
    pub fn items(&self) -> usize {
        self.kv.kv_heads * self.partitions()
    }

    /// Rows of partial results: of each item, one for each unit of its KV head.
    pub fn partial_rows(&self) -> usize {
        self.items() * self.units_per_kv_head()
    }

    /// Numbers in a row of partial results.
    pub fn partial_columns(&self) -> usize {
        self.partials_shape().columns()
    }

    /// Whether `threads` threads share it better in two halves: a few rows whose KV heads cannot be shared evenly. Both
    /// ways give equal bits.
    pub fn is_in_halves(&self, threads: usize) -> bool {
        self.partials_shape().is_used(threads) && self.longest() > 0
    }

    fn partials_shape(&self) -> PartialsShape {
        let KvLayer { kv_heads, head_dim, .. } = self.kv;
        PartialsShape { width: self.queries.width(), heads: self.heads, kv_heads, head_dim }
    }

    /// The first partition that any row sees.
    pub(crate) fn first_partition(&self) -> usize {
        let first = |w| self.scoring.first_of(self.tails.len(w)) / Self::PARTITION;
        (0..self.queries.width()).map(first).min().unwrap_or(0)
    }

    /// # Panics
    /// If rows of partial results have another shape.
    pub(crate) fn check_partials(&self, width: usize, columns: usize) {
        assert!(
            width == self.partial_rows() && columns == self.partial_columns(),
            "[{width}, {columns}] for partial results of [{}, {}]",
            self.partial_rows(),
            self.partial_columns()
        );
    }

    /// Length of the longest logical sequence.
    pub fn longest(&self) -> usize {
        (0..self.queries.width()).map(|w| self.tails.len(w)).max().unwrap_or(0)
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self, out: &RowsMut<'_>) {
        let (width, columns) = (self.queries.width(), self.heads * self.kv.head_dim);
        assert!(
            self.heads.is_multiple_of(self.kv.kv_heads),
            "{} heads over {} KV heads",
            self.heads,
            self.kv.kv_heads
        );
        assert!(
            self.queries.columns() == columns && out.columns() == columns,
            "queries of {columns} columns"
        );
        assert_eq!(out.width(), width, "rows of queries and output");
        assert!(self.sinks.is_none_or(|sinks| sinks.len() == self.heads), "sinks of {} heads", self.heads);
        self.tails.check(width, self.kv.slots);
    }
}

/// What the room for partial results of attention depends on.
#[derive(Clone, Copy, Debug)]
pub struct PartialsShape {
    /// Rows, `W`.
    pub width: usize,
    /// Query heads, `H`.
    pub heads: usize,
    /// KV heads, `G`.
    pub kv_heads: usize,
    /// Elements of a head, `D`.
    pub head_dim: usize,
}

impl PartialsShape {
    /// Numbers before the sums of values in a row of partial results: a maximum, a sum of weights, and nothing.
    pub(crate) const HEADER: usize = 16;

    /// More rows have products enough to hide that two threads read the keys of one KV head.
    const MOST_ROWS: usize = 4;

    /// Most bytes of the partial results that `threads` threads make over a cache of `slots` slots; 0 if they make
    /// none.
    pub fn most_bytes(self, slots: usize, threads: usize) -> usize {
        if !self.is_used(threads) {
            return 0;
        }
        4 * self.width * self.heads * slots.div_ceil(Attention::PARTITION) * self.columns()
    }

    fn is_used(self, threads: usize) -> bool {
        self.width <= Self::MOST_ROWS && !self.kv_heads.is_multiple_of(threads)
    }

    fn columns(self) -> usize {
        Self::HEADER + self.head_dim.next_multiple_of(16)
    }
}
