//! Ranges of logits folded into what was found of their rows. Equal in every tier.

use super::sum_lanes;
use crate::{
    candidates::{LANES, weight},
    cpu::{
        found::FoundRow,
        lanes::{Lanes, Work},
    },
};

/// Entries that are looked at together when a row's list is already full of better ones: a vector of comparisons.
const CHUNK: usize = 16;

/// Lanes of the search for a largest logit, joined by halves.
const WIDE: usize = 2 * LANES;

/// Folds the logits of a range, of ids from `first` on, into a list of `k` and, if the inverse of a temperature is
/// given, into the ranges' sums.
pub(in crate::cpu) struct Fold<'a, 'f> {
    pub(in crate::cpu) logits: &'a [f32],
    pub(in crate::cpu) first: usize,
    pub(in crate::cpu) k: usize,
    pub(in crate::cpu) inverse: Option<f32>,
    pub(in crate::cpu) found: &'a mut FoundRow<'f>,
}

impl Work for Fold<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Self { logits, first, k, inverse, found } = self;
        fold(logits, first, k, inverse, found);
    }
}

#[inline(always)]
fn fold(logits: &[f32], first: usize, k: usize, inverse: Option<f32>, found: &mut FoundRow<'_>) {
    let largest = largest(logits);
    if let Some(inverse) = inverse {
        found.add_range(largest, sum(logits, largest, inverse));
    }
    let mut count = found.count();
    if count == k && largest <= found.logits[k - 1] {
        return;
    }
    for (c, chunk) in logits.chunks(CHUNK).enumerate() {
        if count == k {
            let worst = found.logits[k - 1];
            let mut any = false;
            for &x in chunk {
                any |= x > worst;
            }
            if !any {
                continue;
            }
        }
        for (i, &x) in chunk.iter().enumerate() {
            if x.is_nan() || (count == k && x <= found.logits[k - 1]) {
                continue;
            }
            let id = f32::from_bits((first + c * CHUNK + i) as u32);
            count = insert(&mut found.ids[..k], &mut found.logits[..k], count, id, x);
        }
    }
    found.set_count(count);
}

/// Inserts a logit after its equals and betters among the `count` entries of a list, which loses its last if it is
/// full. Returns how many there are then. The logit is one that belongs into the list.
#[inline(always)]
pub(in crate::cpu) fn insert(
    ids: &mut [f32],
    logits: &mut [f32],
    count: usize,
    id: f32,
    logit: f32,
) -> usize {
    let place = logits[..count].partition_point(|&kept| kept >= logit);
    let count = ids.len().min(count + 1);
    logits.copy_within(place..count - 1, place + 1);
    ids.copy_within(place..count - 1, place + 1);
    (logits[place], ids[place]) = (logit, id);
    count
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

/// Sum of the logits' weights relative to `largest`.
#[inline(always)]
fn sum(logits: &[f32], largest: f32, inverse: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let mut chunks = logits.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += weight(x, largest, inverse);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += weight(x, largest, inverse);
    }
    sum_lanes(lanes)
}
