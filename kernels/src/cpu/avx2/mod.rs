//! The AVX2 tier: AVX2, FMA and F16C, eight lanes of f32.
//!
//! Numeric class of a linear over dense weights: f32 activations by the f32 values of weights, which are exact; a block of 32 columns is
//! summed in two chains of fused products, of the even and of the odd columns, and their sum is added to the total.
//! Over weights of codes it is that of every tier: see [`super::codes`].
//!
//! The operations of one (row, output) are the same in every register blocking. Every function here must run on a
//! processor that [`super::Avx2`] vouches for; tails use masks or zeros, never other formulas.

mod lanes;
mod linear;
mod rms_norm;
mod vector;

pub(super) use vector::pair_sums;

/// Every op that a tier has, bytes multiplied in the given way.
macro_rules! ops {
    ($arithmetic:ty) => {
        pub(in crate::cpu) use super::linear::prepare;
        use crate::{
            RowsMut,
            cpu::{Epilogue, PackedLinear, Prepared, avx2::linear},
        };
        use std::ops::Range;

        /// As [`linear::linear`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(in crate::cpu) fn linear(
            weights: &PackedLinear,
            x: &Prepared<'_>,
            tiles: Range<usize>,
            epilogue: Epilogue,
            out: &mut RowsMut<'_>,
        ) {
            linear::linear::<$arithmetic>(weights, x, tiles, epilogue, out);
        }

        /// As [`linear::linear_gated`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(in crate::cpu) fn linear_gated(
            weights: &PackedLinear,
            x: &Prepared<'_>,
            tiles: Range<usize>,
            out: &mut RowsMut<'_>,
        ) {
            linear::linear_gated::<$arithmetic>(weights, x, tiles, out);
        }
    };
}

/// Where there is AVX2 alone.
pub(super) mod split {
    ops!(crate::cpu::avx2::linear::Split);
}

/// Where there is AVX-VNNI.
pub(super) mod vnni {
    ops!(crate::cpu::avx2::linear::Vnni);
}
