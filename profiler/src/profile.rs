//! A profile: everything measured and recorded on one machine with one model.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    depth::DepthPredictor,
    fingerprint::Fingerprints,
    grid::CellSamples,
    live_trace::LiveTrace,
    subject::{Cell, DrafterName, Stage},
    table::{LatencyTable, TableError},
    trace::{TokenTrace, Trace, TraceError},
    tuning::{self, TuningMeasurement},
    unix_time::UnixTime,
    weight_memory::WeightMemory,
};

#[cfg(test)]
mod tests;
mod visits;

pub use visits::Swing;

/// What one machine measured with one model.
///
/// Raw samples are kept; [`Profile::table`] derives the latency table from them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Version of the program that wrote it.
    pub created_by: String,
    /// When measuring began. Latencies that are measured again later leave it as it was.
    pub measured_at: UnixTime,
    /// Machine, model and build.
    pub fingerprints: Fingerprints,
    /// Name of the calibration set.
    pub calibration: String,
    /// Relative spread above which a cell counts as noisy.
    pub noise_threshold: f64,
    /// What the model takes in memory, where weights were streamed from a file.
    pub memory: Option<WeightMemory>,
    /// The drafters measured or replayable, by unique name.
    pub drafters: Vec<DrafterDescription>,
    /// Times of the linears under several tunings, taken before the cells; what they chose was in force for those.
    pub tunings: Vec<TuningMeasurement>,
    /// Raw samples by cell.
    pub measurements: Vec<CellSamples>,
    /// Samples of some verification cells at one context, one of each for every visit from before anything was recorded
    /// to the end: they tell what several rows cost relative to one on average, and how much that changes. Empty where
    /// there was no time for them.
    pub visits: Vec<CellSamples>,
    /// Recorded steps of model drafters, one trace per drafter and temperature.
    pub traces: Vec<Trace>,
    /// Recorded requests, for drafters that need no model.
    pub token_traces: Vec<TokenTrace>,
    /// Recorded steps of drafters that learn from the verifier, one for each drafter and shape.
    pub live_traces: Vec<LiveTrace>,
    /// What was trained on the traces of greedy requests, one for a drafter at most.
    pub predictors: Vec<DepthPredictor>,
}

/// A drafter as its owner describes it: the profiler compares names and keeps the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrafterDescription {
    /// Unique in the profile; also in `draft:NAME` stages and in traces.
    pub name: DrafterName,
    /// Which drafter it is, as the command line calls it.
    pub kind: String,
    /// Its parameters by name.
    pub parameters: BTreeMap<String, Vec<u32>>,
    /// The file that it drafts from, if it needs one.
    pub file: Option<DrafterFile>,
}

/// A file that a drafter needs in addition to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrafterFile {
    /// Where it was.
    pub path: String,
    /// Digest of its content, which identifies it wherever it is.
    pub digest: String,
}

/// Why a profile cannot be used: its parts are no measurements, or contradict each other.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The samples make no table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A trace contradicts itself.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The parts of the profile contradict each other.
    #[error("inconsistent profile: {what}: expected {expected}, found {found}")]
    Inconsistent {
        /// What is wrong.
        what: &'static str,
        /// The rule.
        expected: String,
        /// What breaks it.
        found: String,
    },
}

impl Profile {
    /// The temperatures of everything recorded, ascending, each once.
    pub fn temperatures(&self) -> Vec<f32> {
        let of_traces = self.traces.iter().map(|trace| trace.temperature);
        let of_requests = self.token_traces.iter().map(|request| request.temperature);
        let of_learners = self.live_traces.iter().map(|trace| trace.temperature);
        let mut temperatures: Vec<f32> = of_traces.chain(of_requests).chain(of_learners).collect();
        temperatures.sort_by(f32::total_cmp);
        temperatures.dedup();
        temperatures
    }

    /// The latency table of the samples; forwards of several rows cost what they do on the whole, by the
    /// [visits](Profile::visits).
    ///
    /// # Errors
    /// [`TableError`] if a sample is not a time.
    pub fn table(&self) -> Result<LatencyTable, TableError> {
        LatencyTable::from_samples(&self.settled(), self.noise_threshold)
    }

    /// The drafters of which steps were recorded and no latency was measured, for want of time: no plan can use them.
    pub fn without_latencies(&self) -> Vec<&DrafterName> {
        let traced = self.traces.iter().map(|trace| &trace.drafter);
        let recorded: BTreeSet<_> =
            traced.chain(self.live_traces.iter().map(|trace| &trace.drafter)).collect();
        let measured: BTreeSet<_> = self.measurements.iter().filter_map(|m| m.cell.stage.drafter()).collect();
        recorded.difference(&measured).copied().collect()
    }

    /// Checks every number and every reference between the parts.
    ///
    /// # Errors
    /// [`ProfileError`] names the first thing that is wrong.
    pub fn validate(&self) -> Result<(), ProfileError> {
        let inconsistent = |what, expected: &str, found: String| {
            Err(ProfileError::Inconsistent { what, expected: expected.to_owned(), found })
        };
        if !(self.noise_threshold.is_finite() && self.noise_threshold > 0.0) {
            return inconsistent("noise threshold", "a positive number", self.noise_threshold.to_string());
        }
        if let Some((what, expected, found)) = tuning::fault(&self.tunings) {
            return inconsistent(what, expected, found);
        }
        if let Some((what, expected, found)) = self.memory.as_ref().and_then(WeightMemory::fault) {
            return inconsistent(what, expected, found);
        }
        let table = self.table()?;
        if let Some(first) = self.visits.first() {
            LatencyTable::from_samples(&self.visits, self.noise_threshold)?;
            let is_like_the_first = |visited: &CellSamples| {
                let Cell { stage, width, context } = &visited.cell;
                let is_verification = *stage == Stage::Verify && *width > 0;
                is_verification
                    && *context == first.cell.context
                    && visited.samples_us.len() == first.samples_us.len()
            };
            if let Some(other) = self.visits.iter().find(|visited| !is_like_the_first(visited)) {
                let expected = "as many samples each of verifications of one row or more at one context";
                let found = format!("{} samples of {}", other.samples_us.len(), other.cell);
                return inconsistent("visits", expected, found);
            }
        }
        let mut known = BTreeMap::new();
        for drafter in &self.drafters {
            if known.insert(&drafter.name, drafter).is_some() {
                return inconsistent("drafters", "distinct names", drafter.name.to_string());
            }
        }
        for (cell, _) in table.iter() {
            if let Some(name) = cell.stage.drafter()
                && !known.contains_key(name)
            {
                return inconsistent("measured stage", "a drafter the profile describes", cell.to_string());
            }
            if cell.width == 0 {
                return inconsistent("measured width", "1 or more", cell.to_string());
            }
        }
        for trace in &self.traces {
            if !known.contains_key(&trace.drafter) {
                return inconsistent("trace", "a drafter the profile describes", trace.drafter.to_string());
            }
            trace.validate()?;
        }
        for trace in &self.live_traces {
            if !known.contains_key(&trace.drafter) {
                return inconsistent(
                    "recording",
                    "a drafter the profile describes",
                    trace.drafter.to_string(),
                );
            }
            trace.validate()?;
        }
        for (i, DepthPredictor { drafter, network, report }) in self.predictors.iter().enumerate() {
            let unique = self.predictors[..i].iter().all(|earlier| earlier.drafter != *drafter);
            if !unique || !known.contains_key(drafter) {
                return inconsistent("predictors", "one of each described drafter", drafter.to_string());
            }
            if let Err(fault) = network.validate() {
                return inconsistent(fault.what, &fault.expected, fault.found);
            }
            if let Some(found) = report.fault() {
                return inconsistent("report of a predictor", "numbers from 0 on", found);
            }
        }
        let is_one = |t: f32| t.is_finite() && t >= 0.0;
        if let Some(trace) = self.token_traces.iter().find(|trace| !is_one(trace.temperature)) {
            let found = trace.temperature.to_string();
            return inconsistent("token trace", "a temperature of 0 or more", found);
        }
        if let Some(i) = self.token_traces.iter().position(|trace| trace.prompt.is_empty()) {
            return inconsistent(
                "token trace",
                "a prompt of one token or more",
                format!("none in trace {i}"),
            );
        }
        Ok(())
    }
}
