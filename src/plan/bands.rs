//! Bands: the parts of a plan for requests of one temperature each.
//!
//! Acceptance depends on the temperature: at a high one unlikely tokens are drawn, which drafters do not predict. So requests are recorded
//! at several temperatures (as in the evaluation of Yggdrasil, NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), each gets a plan of its
//! own, and a request uses the part whose temperature is nearest to its own.
use std::{borrow::Cow, iter};

use serde::{Deserialize, Serialize};

use super::{Alternative, LeftOut, Plan, Refusal, SubPlan};

/// Decisions for requests of one temperature above 0. Steps choose no depth here: depth predictors are trained on greedy
/// requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// Temperature of the requests that were recorded.
    pub temperature: f32,
    /// The best sub-plan of every drafter measured; plain decoding first.
    pub by_drafter: Vec<SubPlan>,
    /// The place of the chosen sub-plan in `by_drafter`.
    pub chosen_index: u32,
    /// Every shape priced, over all drafters, best first; plain decoding among them.
    pub alternatives: Vec<Alternative>,
    /// Tree shapes that the traces do not cover.
    pub refused: Vec<Refusal>,
    /// Drafters of the profile that were no candidates.
    pub left_out: Vec<LeftOut>,
}

impl Band {
    /// The sub-plan to run.
    ///
    /// # Panics
    /// If the plan is not valid.
    pub fn chosen(&self) -> &SubPlan {
        &self.by_drafter[self.chosen_index as usize]
    }
}

/// The place, among ascending `temperatures`, of the one nearest to `wanted`; of two as near the lower.
///
/// # Panics
/// If there is none.
pub fn nearest(temperatures: impl IntoIterator<Item = f32>, wanted: f32) -> usize {
    let distances = temperatures.into_iter().map(|temperature| (temperature - wanted).abs()).enumerate();
    let closer = |best: (usize, f32), next: (usize, f32)| if next.1 < best.1 { next } else { best };
    distances.reduce(closer).expect("one temperature at least").0
}

impl Plan {
    /// The temperatures that it was searched for, ascending from 0.
    pub fn temperatures(&self) -> impl Iterator<Item = f32> {
        iter::once(0.0).chain(self.bands.iter().map(|band| band.temperature))
    }

    /// The index in [`temperatures`](Self::temperatures) of the band that serves requests of `temperature`.
    pub fn band_for(&self, temperature: f32) -> usize {
        nearest(self.temperatures(), temperature)
    }

    /// The plan for requests of one band: a copy in which the band's decisions replace those for temperature 0.
    ///
    /// # Panics
    /// If there is no temperature at this place.
    pub fn of_band(&self, place: usize) -> Cow<'_, Plan> {
        let Some(place) = place.checked_sub(1) else { return Cow::Borrowed(self) };
        let Band { temperature: _, by_drafter, chosen_index, alternatives, refused, left_out } =
            self.bands[place].clone();
        Cow::Owned(Plan {
            bands: Vec::new(),
            by_drafter,
            chosen_index,
            alternatives,
            refused,
            left_out,
            predictors: Vec::new(),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_temperature_serves_and_of_two_the_lower() {
        let all = [0.0, 0.6, 1.0];
        for (wanted, place) in
            [(0.0, 0), (0.29, 0), (0.3, 0), (0.31, 1), (0.6, 1), (0.8, 1), (0.81, 2), (9.0, 2)]
        {
            assert_eq!(nearest(all, wanted), place, "{wanted}");
        }
        // Halves are exact, so these are as near to one as to the other.
        assert_eq!((nearest([0.0, 0.5, 1.0], 0.25), nearest([0.0, 0.5, 1.0], 0.75)), (0, 1));
        assert_eq!(nearest([0.0], 7.0), 0);
    }
}
