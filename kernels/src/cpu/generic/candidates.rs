//! Ranges of logits folded into what was found of their rows. Equal in every tier.

use super::{
    columns::{BLOCK, Columns},
    largest, sum_lanes,
};
use crate::{
    candidates::{LANES, TokenNoise, weight},
    cpu::{
        found::FoundRow,
        lanes::{Lanes, Work},
    },
    noise::most,
};

/// Entries that are looked at together when a row's list is already full of better ones: a vector of comparisons.
const CHUNK: usize = 16;

/// Folds the logits of a range, of ids from `first` on, into a list of `k` and, if the inverse of a temperature is
/// given, into the ranges' sums.
pub(in crate::cpu) struct Fold<'a, 'f> {
    pub(in crate::cpu) logits: &'a [f32],
    pub(in crate::cpu) first: usize,
    pub(in crate::cpu) k: usize,
    pub(in crate::cpu) inverse: Option<f32>,
    pub(in crate::cpu) noise: Option<TokenNoise<'a>>,
    pub(in crate::cpu) found: &'a mut FoundRow<'f>,
}

impl Work for Fold<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Self { logits, first, k, inverse, noise, found } = self;
        match noise {
            None => fold(logits, first, k, inverse, found),
            Some(noise) => fold_noisy(logits, first, k, noise, found),
        }
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

/// As [`fold`] by values under noise. Columns that no noise can lift above the last of a full list are passed over.
#[inline(always)]
fn fold_noisy(logits: &[f32], first: usize, k: usize, noise: TokenNoise<'_>, found: &mut FoundRow<'_>) {
    /// More than values and their bounds are off by rounding.
    const ROUNDING: f32 = 1e-3;
    let mut count = found.count();
    let mut offer = |logit: f32, place: usize, found: &mut FoundRow<'_>| {
        let last = found.logits[k - 1];
        let bound = |upper: u32| logit * noise.inverse + (most(upper) as f32 + ROUNDING);
        let is_beaten = |upper: u32| count == k && bound(upper) <= last;
        if logit.is_nan() || is_beaten(noise.key.upper(noise.token(place))) {
            return;
        }
        let value = noise.value(logit, place);
        if count < k || value > last {
            let id = f32::from_bits(place as u32);
            count = insert(&mut found.ids[..k], &mut found.logits[..k], count, id, value);
        }
    };
    let is_full = found.count() == k;
    match <&[f32; BLOCK]>::try_from(logits) {
        Ok(block) if is_full => {
            let columns = match noise.tokens {
                None => Columns::of(block, noise.key, |place| (first + place) as u32),
                Some(tokens) => {
                    let tokens = &tokens[first..][..BLOCK];
                    Columns::of(block, noise.key, |place| tokens[place])
                }
            };
            let level = f64::from(found.logits[k - 1] - ROUNDING);
            for place in columns.reaching(level, 0.0, noise.inverse) {
                offer(block[place], first + place, found);
            }
        }
        Ok(_) | Err(_) => {
            for (&logit, place) in logits.iter().zip(first..) {
                offer(logit, place, found);
            }
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
