//! The contents of a plan and their checks.
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use ygg_profiler::{
    DepthNetwork, DepthReport, DrafterName, Fingerprints, LatencyTable, Stage, TunedShape, UnixTime,
};

use super::{Band, DepthRule, GrowthRule, PlanError, PlannedMemory, RowRule, Schedule, Shape, SubPlan};

/// Everything decided about speculation for one machine, model and build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of the program that made it.
    pub created_by: String,
    /// When it was made.
    pub made_at: UnixTime,
    /// When its profile was measured.
    pub measured_at: UnixTime,
    /// What it was measured with.
    pub fingerprints: Fingerprints,
    /// Name of the calibration set.
    pub calibration: String,
    /// What the user fixed, as text; empty if nothing.
    pub fixed: String,
    /// Committed tokens at which steps were priced, but for those of a [`ContextRange`](super::ContextRange).
    pub context: u32,
    /// How memory is divided, where weights are streamed from a file.
    pub memory: Option<PlannedMemory>,
    /// Every width the runtime compiles.
    pub planned: PlannedWidths,
    /// Decisions for temperatures above 0, ascending. The plan's other decisions are for temperature 0.
    pub bands: Vec<Band>,
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
    /// The gain of each trained depth predictor.
    pub predictors: Vec<PlannedPredictor>,
    /// The linears whose tuning is not the default.
    pub tunings: Vec<ChosenTuning>,
    /// What was measured.
    pub table: LatencyTable,
}

/// The widths compiled for each role, ascending, with 1 in both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWidths {
    /// Of the verifier.
    pub verify: Vec<u32>,
    /// Of drafters that run a model.
    pub draft: Vec<u32>,
}

/// A priced shape in compact form, since a plan holds thousands. [`Plan::priced`] gives the derived figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Place of the drafter in [`Plan::by_drafter`].
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

/// A priced shape with its derived figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PricedShape {
    /// The drafter.
    pub name: DrafterName,
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
    /// Time per token.
    pub tpot_us: f64,
    /// Predicted speed-up over plain decoding.
    pub speedup: f64,
}

/// A tuning that beat the default for one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChosenTuning {
    /// What it is for.
    pub shape: TunedShape,
    /// The tuning, as the profile names it.
    pub tuning: String,
    /// Median time of a call with the default, measured.
    pub default_us: f64,
    /// Median time of a call with this tuning, measured.
    pub tuned_us: f64,
    /// Median over the rounds of default by tuned time, derived.
    pub gain: f64,
}

/// A depth predictor and its gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedPredictor {
    /// The drafter.
    pub name: DrafterName,
    /// Its quality on prompts that it was not trained on.
    pub report: DepthReport,
    /// Predicted speed-up over plain decoding of the best shape of fixed depth, if any was priced.
    pub fixed_speedup: Option<f64>,
    /// The same of the best shape with predicted depth.
    pub told_speedup: Option<f64>,
    /// Its weights, where the drafter's sub-plan uses it.
    pub network: Option<DepthNetwork>,
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

impl PlannedPredictor {
    fn validate(&self, by_drafter: &[SubPlan]) -> Result<(), PlanError> {
        let PlannedPredictor { name, report: _, fixed_speedup, told_speedup, network } = self;
        for speedup in [fixed_speedup, told_speedup].into_iter().flatten() {
            ensure(is_positive(*speedup), "predictor", "finite positive speed-ups", || speedup.to_string())?;
        }
        let Some(network) = network else { return Ok(()) };
        network.validate().map_err(|fault| PlanError::Invalid {
            what: fault.what,
            expected: fault.expected,
            found: fault.found,
        })?;
        let predicts =
            |plan: &&SubPlan| plan.name == *name && plan.depth_choice.rule() == DepthRule::Predicted;
        let deepest = by_drafter.iter().find(predicts).map(|plan| plan.shape.depth);
        let fits = deepest.is_some_and(|depth| depth <= network.depths);
        ensure(fits, "predictor", "a network as deep as the sub-plan it is for", || {
            format!("{} depths for {deepest:?} of {name}", network.depths)
        })
    }
}

impl PlannedWidths {
    /// The widths of both roles, ascending: an executable of each serves whichever sub-plan is chosen.
    pub fn widths(&self) -> Vec<usize> {
        let PlannedWidths { verify, draft } = self;
        let widths: BTreeSet<usize> = verify.iter().chain(draft).map(|width| *width as usize).collect();
        widths.into_iter().collect()
    }

    fn validate(&self) -> Result<(), PlanError> {
        let PlannedWidths { verify, draft } = self;
        for widths in [verify, draft] {
            let good = widths.first() == Some(&1) && widths.is_sorted_by(|a, b| a < b);
            ensure(good, "planned widths", "ascending from 1", || format!("{widths:?}"))?;
        }
        Ok(())
    }
}

impl Plan {
    /// The sub-plan to run.
    ///
    /// # Panics
    /// If the plan is not valid.
    pub fn chosen(&self) -> &SubPlan {
        &self.by_drafter[self.chosen_index as usize]
    }

    /// Most bytes of packed weights in memory that it is for; all without it.
    pub fn resident(&self) -> Option<usize> {
        let bytes = self.fingerprints.machine.resident_bytes?;
        Some(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Every shape priced, best first.
    ///
    /// # Panics
    /// If the plan is not valid.
    pub fn priced(&self) -> impl Iterator<Item = PricedShape> {
        let plain = &self.by_drafter[0].predicted;
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
            .max_by(|a, b| a.unseen.speedup.total_cmp(&b.unseen.speedup))
    }

    /// The depth network of a sub-plan with predicted depth.
    pub fn network_of(&self, sub_plan: &SubPlan) -> Option<&DepthNetwork> {
        let predicts = sub_plan.depth_choice.rule() == DepthRule::Predicted;
        let predictor = self.predictors.iter().find(|predictor| predicts && predictor.name == sub_plan.name);
        predictor?.network.as_ref()
    }

    /// Checks every number and every reference between the parts.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] or [`PlanError::DrafterParameters`] names the first thing that is wrong.
    pub fn validate(&self) -> Result<(), PlanError> {
        let Plan {
            created_by: _,
            made_at: _,
            measured_at: _,
            fingerprints: _,
            calibration: _,
            fixed: _,
            context,
            memory,
            planned,
            bands,
            by_drafter,
            chosen_index,
            alternatives,
            refused,
            left_out,
            predictors,
            tunings,
            table,
        } = self;
        planned.validate()?;
        memory.as_ref().map_or(Ok(()), PlannedMemory::validate)?;
        let ascending = self.temperatures().is_sorted_by(|a, b| a < b && b.is_finite());
        ensure(ascending, "temperatures", "finite ones that ascend from above 0", || {
            format!("{:?}", bands.iter().map(|band| band.temperature).collect::<Vec<_>>())
        })?;
        for place in 1..=bands.len() {
            self.of_band(place).validate()?;
        }
        for sub_plan in bands.iter().flat_map(|band| &band.by_drafter) {
            let SubPlan { schedule, .. } = sub_plan;
            let is_said = !schedule.walks_on_device();
            ensure(is_said, "schedule of requests that are not greedy", "walks by the host", || {
                schedule.to_string()
            })?;
        }
        let plain_first = by_drafter.first().is_some_and(SubPlan::is_plain)
            && by_drafter.iter().filter(|plan| plan.is_plain()).count() == 1;
        ensure(plain_first, "sub-plans", "plain decoding first and once", || {
            format!("{:?}", by_drafter.iter().map(|p| p.drafter.name()).collect::<Vec<_>>())
        })?;
        for (i, sub_plan) in by_drafter.iter().enumerate() {
            sub_plan.validate(planned, table, *context)?;
            let unique = by_drafter[..i].iter().all(|earlier| earlier.name != sub_plan.name);
            ensure(unique, "sub-plans", "one for each drafter", || sub_plan.name.to_string())?;
            let predicts =
                sub_plan.depth_choice.rule() == DepthRule::Fixed || self.network_of(sub_plan).is_some();
            ensure(predicts, "choice of depth", "a network to go by", || sub_plan.name.to_string())?;
        }
        let in_range = (*chosen_index as usize) < by_drafter.len();
        ensure(in_range, "chosen sub-plan", "one of the sub-plans", || chosen_index.to_string())?;
        for width in &planned.verify {
            let measured = table.widths(&Stage::Verify).contains(width);
            ensure(measured, "planned verify width", "a measured one", || width.to_string())?;
        }
        for (i, predictor) in predictors.iter().enumerate() {
            predictor.validate(by_drafter)?;
            let unique = predictors[..i].iter().all(|earlier| earlier.name != predictor.name);
            ensure(unique, "predictors", "one for each drafter", || predictor.name.to_string())?;
        }
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
        for (i, ChosenTuning { shape, tuning: _, default_us, tuned_us, gain }) in tunings.iter().enumerate() {
            for number in [default_us, tuned_us, gain] {
                ensure(is_positive(*number), "tuning", "finite positive numbers", || number.to_string())?;
            }
            let unique = tunings[..i].iter().all(|earlier| earlier.shape != *shape);
            ensure(unique, "tunings", "one for each shape", || shape.to_string())?;
        }
        Ok(())
    }
}

pub(super) fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

pub(super) fn ensure(
    holds: bool,
    what: &'static str,
    expected: &str,
    found: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    if holds {
        return Ok(());
    }
    Err(PlanError::Invalid { what, expected: expected.to_owned(), found: found() })
}
