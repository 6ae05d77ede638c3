//! The AVX2 tier: AVX2, FMA and F16C, eight lanes of f32.
//!
//! Numeric class of a linear over dense weights: f32 activations by the f32 values of weights, which are exact; a block
//! of 32 columns is summed in two chains of fused products, of the even and of the odd columns, and their sum is added
//! to the total. Over weights of codes it is that of every tier: see [`super::codes`].
//!
//! The operations of one (row, output) are the same in every register blocking. Every function here must run on a
//! processor that [`super::Avx2`] proves; the ends of rows use masks or zeros, never other formulas.

mod linear;
mod rms_norm;
mod vector;

pub(super) use vector::pair_sums;

/// Where there is AVX2 alone.
pub(super) mod split {
    linears!("avx2,fma,f16c", avx2, crate::cpu::avx2::linear::Split);
}

/// Where there is AVX-VNNI.
pub(super) mod vnni {
    linears!("avx2,fma,f16c", avx2, crate::cpu::avx2::linear::Vnni);
}
