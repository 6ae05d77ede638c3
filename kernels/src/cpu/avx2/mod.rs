//! The AVX2 tier: AVX2, FMA and F16C, eight lanes of f32.
//!
//! Numeric class of a linear with int8 activations: [`linear_int8`](crate::reference::linear_int8), bit for bit. With native
//! ones: f32 activations by the f32 values of codes or weights, which are exact, all products
//! fused. Every format sums a block of 32 columns in two chains, of the even and of the odd columns, and joins them. To
//! the total of a (row, output), block after block,
//! * bf16, f16 and f32 add the block's sum;
//! * q8_0 adds it times the scale, one fused product;
//! * q4_0 subtracts 8 times the sum of the block's activations first, as codes are unsigned here;
//! * q4_1 adds, after it, the minimum times that sum;
//! * q4_k does so too, by the exact scale and minimum of its sub-block, and q6_k sums 16 columns at a time, with theirs.
//!
//! The operations of one (row, output) are the same in every register blocking. Every function here must run on a
//! processor that [`super::Avx2`] vouches for; tails use masks or zeros, never other formulas.

mod lanes;
mod linear;
mod rms_norm;

pub(super) use linear::{linear, linear_gated, prepare};
