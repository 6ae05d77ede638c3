//! What blocks of a product have to do, how much shared memory each, and what they leave for a join.

use ygg_kernels::cuda::{
    abi::{YGG_SPLIT_K, YGG_TILE_K, YGG_TILE_N, YGG_TILE_W, YGG_WIDE_STAGES, YGG_WIDE_TILES},
    packing::Layout,
};

/// Whether a product of so many tiles of rows shares what it reads of them (`wide_linear`), or each warp reads them by
/// itself: up to 16 rows, unless a gated pair of the layout needs too many registers for that (`linear_of_16`).
pub(super) fn is_wide(layout: Layout, is_gated: bool, row_tiles: usize) -> bool {
    let is_large = matches!(
        layout,
        Layout::Nibbles | Layout::NibblesWide | Layout::FivesWide | Layout::Twos | Layout::BytesWide
    );
    row_tiles > if is_gated && is_large { 1 } else { 2 }
}

/// From so many blocks on each multiplies all inputs of its outputs: less is written and nothing is joined. Fewer
/// blocks take the inputs in [`PAIRS`] pieces instead, so that there is work for four times as many.
const WHOLE_BLOCKS: usize = 240;
/// Pairs of parts of the inputs: a block of a wide product works on two parts at a time.
const PAIRS: usize = YGG_SPLIT_K as usize / 2;

/// A product that [`is_wide`]: `tiles` tiles of outputs, or of those of a gate and as many of its up matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct WideProduct {
    pub(super) tiles: usize,
    pub(super) is_gated: bool,
    pub(super) row_tiles: usize,
}

impl WideProduct {
    /// Tiles of outputs of a block.
    pub(super) fn blocks(self) -> usize {
        self.tiles.div_ceil(YGG_WIDE_TILES as usize / if self.is_gated { 2 } else { 1 })
    }

    /// Whether a block multiplies one pair of parts of the inputs at a time, which a later kernel joins: where there
    /// are few blocks.
    pub(super) fn is_joined(self) -> bool {
        self.blocks() < WHOLE_BLOCKS
    }

    /// What blocks take one after the other: all inputs of their outputs, or a pair of parts.
    pub(super) fn stretches(self) -> usize {
        self.blocks() * if self.is_joined() { PAIRS } else { 1 }
    }

    /// Shared memory of a block: stages of two tiles of inputs, results, and half as many that warps give each other.
    pub(super) fn shared(self) -> usize {
        let words = YGG_WIDE_STAGES * 2 * YGG_TILE_K / 2 + YGG_WIDE_TILES * YGG_TILE_N * 3 / 2;
        self.row_tiles * (YGG_TILE_W * words) as usize * size_of::<f32>()
    }

    /// Bytes of what the pairs of parts leave for the join.
    pub(super) fn parts_bytes(self) -> usize {
        let outputs = self.blocks() * (YGG_WIDE_TILES * YGG_TILE_N) as usize;
        let rows = self.row_tiles * YGG_TILE_W as usize;
        if self.is_joined() { PAIRS * outputs * rows * size_of::<f32>() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_outputs_and_fit_the_smallest_multiprocessor() {
        let product =
            |outputs: usize, is_gated| WideProduct { tiles: outputs.div_ceil(16), is_gated, row_tiles: 8 };
        let facts = |p: WideProduct| (p.blocks(), p.stretches(), p.parts_bytes());
        assert_eq!(facts(product(4096, false)), (32, 128, 4 * 4096 * 64 * 4));
        assert_eq!(facts(product(4100, false)), (33, 132, 4 * 4224 * 64 * 4));
        assert_eq!(facts(product(11008, true)), (172, 688, 4 * 22016 * 64 * 4));
        assert_eq!(facts(product(32000, false)), (250, 250, 0));
        assert_eq!(product(16, false).shared(), 96 << 10);
    }
}
