//! The NEON tier: NEON with dot products of bytes (`SDOT`), four lanes of f32.
//!
//! Numeric class of a linear over dense weights: that of the AVX2 tier, with the same bits. Over weights of codes it is
//! that of every tier: see [`super::codes`].
//!
//! The operations of one (row, output) are the same in every register blocking. Every function here must run on a
//! processor that [`super::Neon`] proves; the ends of rows use zeros, never other formulas.

mod linear;
mod vector;

pub(super) use linear::{linear, linear_gated, prepare};
pub(super) use vector::dot;
