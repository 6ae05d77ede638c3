//! The CPU backend: weights packed once, steps replayed by pinned threads with a spin barrier between steps; streamed
//! weights are read ahead of the steps.

mod barrier;
#[cfg(feature = "planner")]
mod eager;
mod layouts;
mod packed_weights;
mod pool;
mod replay;
mod step;
mod streaming;

use std::sync::Arc;

use ygg_kernels::{
    KvFormat, RowsMut, Tier,
    cpu::{Kernels, attention_scratch_bytes},
};

use crate::ir::{DeviceSpec, IdVec, Program, ProgramId, StepId, WeightSource};

use super::{BackendError, Executables, Loading, Replay, ReplayOptions, memory::KvCache};
#[cfg(feature = "planner")]
pub(super) use eager::EagerExecutables;
pub use layouts::{PackedLayout, packed_layouts};
use packed_weights::{MatrixId, PackedWeights};
pub use pool::{Pinning, Workers};
use replay::CpuReplay;
use step::CpuStep;
use streaming::UnitId;

/// Tiers that this machine can run, slowest first.
pub fn available_tiers() -> Vec<Tier> {
    Tier::ALL.into_iter().filter(|t| t.is_available()).collect()
}

/// What a program reads from the file of packed weights.
#[derive(Clone, Copy, Debug)]
struct Streams {
    /// Whether streamed matrices: then in their order, each once.
    units: bool,
    /// Whether experts that share places.
    experts: bool,
}

/// Programs whose steps are resolved to packed weights and kernels. Clones share the packed weights.
#[derive(Clone, Debug)]
pub(super) struct CpuExecutables {
    programs: IdVec<ProgramId, Program>,
    steps: IdVec<ProgramId, IdVec<StepId, CpuStep>>,
    streams: IdVec<ProgramId, Streams>,
    weights: PackedWeights,
    embedding: Option<MatrixId>,
    kernels: Kernels,
    kv_format: KvFormat,
}

impl CpuExecutables {
    pub(super) fn load(
        programs: Vec<Program>,
        device: &DeviceSpec,
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<Self, BackendError> {
        let DeviceSpec { tier, kv_format, activations, arena_alignment: _ } = *device;
        let kernels = Kernels::for_tier(tier).ok_or_else(|| BackendError::MissingTier {
            wanted: tier,
            available: available_tiers().iter().map(|t| t.name()).collect::<Vec<_>>().join(", "),
        })?;
        let kernels = kernels.with_activations(activations);
        let mut empty = Self {
            programs: IdVec::default(),
            steps: IdVec::default(),
            streams: IdVec::default(),
            weights: PackedWeights::default(),
            embedding: None,
            kernels,
            kv_format,
        };
        empty.add(programs, loading, threads)?;
        Ok(empty)
    }

    fn add(
        &mut self,
        programs: Vec<Program>,
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<(), BackendError> {
        self.weights.pack(&programs, loading, threads)?;
        for program in &programs {
            let steps: IdVec<StepId, CpuStep> =
                program.steps.iter().map(|step| CpuStep::resolve(step, &self.weights, program.kv)).collect();
            let units: Vec<UnitId> = steps.iter().filter_map(|step| step.unit(&self.weights)).collect();
            assert!(
                units.is_sorted_by(|a, b| a < b),
                "streamed matrices in the order of use, found {units:?}"
            );
            let experts = steps.iter().any(|step| step.pool().is_some());
            self.streams.push(Streams { units: !units.is_empty(), experts });
            self.steps.push(steps);
        }
        self.programs.extend(programs);
        self.embedding =
            super::embedding(&self.programs[ProgramId::FIRST]).map(|weight| self.weights.stack(&[weight]));
        Ok(())
    }

    #[cfg(feature = "planner")]
    fn weights(&self) -> &PackedWeights {
        &self.weights
    }

    fn arena_bytes(&self) -> usize {
        self.programs.iter().map(|p| p.arena_bytes).max().unwrap_or(0)
    }

    /// Scratch of one thread: enough for every step of every program.
    fn scratch_bytes(&self) -> usize {
        let linear = self.programs.iter().zip(self.steps.iter()).flat_map(|(program, steps)| {
            steps.iter().map(|s| s.scratch_bytes(self.kernels, &self.weights, program.binding))
        });
        let heads = self.programs[ProgramId::FIRST].kv.shapes().map(|(_, [_, head_dim])| head_dim);
        let attention = attention_scratch_bytes(heads.into_iter().max().unwrap_or(0));
        linear.max().unwrap_or(0).max(attention).next_multiple_of(128)
    }

    /// What all threads keep of a step until they join it, candidates or partial results of attention: enough for every
    /// step of every program at the longest context.
    fn shared_bytes(&self, options: &ReplayOptions) -> usize {
        let programs = self.programs.iter().zip(self.steps.iter());
        let bytes = programs.flat_map(|(program, steps)| {
            let slots = options.layout.slots();
            steps.iter().map(move |s| s.shared_bytes(&self.weights, program.kv, slots, options.threads))
        });
        bytes.max().unwrap_or(0)
    }
}

impl Executables for CpuExecutables {
    fn programs(&self) -> &IdVec<ProgramId, Program> {
        &self.programs
    }

    fn weight_bytes(&self) -> usize {
        self.weights.resident_bytes()
    }

    fn replay_bytes(&self, options: &ReplayOptions) -> usize {
        let cache = KvCache::bytes(self.programs[ProgramId::FIRST].kv, self.kv_format, options.layout);
        let ropes = super::rope_bytes(&self.programs[ProgramId::FIRST], options.layout.context);
        let scratch = options.threads * self.scratch_bytes() + self.shared_bytes(options);
        self.arena_bytes() + cache + ropes + scratch
    }

    fn with(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        let mut both = self.clone();
        both.add(programs, &Loading::of(weights), threads)?;
        Ok(Arc::new(both))
    }

    fn beside(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        let (programs_of_other, steps, streams) = <_>::default();
        let mut other = Self { programs: programs_of_other, steps, streams, ..self.clone() };
        other.add(programs, &Loading::of(weights), threads)?;
        Ok(Arc::new(other))
    }

    fn embed(&self, token: u32, row: &mut [f32]) {
        let columns = row.len();
        let row = RowsMut::new(row, columns);
        let embedding = self.embedding.expect("the programs embed tokens");
        self.kernels.embed(self.weights.matrix(embedding), &[token], 0..1, row);
    }

    fn open(self: Arc<Self>, options: &ReplayOptions) -> Result<Box<dyn Replay>, BackendError> {
        Ok(Box::new(CpuReplay::new(self, options)?))
    }
}
