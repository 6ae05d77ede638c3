//! The NEON tier: NEON with dot products of bytes (`SDOT`), four lanes of f32; of bytes of several rows by products of
//! matrices where there are (`SMMLA`).
//!
//! Numeric class of a linear over dense weights: that of the AVX2 tier, with the same bits. Over weights of codes it is
//! that of every tier: see [`super::codes`].
//!
//! The operations of one (row, output) are the same in every register blocking. Every function here must run on a
//! processor that [`super::Neon`] proves; the ends of rows use zeros, never other formulas.

mod linear;
mod vector;

pub(super) use vector::{dot, matrix_product};

/// Where there are dot products alone.
pub(super) mod by_dots {
    linears!("neon,dotprod", neon, crate::cpu::neon::vector::Quads<false>);
}

/// Where there are products of matrices of bytes.
pub(super) mod by_matrices {
    linears!("neon,dotprod", neon, crate::cpu::neon::vector::Quads<true>);
}
