//! Scratch memory of a program's steps on the device, and its size.

use ygg_kernels::cuda::abi::{YGG_PARTITION, YGG_RANGE, YGG_TILE_K, YGG_TILE_N, YGG_TILE_W};

use crate::ir::{Op, OpWeights, Operand, Program, WeightId};

use super::{
    experts::{RoutedProducts, pieces_bytes},
    products::WideProduct,
};

/// Rows that tensor cores multiply at once.
pub(super) const TILE_W: usize = YGG_TILE_W as usize;

/// Memory that steps use for themselves, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scratch {
    /// What linears read: one buffer is read while the next is written.
    pub(super) fragments: [u64; 2],
    /// What products of parts of the inputs, or with experts, leave for the join of them.
    pub(super) parts: u64,
    /// Which rows use which experts.
    pub(super) pieces: u64,
    /// Logits of which only candidates are shown.
    pub(super) logits: u64,
    /// Partial results of attention: values, largest scores, sums.
    pub(super) partial: [u64; 3],
    /// Of ranges of logits: largest, sum, count, values, ids.
    pub(super) ranges: [u64; 5],
}

/// Bytes that [`Scratch`] takes for one program, in its order; of fragments, one buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScratchBytes {
    pub(super) fragments: usize,
    pub(super) parts: usize,
    pub(super) pieces: usize,
    pub(super) logits: usize,
    pub(super) partial: [usize; 3],
    pub(super) ranges: [usize; 5],
}

impl ScratchBytes {
    pub(super) fn of(program: &Program, context: usize) -> Self {
        let mut most = Self::default();
        let outputs =
            |ids: &[WeightId]| -> usize { ids.iter().map(|id| program.weights[id.0 as usize].rows).sum() };
        for step in &program.steps {
            let x = step.operands.first().and_then(Operand::region);
            let x = x.as_ref();
            let mut product = |weights: &[WeightId], is_gated| {
                let x = x.expect("a product has a left side");
                let (tiles, row_tiles) = (outputs(weights).div_ceil(YGG_TILE_N as usize), row_tiles(x.rows));
                most.fragments = most.fragments.max(fragment_bytes(x.rows, x.columns));
                if row_tiles > 1 {
                    most.parts = most.parts.max(WideProduct { tiles, is_gated, row_tiles }.parts_bytes());
                }
            };
            match step.op.weights() {
                OpWeights::Stack { weights, .. } => product(weights, false),
                OpWeights::Gated { gate, .. } => product(&[gate], true),
                OpWeights::Nothing
                | OpWeights::Rows(_)
                | OpWeights::Gain(_)
                | OpWeights::Vectors(_)
                | OpWeights::Experts { .. } => {}
            }
            if let Some(products) = RoutedProducts::of(&step.op) {
                let rows = x.expect("rows of a product").rows;
                let used = step.operands[1].region().expect("routes").columns / 2;
                let prepared = products.prepared_rows(rows, used);
                most.fragments = most.fragments.max(fragment_bytes(prepared, products.columns(program)));
                most.pieces = most.pieces.max(pieces_bytes(rows, used, products.count()));
                let parts = rows * used * products.outputs(program) * size_of::<f32>();
                most.parts = most.parts.max(parts);
            }
            if let Op::Attention { layer, heads, .. } = &step.op {
                let vectors = x.expect("queries").rows * heads * partitions(context);
                let elements = program.kv.heads(*layer)[1].next_multiple_of(4);
                let bytes = [vectors * elements, vectors, vectors].map(|n| n * size_of::<f32>());
                most.partial = std::array::from_fn(|i| most.partial[i].max(bytes[i]));
            }
            if let Op::Candidates { head, most: count, tokens: _ } = &step.op {
                let x = x.expect("logits, or what they are made of");
                let vocabulary = head.as_ref().map_or(x.columns, |head| outputs(&head.weights));
                if head.is_some() {
                    most.logits = most.logits.max(x.rows * vocabulary * size_of::<f32>());
                }
                let each = x.rows * ranges(vocabulary) * size_of::<f32>();
                let bytes = [each, each, each, each * count, each * count];
                most.ranges = std::array::from_fn(|i| most.ranges[i].max(bytes[i]));
            }
        }
        most
    }

    /// The larger of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            fragments: self.fragments.max(other.fragments),
            parts: self.parts.max(other.parts),
            pieces: self.pieces.max(other.pieces),
            logits: self.logits.max(other.logits),
            partial: std::array::from_fn(|i| self.partial[i].max(other.partial[i])),
            ranges: std::array::from_fn(|i| self.ranges[i].max(other.ranges[i])),
        }
    }
}

/// Tiles of token rows: a power of two, so that few kernels serve all widths.
pub(super) fn row_tiles(rows: usize) -> usize {
    rows.div_ceil(TILE_W).next_power_of_two()
}

/// Enough for every layout.
fn fragment_bytes(rows: usize, columns: usize) -> usize {
    let halves = columns.next_multiple_of(YGG_TILE_K as usize) * row_tiles(rows) * TILE_W * 2;
    halves.max(rows * columns * size_of::<f32>())
}

pub(super) fn partitions(context: usize) -> usize {
    context.div_ceil(YGG_PARTITION as usize)
}

pub(super) fn ranges(vocabulary: usize) -> usize {
    vocabulary.div_ceil(YGG_RANGE as usize)
}
