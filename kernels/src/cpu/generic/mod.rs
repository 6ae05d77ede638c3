//! The portable tier: plain Rust over lanes of 16, which compilers turn into the vectors of any processor.
//!
//! Numeric class of a linear over dense weights: f32 activations, products and sums rounded apart. Over weights of
//! codes it is that of every tier: see [`super::codes`]. Lanes are fixed by the index of an element alone.

mod candidates;
mod columns;
mod linear;
mod pointwise;
mod race;

pub(super) use candidates::{Fold, insert};
pub(super) use linear::{linear, linear_by, linear_gated, linear_gated_by, prepare};
pub(super) use pointwise::{add, add_into, scale};
pub(super) use race::Race;

/// Lanes of the search for a largest logit, joined by halves.
const WIDE: usize = 32;

/// The largest that is not NaN, or negative infinity.
#[inline(always)]
fn largest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; WIDE];
    let mut chunks = logits.chunks_exact(WIDE);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = if x > *lane { x } else { *lane };
    }
    for half in [16, 8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] = if lanes[i + half] > lanes[i] { lanes[i + half] } else { lanes[i] };
        }
    }
    lanes[0]
}

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
