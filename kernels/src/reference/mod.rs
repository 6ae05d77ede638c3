//! The scalar meaning of every op: f32 storage, f64 sums, no trick. The judge of the fast implementations.
//!
//! Signatures follow [`crate::cpu::Kernels`] without work ranges and scratch; weights are read as the file has them.

mod add;
mod append_kv;
mod attention;
mod candidates;
mod embed;
mod gate;
mod linear;
mod linear_int8;
mod race;
mod recurrence;
mod rms_norm;
mod rope;
mod route;
mod scale;
mod select_rows;
mod short_conv;

pub use add::{add, add_bias, add_into};
pub use append_kv::append_kv;
pub use attention::attention;
pub use candidates::candidates;
pub use embed::embed;
pub use gate::{capped, gate, gated, softcap};
pub use linear::{linear, linear_gated};
pub use linear_int8::{CodedBlock, linear_gated_int8, linear_int8};
pub use race::race;
pub use recurrence::recurrence;
pub use rms_norm::rms_norm;
pub use rope::rope;
pub use route::{route, routed_gated, routed_linear};
pub use scale::scale;
pub use select_rows::select_rows;
pub use short_conv::short_conv;
