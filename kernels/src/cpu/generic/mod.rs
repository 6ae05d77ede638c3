//! The portable tier: plain Rust over lanes of 16, which compilers turn into the vectors of any processor.
//!
//! Numeric class of a linear: f32 activations, weights dequantised to f32, products and sums rounded apart; for int8 activations, the
//! bits of [`linear_int8`](crate::reference::linear_int8). Lanes are fixed by the index of an element alone.

mod candidates;
mod int8;
mod linear;
mod pointwise;

pub(super) use candidates::{Fold, insert};
#[cfg(target_arch = "x86_64")]
pub(super) use int8::{scale_and_inverse, write_codes};
pub(super) use linear::{linear, linear_gated, prepare};
pub(super) use pointwise::{add, add_into, scale};

/// Sum of 16 lanes, by halves.
#[inline(always)]
fn sum_lanes(lanes: [f32; 16]) -> f32 {
    let mut lanes = lanes;
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}
