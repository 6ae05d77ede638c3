//! Shapes of published models, to measure latencies without their weights.

use ygg_kernels::WeightFormat;

use super::{SyntheticExperts, SyntheticSpec};
use crate::model::{RopeConfig, RopeScaling};

/// Distinct rows of a matrix; the others repeat them. Latencies are the same, and the file is written at the speed of
/// the disk.
const DISTINCT_ROWS: usize = 64;

impl SyntheticSpec {
    /// Names that [`shape`](Self::shape) knows.
    pub const SHAPES: [&'static str; 4] = ["llama-1b", "llama-7b", "llama-13b", "qwen3-30b-a3b-8-layers"];

    /// The shape of a published model with random weights in `format`: Llama 3.2 1B, Llama 2 7B and 13B, and eight of
    /// the 48 layers of Qwen3-30B-A3B without the norms of heads, as Llama's tensors. Rows repeat,
    /// so neither the text of such a model nor the acceptance of a drafter of it means anything.
    pub fn shape(name: &str, format: WeightFormat) -> Option<Self> {
        let rope = |base| RopeConfig { base, scaling: RopeScaling::None };
        let llama_2 = Self {
            head_dim: 128,
            vocabulary: 32_000,
            context: 4096,
            tied: false,
            rope: rope(10_000.0),
            format,
            distinct_rows: DISTINCT_ROWS,
            ..Self::default()
        };
        match name {
            "llama-1b" => Some(Self {
                layers: 16,
                width: 2048,
                heads: 32,
                kv_heads: 8,
                head_dim: 64,
                feed_forward: 8192,
                vocabulary: 128_256,
                tied: true,
                rope: rope(500_000.0),
                ..llama_2
            }),
            "llama-7b" => Some(Self {
                layers: 32,
                width: 4096,
                heads: 32,
                kv_heads: 32,
                feed_forward: 11_008,
                ..llama_2
            }),
            "llama-13b" => Some(Self {
                layers: 40,
                width: 5120,
                heads: 40,
                kv_heads: 40,
                feed_forward: 13_824,
                ..llama_2
            }),
            "qwen3-30b-a3b-8-layers" => Some(Self {
                layers: 8,
                width: 2048,
                heads: 32,
                kv_heads: 4,
                feed_forward: 768,
                experts: Some(SyntheticExperts { count: 128, used: 8, are_copies: false }),
                vocabulary: 151_936,
                rope: rope(1_000_000.0),
                ..llama_2
            }),
            _ => None,
        }
    }
}
