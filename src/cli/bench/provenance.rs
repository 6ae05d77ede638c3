//! Provenance of a bench's figures: program, date, machine, model, kernels.

use serde::Serialize;
use ygg_profiler::{Fingerprints, MachineFingerprint, ModelFingerprint, UnixTime};
use yggc::{engine::Loaded, ir::Placed};

use crate::cli::error::Failure;

#[derive(Debug, Serialize)]
pub(super) struct MachineJson {
    #[serde(flatten)]
    pub(super) facts: MachineFingerprint,
    digest: String,
}

/// The provenance of a bench.
#[derive(Debug, Serialize)]
pub(super) struct Provenance {
    version: &'static str,
    /// Date and time in UTC.
    date: String,
    pub(super) machine: MachineJson,
    model: ModelFingerprint,
    kernels: String,
    threads: usize,
    /// Whether kernels of a GPU overlap.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernels_overlap: Option<bool>,
    /// Where the weights are, if a budget was given for those in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<PlacedJson>,
}

/// Bytes of packed weights.
#[derive(Debug, Serialize)]
struct PlacedJson {
    resident_bytes: usize,
    streamed_bytes: usize,
    staging_bytes: usize,
    /// How many experts of each product have a place at a time, where they share places.
    #[serde(skip_serializing_if = "Option::is_none")]
    expert_places: Option<u32>,
}

impl Provenance {
    /// # Errors
    /// [`Failure::Engine`] of kind `Device` if the machine cannot be read.
    pub(super) fn new(loaded: &Loaded) -> Result<Self, Failure> {
        let Fingerprints { machine, model, build } = loaded.fingerprints()?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            date: UnixTime::now().rfc3339(),
            machine: MachineJson { digest: machine.digest(), facts: machine },
            model,
            kernels: build.kernels,
            threads: loaded.threads(),
            kernels_overlap: loaded.set().kernels_overlap(),
            weights: loaded.set().placed().map(|Placed { resident, streamed, staging }| PlacedJson {
                resident_bytes: resident,
                streamed_bytes: streamed,
                staging_bytes: staging,
                expert_places: loaded.set().graph().expert_places(),
            }),
        })
    }
}
