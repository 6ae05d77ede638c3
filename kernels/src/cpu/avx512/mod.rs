//! The AVX-512 tiers: F, BW, VL, DQ and VNNI, with or without BF16.
//!
//! Numeric classes of a linear over dense weights:
//! * f32 activations, fused products, two chains (even and odd columns).
//! * bf16 where the processor has BF16: activations rounded once to bf16; products by `VDPBF16PS` in two chains (even
//!   and odd column pairs).
//!
//! Over weights of codes they are those of every tier: see [`super::codes`].
//!
//! The operations of one (row, output) are the same in every register blocking. Every function here must run on a
//! processor that [`super::Avx512`] proves; the ends of rows use masks, never other formulas.

pub(super) mod lanes;
mod linear;
pub(super) mod rms_norm;
mod vector;

pub(super) use linear::{linear, linear_gated, prepare, products};
pub(super) use vector::Zmm;
