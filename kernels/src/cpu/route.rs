//! Which experts a row uses. Equal in every tier.

use super::lanes::{LANES, Lanes, Work, exp};
use crate::{Gating, Routing};
use std::cmp::Ordering;

/// Writes the route of one row by its scores.
pub(super) struct Route<'a> {
    pub(super) scores: &'a [f32],
    /// Added where experts are chosen.
    pub(super) bias: Option<&'a [f32]>,
    /// Of weights.
    pub(super) factors: Option<&'a [f32]>,
    pub(super) routing: &'a Routing,
    pub(super) out: &'a mut [f32],
}

impl Work for Route<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { scores, bias, factors, routing: &Routing { used, gating, normalised, scale }, out } = self;
        let (numbers, weights) = out.split_at_mut(used);
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mass = match gating {
            // Weights that are divided by their sum alone need no other divisor.
            Gating::Softmax if bias.is_some() || normalised != Some(0.0) => {
                let mut mass = 0.0;
                for part in scores.chunks(LANES) {
                    mass += s.sum(weighed(s, (gating, largest), part));
                }
                mass
            }
            Gating::Softmax | Gating::Sigmoid => 1.0,
        };

        // The best so far in `numbers`, best first, their values in `weights`.
        let mut found = 0;
        for (chunk, part) in scores.chunks(LANES).enumerate() {
            let mut values = [0.0; LANES];
            values[..part.len()].copy_from_slice(part);
            let first = chunk * LANES;
            if let Some(bias) = bias {
                s.store_part(&mut values, 0, s.div(weighed(s, (gating, largest), part), s.splat(mass)));
                values.iter_mut().zip(&bias[first..]).for_each(|(value, bias)| *value += bias);
            }
            for (lane, value) in values[..part.len()].iter().enumerate() {
                // Of equal values the one found first stays in front, and so does one that is no number.
                let stays = |kept: &f32| value.partial_cmp(kept) != Some(Ordering::Greater);
                let place = weights[..found].iter().rposition(stays).map_or(0, |last| last + 1);
                if place == used {
                    continue;
                }
                found = (found + 1).min(used);
                numbers[place..found].rotate_right(1);
                weights[place..found].rotate_right(1);
                (numbers[place], weights[place]) = ((first + lane) as f32, *value);
            }
        }

        // Numbers are exact, and few: sorted by insertion.
        for sorted in 1..used {
            let place = numbers[..sorted].partition_point(|number| *number < numbers[sorted]);
            numbers[place..=sorted].rotate_right(1);
        }
        for (weight, number) in weights.iter_mut().zip(&*numbers) {
            *weight = s.first(weighed(s, (gating, largest), &scores[*number as usize..][..1]));
        }
        let divisor = match normalised {
            Some(least) => weights.iter().sum::<f32>() + mass * least,
            None => mass,
        };
        weights.iter_mut().for_each(|weight| *weight = *weight / divisor * scale);
        if let Some(factors) = factors {
            weights
                .iter_mut()
                .zip(&*numbers)
                .for_each(|(weight, number)| *weight *= factors[*number as usize]);
        }
    }
}

/// What scores weigh before they are divided, the largest of all given: lanes beyond the scores weigh nothing.
#[inline(always)]
fn weighed<S: Lanes>(s: S, (gating, largest): (Gating, f32), scores: &[f32]) -> S::V {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    lanes[..scores.len()].copy_from_slice(scores);
    let x = s.load_part(&lanes, 0);
    match gating {
        Gating::Softmax => exp(s, s.sub(x, s.splat(largest))),
        Gating::Sigmoid => {
            let one = s.splat(1.0);
            s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
        }
    }
}
