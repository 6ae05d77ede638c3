//! Times of one linear under several tunings: what a plan's choice of a tuning rests on.
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What a tuning is chosen for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TunedShape {
    /// The kernel, which names op, format and tier.
    pub kernel: String,
    /// Outputs of the linear; of the gate, for a gated one.
    pub outputs: u32,
    /// Inputs.
    pub columns: u32,
    /// Rows that it is given.
    pub rows: u32,
}

impl std::fmt::Display for TunedShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TunedShape { kernel, outputs, columns, rows } = self;
        write!(f, "{kernel} [{outputs}, {columns}] of {rows} rows")
    }
}

/// Raw samples of one tuning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningSamples {
    /// The tuning, as its owner writes it.
    pub tuning: String,
    /// Time of a call in microseconds, round by round: the median over the calls of one forward.
    pub samples_us: Vec<f64>,
}

/// Tunings of one shape, measured in turn: sample `i` of all of them is of round `i`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningMeasurement {
    /// What was tuned.
    pub shape: TunedShape,
    /// The default first.
    pub tunings: Vec<TuningSamples>,
}

/// The first thing that is wrong with measurements of tunings: what, what was expected and what was found.
pub(crate) fn fault(measurements: &[TuningMeasurement]) -> Option<(&'static str, &'static str, String)> {
    let mut shapes = BTreeSet::new();
    for TuningMeasurement { shape, tunings } in measurements {
        if !shapes.insert(shape) {
            return Some(("tuned shapes", "every shape once", shape.to_string()));
        }
        let rounds = tunings.first().map_or(0, |first| first.samples_us.len());
        if rounds == 0 || tunings.iter().any(|t| t.samples_us.len() != rounds) {
            let found: Vec<usize> = tunings.iter().map(|t| t.samples_us.len()).collect();
            return Some((
                "rounds of tunings",
                "as many of each, and some",
                format!("{found:?} for {shape}"),
            ));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = tunings.iter().find(|t| !names.insert(&t.tuning)) {
            return Some(("tunings", "distinct ones", format!("{} twice for {shape}", twice.tuning)));
        }
        let samples = tunings.iter().flat_map(|t| &t.samples_us);
        if let Some(bad) = samples.copied().find(|us| !(us.is_finite() && *us > 0.0)) {
            return Some(("time of a tuning", "a positive number", format!("{bad} for {shape}")));
        }
    }
    None
}
