//! The AMX tier: tile products of bf16 pairs, and everything of the AVX-512 tier.
//!
//! Numeric class of a linear over bf16 weights: activations rounded once to bf16; products by `TDPBF16PS`, which sums
//! the even and the odd columns of a block of 32 apart with fused products, flushing denormals, then adds both sums to
//! the result, block after block in the tile. Over weights of codes tiles multiply bytes, with the bits of every tier
//! ([`super::codes`]). Every other op is that of the AVX-512 tier, bit for bit.
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
#[cfg(all(feature = "testing", target_os = "linux"))]
pub(super) mod trapped;

pub(super) use detection::usable;
#[cfg(test)]
pub(super) use emulated::Emulated;
#[cfg(feature = "testing")]
pub(super) use ops::on_emulated;
pub(super) use ops::on_hardware;
pub(super) use peak::products;
pub(super) use tiles::{ROW_BYTES, ROWS, Shape, Tiles};

#[cfg(test)]
mod tests;
