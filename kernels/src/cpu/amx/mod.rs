//! The AMX tier: tile products of bf16 pairs, beside everything of the AVX-512 tier.
//!
//! Numeric classes of a linear:
//! * q4_0, q4_1, q8_0 and bf16: activations rounded once to bf16; products of exact codes by `TDPBF16PS`, which sums the
//!   even and the odd columns of a block of 32 apart with fused products, flushing denormals, then adds both sums to
//!   the result. Quantised blocks start from zero, are scaled and added with fused products, block by block; the minimum
//!   of q4_1 multiplies the sum of the block's rounded activations. bf16 adds block after block in the tile.
//! * q4_k, q6_k, f16 and f32: those of the AVX-512 tier, bit for bit, as are all other ops.
//! * int8 activations: those of the AVX-512 tier, by its kernels. `TDPBUSD` takes 64 columns of a row at once, but a scale
//!   every 32 columns asks for its sums after half of them: half of each product would be empty, and emptying the tile
//!   costs more than the product gains.
//!
//! The operations of one (row, output) are the same in every row of a tile and whatever the number of rows. The
//! kernels are written once over [`tiles::Tiles`]: on the processor's tiles ([`hardware`]) and on tiles in memory
//! ([`emulated`]), which say what the instructions mean. Before the tier is offered, [`usable`] compares both.

mod detection;
mod emulated;
mod hardware;
mod linear;
mod ops;
mod peak;
mod tiles;

pub(super) use detection::usable;
#[cfg(test)]
pub(super) use ops::on_emulated;
pub(super) use ops::on_hardware;
pub(super) use peak::products;

#[cfg(test)]
mod tests;
