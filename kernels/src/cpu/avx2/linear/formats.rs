//! The weight formats: where things lie in a packed block, and what its sum becomes.

use crate::{
    Tier, WeightFormat,
    cpu::{
        activations::Layout,
        packing::{TILE, superblocks::CODES},
    },
};

/// A format as the kernels see it.
pub(super) trait Format {
    const FORMAT: WeightFormat;
    /// Bytes of scales and minima before the codes of a block.
    const HEADER: usize;
    /// Bytes from a row to the next in a block of a prepared group.
    const X_ROW: usize = Layout::native(Self::FORMAT, Tier::Avx2).block_bytes();
}

macro_rules! formats {
    ($($name:ident: $header:expr,)*) => {
        $(
            #[allow(non_camel_case_types, reason = "spelled as the formats")]
            pub(super) struct $name;

            impl Format for $name {
                const FORMAT: WeightFormat = WeightFormat::$name;
                const HEADER: usize = $header;
            }
        )*
    };
}

formats! {
    Q4_0: 2 * TILE,
    Q4_1: 4 * TILE,
    Q8_0: 2 * TILE,
    Q4_K: CODES,
    Q6_K: CODES,
    BF16: 0,
    F16: 0,
    F32: 0,
}
