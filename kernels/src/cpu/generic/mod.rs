//! The portable tier: plain Rust over lanes of 16, which compilers turn into the vectors of any processor.
//!
//! Numeric class of a linear over dense weights: f32 activations, products and sums rounded apart. Over weights of
//! codes it is that of every tier: see [`super::codes`]. Lanes are fixed by the index of an element alone.

use crate::noise::NoiseKey;

mod candidates;
mod linear;
mod pointwise;
mod race;

pub(super) use candidates::{Fold, insert};
pub(super) use linear::{linear, linear_gated, prepare};
pub(super) use pointwise::{add, add_into, scale};
pub(super) use race::Race;

/// Lanes of the search for a largest logit, joined by halves.
const WIDE: usize = 32;

/// Tokens that are passed over together under noise: four vectors of hashes. Of fewer, the bound would be computed more
/// often; of more, it would be higher and single tokens be looked at more often.
const HASHED: usize = 64;

/// The least upper half of the random bits of [`HASHED`] tokens.
#[inline(always)]
fn least_upper(key: NoiseKey, first: u32) -> u32 {
    let mut lanes = [u32::MAX; 16];
    for chunk in (0..HASHED as u32).step_by(16) {
        for (i, lane) in (0..).zip(&mut lanes) {
            *lane = (*lane).min(key.upper(first + chunk + i));
        }
    }
    lanes.into_iter().fold(u32::MAX, u32::min)
}

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
