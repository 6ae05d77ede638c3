//! The contents of a plan and their checks.

use serde::{Deserialize, Serialize};
use ygg_profiler::{
    DepthNetwork, DepthReport, DrafterName, Fingerprints, LatencyTable, Stage, TunedShape, UnixTime,
};

use super::{
    Band, DepthRule, PlanError, PlannedMemory, PlannedWidths, SubPlan,
    bands::check_temperatures,
    check::{ensure, is_positive},
    nearest,
};

/// Everything decided about speculation for one machine, model and build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What it was made for, by what and when.
    pub header: Header,
    /// What was measured.
    pub table: LatencyTable,
    /// Every width the runtime compiles.
    pub planned: PlannedWidths,
    /// The linears whose tuning is not the default.
    pub tunings: Vec<ChosenTuning>,
    /// The gain of each trained depth predictor. They are trained on greedy requests and serve the first band alone.
    pub predictors: Vec<PlannedPredictor>,
    /// Decisions for requests of each temperature, ascending from 0.
    pub bands: Vec<Band>,
}

/// What a plan was made for, by what and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
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
    /// How memory is divided, where weights are streamed from a file.
    pub memory: Option<PlannedMemory>,
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
        let predicts = |plan: &&SubPlan| plan.name == *name && plan.depth_rule() == DepthRule::Predicted;
        let deepest = by_drafter.iter().find(predicts).map(|plan| plan.largest_shape().depth);
        let fits = deepest.is_some_and(|depth| depth <= network.depths);
        ensure(fits, "predictor", "a network as deep as the sub-plan it is for", || {
            format!("{} depths for {deepest:?} of {name}", network.depths)
        })
    }
}

impl Plan {
    /// The band that serves requests of `temperature`: that of the nearest temperature.
    ///
    /// # Panics
    /// If the plan is not valid.
    pub fn band_for(&self, temperature: f32) -> &Band {
        &self.bands[nearest(self.bands.iter().map(|band| band.temperature), temperature)]
    }

    /// Committed tokens at which steps were priced, but for those of longer contexts.
    ///
    /// # Panics
    /// If the plan is not valid.
    pub fn context(&self) -> u32 {
        self.bands[0].by_drafter[0].first().context
    }

    /// Most bytes of packed weights in memory that it is for; all without it.
    pub fn resident(&self) -> Option<usize> {
        let bytes = self.header.fingerprints.machine.resident_bytes?;
        Some(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The depth network of a sub-plan with predicted depth.
    pub fn network_of(&self, sub_plan: &SubPlan) -> Option<&DepthNetwork> {
        let predicts = sub_plan.depth_rule() == DepthRule::Predicted;
        let predictor = self.predictors.iter().find(|predictor| predicts && predictor.name == sub_plan.name);
        predictor?.network.as_ref()
    }

    /// Checks every number and every reference between the parts.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] or [`PlanError::DrafterParameters`] names the first thing that is wrong.
    pub fn validate(&self) -> Result<(), PlanError> {
        let Plan { header, table, planned, tunings, predictors, bands } = self;
        let Header {
            created_by: _,
            made_at: _,
            measured_at: _,
            fingerprints: _,
            calibration: _,
            fixed: _,
            memory,
        } = header;
        planned.validate()?;
        memory.as_ref().map_or(Ok(()), PlannedMemory::validate)?;
        check_temperatures(bands.iter().map(|band| band.temperature))?;
        bands.iter().try_for_each(|band| band.validate(planned, table))?;
        for (band, sub_plan) in
            bands.iter().flat_map(|band| band.by_drafter.iter().map(move |plan| (band, plan)))
        {
            let SubPlan { name, .. } = sub_plan;
            let is_greedy = band.temperature == 0.0;
            let context = sub_plan.first().context;
            let is_one = context == self.context();
            ensure(is_one, "context", "one at which all drafters are compared", || {
                format!("{context} of {name}")
            })?;
            let has_network = is_greedy && self.network_of(sub_plan).is_some();
            let predicts = sub_plan.depth_rule() == DepthRule::Fixed || has_network;
            ensure(predicts, "choice of depth", "a network to go by", || name.to_string())?;
        }
        for width in &planned.verify {
            let measured = table.widths(&Stage::Verify).contains(width);
            ensure(measured, "planned verify width", "a measured one", || width.to_string())?;
        }
        for (i, predictor) in predictors.iter().enumerate() {
            predictor.validate(&bands[0].by_drafter)?;
            let unique = predictors[..i].iter().all(|earlier| earlier.name != predictor.name);
            ensure(unique, "predictors", "one for each drafter", || predictor.name.to_string())?;
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
