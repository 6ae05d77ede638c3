//! Measures any [`Subject`] over a grid of cells and keeps what was measured.
//!
//! The walk: [`measure_grid`] runs a [`Subject`] cell by cell and keeps raw samples ([`CellSamples`]);
//! [`LatencyTable::from_samples`] derives medians and spreads from them; a [`Profile`] binds the samples, the recorded
//! acceptance [`Trace`]s, the [`DepthPredictor`]s that [`cross_fit`] trained on them, the times of tunings
//! ([`TuningMeasurement`]) and the [`Fingerprints`] of machine, model and build into what the planner reads. The crate
//! knows no graph, no model, no backend and no file of profiles. It also brings the program that makes drafters along
//! ([`DISTILL_MODULES`]), as text.
#![forbid(unsafe_code)]

mod depth;
mod distillation;
mod fingerprint;
mod grid;
mod live_trace;
mod machine;
mod named;
mod processor;
mod profile;
mod random;
mod selection;
pub mod statistics;
mod subject;
mod table;
mod trace;
mod tuning;
mod unix_time;
mod weight_memory;

pub use depth::{
    CrossFit, DEEPEST, DepthNetwork, DepthPredictor, DepthReport, DepthSample, Layers, NetworkFault,
    TrainingSettings, UNITS, cross_fit,
};
pub use distillation::{
    DISTILL_MODULES, DISTILL_PACKAGE, DISTILL_PYTHON, DISTILL_REQUIREMENTS, distill_packages,
};
pub use fingerprint::{BuildFingerprint, Difference, Fingerprints, ModelFingerprint};
pub use grid::{
    CellSamples, GridError, GridSettings, Measurement, Wanted, measure_grid, measure_grid_with_clock,
};
pub use live_trace::{LivePrompt, LiveStep, LiveTrace};
pub use machine::{MachineError, MachineFingerprint};
pub use profile::{DrafterDescription, DrafterFile, Profile, ProfileError, Swing};
pub use random::Random;
pub use selection::{CellSelection, SelectionError};
pub use subject::{Cell, DrafterName, NameError, Stage, StepStage, Subject};
pub use table::{Finding, LatencyTable, Summary, TableError};
pub use trace::{Candidate, Expansion, PromptTrace, StepTrace, TokenTrace, Trace, TraceError};
pub use tuning::{TunedShape, TuningMeasurement, TuningSamples};
pub use unix_time::UnixTime;
pub use weight_memory::{Split, SubstituteBytes, WeightMemory};
