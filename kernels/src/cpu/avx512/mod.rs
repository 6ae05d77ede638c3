//! The AVX-512 tier: F, BW, VL, DQ, BF16 and VNNI.
//!
//! Numeric classes of a linear:
//! * q4_0, q4_1, q8_0 and bf16: activations rounded once to bf16; products of exact codes by `VDPBF16PS`. Quantised
//!   blocks of 32 are summed in two chains (even and odd column pairs), joined, then scaled and added with fused
//!   products, block by block; the minimum of q4_1 multiplies the sum of the block's rounded activations. bf16 keeps
//!   two chains over all columns.
//! * q4_k and q6_k: the same, by sub-blocks with their exact scales: of 32 columns as q4_1, its minimum subtracted, and of
//!   16 columns in one chain.
//! * f16 and f32: f32 activations, fused products, two chains (even and odd columns).
//! * int8 activations over q4_0, q4_1, q8_0 and q4_k: [`linear_int8`](crate::reference::linear_int8), bit for bit.
//!
//! The operations of one (row, output) are the same in every register blocking. Every function here must run on a
//! processor that [`super::Avx512`] vouches for; tails use masks, never other formulas.

pub(super) mod lanes;
mod linear;
pub(super) mod rms_norm;

pub(super) use linear::{linear, linear_gated, prepare, sum_pairs};
