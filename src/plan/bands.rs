//! Bands: the parts of a plan for requests of one temperature each.
//!
//! Acceptance depends on the temperature: at a high one unlikely tokens are drawn, which drafters do not predict. So
//! requests are recorded at several temperatures (as in the evaluation of Yggdrasil, NeurIPS 2025,
//! <https://arxiv.org/abs/2512.23858>), each gets a plan of its own, and a request uses the part whose temperature is
//! nearest to its own.
use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterName, LatencyTable};

use super::{
    DepthRule, GrowthRule, PlanError, PlannedWidths, PricedShape, RowRule, Schedule, Shape, SubPlan,
    check::{ensure, is_positive},
};

/// Decisions for requests of one temperature. Steps choose no depth above 0: depth predictors are trained on greedy
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

/// A priced shape in compact form, since a plan holds thousands. [`Band::priced`] gives the derived figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Place of the drafter in [`Band::by_drafter`].
    pub drafter: u16,
    /// The shape.
    pub shape: Shape,
    /// How its trees grow.
    pub growth: GrowthRule,
    /// When the head of a step is drafted.
    pub schedule: Schedule,
    /// How a step chooses its depth.
    pub depth_rule: DepthRule,
    /// How a step chooses its rows.
    pub rule: RowRule,
    /// Tokens per step.
    pub aal: f64,
    /// Time of a step.
    pub step_us: f64,
}

/// A tree that needs more than the traces hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The drafter.
    pub name: DrafterName,
    /// How the tree grows.
    pub growth: GrowthRule,
    /// Growths.
    pub depth: u32,
    /// Nodes per growth, of a template the most.
    pub draft_width: u32,
    /// Share of forwarded nodes without recorded candidates; of a template, among those that the verifier went through.
    pub missing: f64,
}

/// A profiled drafter that lacks recorded evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The drafter.
    pub name: DrafterName,
    /// The evidence that the profile lacks.
    pub lacks: String,
}

impl Band {
    /// The sub-plan to run.
    ///
    /// # Panics
    /// If the plan is not valid.
    pub fn chosen(&self) -> &SubPlan {
        &self.by_drafter[self.chosen_index as usize]
    }

    /// The sub-plans that draft.
    pub fn drafting(&self) -> impl Iterator<Item = &SubPlan> {
        self.by_drafter.iter().filter(|sub_plan| !sub_plan.is_plain())
    }

    /// Every shape priced, best first.
    ///
    /// # Panics
    /// If the plan is not valid.
    pub fn priced(&self) -> impl Iterator<Item = PricedShape> {
        let plain = &self.by_drafter[0].first().predicted;
        self.alternatives.iter().map(|alternative| {
            let Alternative { drafter, shape, growth, schedule, depth_rule, rule, aal, step_us } =
                *alternative;
            let tpot_us = step_us / aal;
            let name = self.by_drafter[usize::from(drafter)].name.clone();
            let speedup = plain.ar_tpot_us / tpot_us;
            PricedShape { name, shape, growth, schedule, depth_rule, rule, aal, step_us, tpot_us, speedup }
        })
    }

    /// The best sub-plan of a drafter, by name or kind; `None` if it was not measured.
    pub fn for_drafter(&self, drafter: &str) -> Option<&SubPlan> {
        self.by_drafter
            .iter()
            .filter(|plan| plan.name.as_str() == drafter || plan.drafter.name() == drafter)
            .max_by(|a, b| a.first().unseen.speedup.total_cmp(&b.first().unseen.speedup))
    }

    pub(super) fn validate(&self, planned: &PlannedWidths, table: &LatencyTable) -> Result<(), PlanError> {
        let Band { temperature: _, by_drafter, chosen_index, alternatives, refused, left_out } = self;
        let plain_first = by_drafter.first().is_some_and(SubPlan::is_plain)
            && by_drafter.iter().filter(|plan| plan.is_plain()).count() == 1;
        ensure(plain_first, "sub-plans", "plain decoding first and once", || {
            format!("{:?}", by_drafter.iter().map(|p| p.drafter.name()).collect::<Vec<_>>())
        })?;
        for (i, sub_plan) in by_drafter.iter().enumerate() {
            sub_plan.validate(planned, table)?;
            let unique = by_drafter[..i].iter().all(|earlier| earlier.name != sub_plan.name);
            ensure(unique, "sub-plans", "one for each drafter", || sub_plan.name.to_string())?;
        }
        let in_range = (*chosen_index as usize) < by_drafter.len();
        ensure(in_range, "chosen sub-plan", "one of the sub-plans", || chosen_index.to_string())?;
        for alternative in alternatives {
            let Alternative {
                drafter,
                shape: _,
                growth: _,
                schedule: _,
                depth_rule: _,
                rule: _,
                aal,
                step_us,
            } = alternative;
            for number in [aal, step_us] {
                ensure(is_positive(*number), "alternative", "finite positive numbers", || {
                    number.to_string()
                })?;
            }
            let known = usize::from(*drafter) < by_drafter.len();
            ensure(known, "alternative", "a drafter of the sub-plans", || drafter.to_string())?;
        }
        for Refusal { name: _, growth: _, depth: _, draft_width: _, missing } in refused {
            ensure((0.0..=1.0).contains(missing), "refusal", "a share of 0 to 1", || missing.to_string())?;
        }
        for LeftOut { name, lacks: _ } in left_out {
            let absent = by_drafter.iter().all(|sub_plan| sub_plan.name != *name);
            ensure(absent, "drafter left out", "one without a sub-plan", || name.to_string())?;
        }
        Ok(())
    }
}

/// Checks that the temperatures of bands ascend from 0.
///
/// # Errors
/// [`PlanError::Invalid`] shows them.
pub fn check_temperatures(temperatures: impl Iterator<Item = f32> + Clone) -> Result<(), PlanError> {
    let ascends = temperatures.clone().next() == Some(0.0)
        && temperatures.clone().is_sorted_by(|a, b| a < b && b.is_finite());
    ensure(ascends, "temperatures", "finite ones that ascend from 0", || {
        format!("{:?}", temperatures.collect::<Vec<_>>())
    })
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
