//! The CUDA kernels in `kernels/cuda` as the host sees them: their source, their parameters, and the layout of their
//! weights.
//!
//! No device is touched here: the backend loads and launches.

pub mod abi;
pub mod packing;

/// A source file of the kernels: name as others include it, and text.
pub type SourceFile = (&'static str, &'static str);

/// The unit that includes all others.
pub const SOURCE: SourceFile = ("kernels.cu", include_str!("../cuda/kernels.cu"));

/// Everything that [`SOURCE`] includes, directly or not. No header of CUDA is needed.
pub const HEADERS: [SourceFile; 21] = [
    ("abi.h", include_str!("../cuda/abi.h")),
    ("ops.cuh", include_str!("../cuda/ops.cuh")),
    ("common.cuh", include_str!("../cuda/common.cuh")),
    ("rows.cuh", include_str!("../cuda/rows.cuh")),
    ("packed.cuh", include_str!("../cuda/packed.cuh")),
    ("linear.cuh", include_str!("../cuda/linear.cuh")),
    ("candidates.cuh", include_str!("../cuda/candidates.cuh")),
    ("routed.cuh", include_str!("../cuda/routed.cuh")),
    ("products.cuh", include_str!("../cuda/products.cuh")),
    ("attention_block.cuh", include_str!("../cuda/attention_block.cuh")),
    ("attention_rows.cuh", include_str!("../cuda/attention_rows.cuh")),
    ("attention_sections.cuh", include_str!("../cuda/attention_sections.cuh")),
    ("attention.cuh", include_str!("../cuda/attention.cuh")),
    ("short_conv.cuh", include_str!("../cuda/short_conv.cuh")),
    ("states.cuh", include_str!("../cuda/states.cuh")),
    ("noise.cuh", include_str!("../cuda/noise.cuh")),
    ("growth.cuh", include_str!("../cuda/growth.cuh")),
    ("pruning.cuh", include_str!("../cuda/pruning.cuh")),
    ("race.cuh", include_str!("../cuda/race.cuh")),
    ("walk.cuh", include_str!("../cuda/walk.cuh")),
    ("measure.cuh", include_str!("../cuda/measure.cuh")),
];
