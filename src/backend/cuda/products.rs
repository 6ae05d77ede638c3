//! How many blocks a launch of a product has, how much shared memory each, and what they leave for a join.

use ygg_kernels::cuda::abi::{
    YGG_SPLIT_K, YGG_TILE_K, YGG_TILE_N, YGG_TILE_W, YGG_WIDE_STAGES, YGG_WIDE_TILES,
};

/// From so many blocks on a multiprocessor has enough of them without cutting their inputs: less is written and nothing is joined.
const WHOLE_BLOCKS: usize = 240;

/// A product of more rows than tensor cores multiply at once: `tiles` tiles of outputs, or of those of a gate and as many beside them.
#[derive(Clone, Copy, Debug)]
pub(super) struct WideProduct {
    pub(super) tiles: usize,
    pub(super) is_gated: bool,
    pub(super) row_tiles: usize,
}

impl WideProduct {
    /// Blocks along the outputs.
    pub(super) fn blocks(self) -> usize {
        self.tiles.div_ceil(YGG_WIDE_TILES as usize / if self.is_gated { 2 } else { 1 })
    }

    /// Blocks along the inputs: one, or one for each pair of their parts, which a kernel behind it joins.
    pub(super) fn pairs(self) -> usize {
        if self.blocks() >= WHOLE_BLOCKS { 1 } else { YGG_SPLIT_K as usize / 2 }
    }

    /// Shared memory of a block: stages of two tiles of inputs, results, and half as many that warps give each other.
    pub(super) fn shared(self) -> usize {
        let words = YGG_WIDE_STAGES * 2 * YGG_TILE_K / 2 + YGG_WIDE_TILES * YGG_TILE_N * 3 / 2;
        self.row_tiles * (YGG_TILE_W * words) as usize * size_of::<f32>()
    }

    /// Bytes of what the blocks of its pairs leave.
    pub(super) fn parts_bytes(self) -> usize {
        let outputs = self.blocks() * (YGG_WIDE_TILES * YGG_TILE_N) as usize;
        let rows = self.row_tiles * YGG_TILE_W as usize;
        if self.pairs() == 1 { 0 } else { self.pairs() * outputs * rows * size_of::<f32>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_outputs_and_fit_the_smallest_multiprocessor() {
        let product =
            |outputs: usize, is_gated| WideProduct { tiles: outputs.div_ceil(16), is_gated, row_tiles: 8 };
        let facts = |p: WideProduct| (p.blocks(), p.pairs(), p.parts_bytes());
        assert_eq!(facts(product(4096, false)), (32, 4, 4 * 4096 * 64 * 4));
        assert_eq!(facts(product(4100, false)), (33, 4, 4 * 4224 * 64 * 4));
        assert_eq!(facts(product(11008, true)), (172, 4, 4 * 22016 * 64 * 4));
        assert_eq!(facts(product(32000, false)), (250, 1, 0));
        assert_eq!(product(16, false).shared(), 96 << 10);
    }
}
