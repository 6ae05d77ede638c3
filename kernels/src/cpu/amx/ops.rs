//! The ops of the tier, on either kind of tiles.

/// Linears on tiles of the given type.
macro_rules! ops {
    ($tiles:ty) => {
        use crate::cpu::amx::linear;
        pub(in crate::cpu) use crate::cpu::amx::linear::prepare;
        use crate::{
            RowsMut,
            cpu::{Epilogue, PackedLinear, Prepared},
        };
        use std::ops::Range;

        /// As [`linear::linear`].
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
        pub(in crate::cpu) fn linear(
            weights: &PackedLinear,
            x: &Prepared<'_>,
            tiles: Range<usize>,
            epilogue: Epilogue,
            out: &mut RowsMut<'_>,
        ) {
            linear::linear::<$tiles>(weights, x, tiles, epilogue, out);
        }

        /// As [`linear::linear_gated`].
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
        pub(in crate::cpu) fn linear_gated(
            weights: &PackedLinear,
            x: &Prepared<'_>,
            tiles: Range<usize>,
            out: &mut RowsMut<'_>,
        ) {
            linear::linear_gated::<$tiles>(weights, x, tiles, out);
        }
    };
}

/// On the processor's tiles: whoever calls holds the proof that they can be used.
pub(in crate::cpu) mod on_hardware {
    ops!(crate::cpu::amx::hardware::Hardware);
}

/// On tiles in memory, for tests where the processor has none.
#[cfg(test)]
pub(in crate::cpu) mod on_emulated {
    ops!(crate::cpu::amx::emulated::Emulated);
}
