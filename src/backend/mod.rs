//! Programs become executables: loaded with weights, ready to be replayed.
//!
//! A backend takes whole [`Program`]s of one graph. [`Executables`] is immutable and shared; what one request needs
//! (arena, cache, threads) is a [`Replay`] opened from it. Law: `Replay` methods allocate nothing, and a row's result
//! depends only on the logical sequence it attends to, never on width, thread count, row order or slots.
//! `cpu` is this processor, `cuda` a GPU. `reference` is the judge: scalar kernels, one thread, nothing fused beyond what the program says.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "compare")]
mod eager;
mod error;
mod memory;
mod observation;
mod phase;
mod reference;
mod verification;

use std::{fmt::Debug, ops::Range, sync::Arc};

pub use cpu::{PackedLayout, Pinning, Workers, available_tiers, packed_layouts};
#[cfg(feature = "cuda")]
pub use cuda::{CudaDevice, cuda_device, keep_compiled_kernels};
#[cfg(feature = "compare")]
pub use eager::load_eager;
pub use error::BackendError;
pub use observation::{Exercise, Moment, Observer};
pub use phase::{DraftPhases, GrowingTree, Grown, PhaseRoot, PhaseShape};
pub use verification::{Accepted, Verifications};
pub use ygg_kernels::{
    Activations, KvFormat, Tier,
    cpu::{Arithmetic, Tuning},
};
use ygg_kernels::{Matrix, RopeTable, Tails};

use crate::ir::{DeviceSpec, Op, Program, RowInputs, WeightId, WeightSource, WeightSpec};

/// How many slots a cache has, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    /// Longest committed sequence in tokens; also the number of positions.
    pub context: usize,
    /// Slots behind the committed prefix for the rows of trees.
    pub scratch: usize,
}

impl SlotLayout {
    /// All slots: committed and scratch. Padding rows have none.
    pub fn slots(&self) -> usize {
        self.context + self.scratch
    }
}

/// What one request's state is opened with.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Slots of the cache.
    pub layout: SlotLayout,
    /// Worker threads, the caller included; at least 1.
    pub threads: usize,
    /// Whether workers are bound to processors.
    pub pinning: Pinning,
    /// Workers of another replay to run on, as many as `threads` says; none to start some.
    pub workers: Option<Workers>,
    /// Most slots that a row attends to behind its prefix: those of its ancestors and its own.
    pub tail_capacity: usize,
}

/// All programs of one graph loaded with its weights.
pub trait Executables: Send + Sync + Debug {
    /// The programs, by the number that [`Replay::replay`] takes.
    fn programs(&self) -> &[Program];

    /// Bytes of weights that forwards read: in memory of this object, or mapped as they were kept.
    fn weight_bytes(&self) -> usize;

    /// Bytes that [`open`](Self::open) would take for this layout.
    fn replay_bytes(&self, options: &ReplayOptions) -> usize;

    /// The same with more programs, numbered behind these: of one graph that was derived from theirs, so that its weights
    /// begin with theirs. Weights that are loaded are shared; `weights` is asked for the others only.
    ///
    /// # Errors
    /// [`BackendError`] when a weight cannot be packed.
    fn with(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError>;

    /// Other programs over the same weights, with caches of their own: of one graph whose weights begin with those of these
    /// programs' graph. Weights that are loaded are shared; `weights` is asked for the others only.
    ///
    /// # Errors
    /// [`BackendError`] when a weight cannot be packed, or the device cannot run a program.
    fn beside(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError>;

    /// Writes the embedding `[D]` of a token, as forwards read it; of a device that fails, zeros, and its replays have
    /// [failed](Replay::failure).
    ///
    /// # Panics
    /// If the programs embed nothing, the token is outside the vocabulary or the row has another length.
    fn embed(&self, token: u32, row: &mut [f32]);

    /// Allocates one request's state.
    ///
    /// # Errors
    /// [`BackendError`] when memory or threads are refused.
    fn open(self: Arc<Self>, options: &ReplayOptions) -> Result<Box<dyn Replay>, BackendError>;
}

/// One request's state on a device: arena, key/value cache, threads.
pub trait Replay: Send + Debug {
    /// The device's first failure, if it has failed. Since then nothing runs: what is shown lets a step come to its end without a panic,
    /// and means nothing. Whoever hands out results asks before. Processors do not fail.
    fn failure(&self) -> Option<&BackendError>;

    /// Runs program number `program` on the given rows, leaving out the groups with `skipped[group]`.
    fn replay(&mut self, program: usize, inputs: &RowInputs, skipped: &[bool]);

    /// Like [`replay`](Self::replay), but a device that runs beside the host only begins, and [`finish`](Self::finish) waits for it. In
    /// between slots may be copied, which the device does behind it; nothing of it may be read.
    fn begin(&mut self, program: usize, inputs: &RowInputs, skipped: &[bool]) {
        self.replay(program, inputs, skipped);
    }

    /// Waits for what was begun; whatever runs next does so, too.
    fn finish(&mut self) {}

    /// Like [`replay`](Self::replay), and calls the observer at every [`Moment`]. Results are the same bits.
    fn replay_observed(
        &mut self,
        program: usize,
        inputs: &RowInputs,
        skipped: &[bool],
        observer: Observer<'_>,
    );

    /// The threads that it runs on, to be lent to replays that run when it does not; `None` if it has none to lend.
    fn workers(&self) -> Option<Workers>;

    /// Makes linear number `step` of program number `program` go as `tuning` says. Results are the same bits.
    ///
    /// # Panics
    /// If that step is no linear with this choice.
    fn tune(&mut self, program: usize, step: usize, tuning: Tuning);

    /// Does something that bounds every replay, with the same threads and memory; returns how much of it.
    fn exercise(&mut self, exercise: Exercise) -> u64;

    /// What output `output` of the last replay shows, which must have been of `program`: logits `[V]`, or a row of candidates.
    fn shown(&self, program: usize, output: usize) -> &[f32];

    /// The hidden row `[D]` of output `output` of the last replay, or of its row of that number where the program keeps those of
    /// all rows, which must have been of `program`; `None` if the graph declares none.
    fn hidden(&self, program: usize, output: usize) -> Option<&[f32]>;

    /// Copies the keys and values of slots `from[i]` to slots `first + i`, in order. Sources may lie among the
    /// destinations as long as `from[i] >= first + i`.
    fn copy_slots(&mut self, from: &[u32], first: u32);

    /// Draft phases that the device runs by itself; `None` where forwards are all that it runs.
    fn phases(&mut self) -> Option<&mut dyn DraftPhases>;

    /// Verifications that the device runs by itself; `None` where forwards are all that it runs.
    fn verifications(&mut self) -> Option<&mut dyn Verifications>;

    /// Overwrites slots with finite noise: what nothing may read. For tests and `verify`.
    fn poison_slots(&mut self, slots: Range<u32>, seed: u64);
}

/// Why there is no GPU in a build without one.
#[cfg(not(feature = "cuda"))]
const NOT_BUILT_IN: &str =
    "it is not built into this version of yggc; build it with the feature `cuda`, or use the processor";

/// Loads the programs of one graph for a device, packing weights once for all of them.
///
/// # Errors
/// [`BackendError`] when the device lacks the tier or a weight cannot be packed.
pub fn load(
    programs: Vec<Program>,
    device: &DeviceSpec,
    weights: &dyn WeightSource,
    threads: usize,
) -> Result<Arc<dyn Executables>, BackendError> {
    assert!(!programs.is_empty(), "at least one program");
    match device.tier {
        Tier::Reference => {
            Ok(Arc::new(reference::ReferenceExecutables::load(programs, device.kv_format, weights)))
        }
        Tier::Portable | Tier::Avx2 | Tier::Avx512 | Tier::Amx => {
            Ok(Arc::new(cpu::CpuExecutables::load(programs, device, weights, threads)?))
        }
        #[cfg(feature = "cuda")]
        Tier::Cuda => Ok(Arc::new(cuda::CudaExecutables::load(programs, device, weights, threads)?)),
        #[cfg(not(feature = "cuda"))]
        Tier::Cuda => Err(BackendError::NoCuda { reason: NOT_BUILT_IN.to_owned() }),
    }
}

/// A weight's bytes as a matrix.
fn matrix<'a>(spec: &WeightSpec, bytes: &'a [u8]) -> Result<Matrix<'a>, BackendError> {
    Matrix::new(spec.format, spec.rows, spec.columns, bytes)
        .map_err(|e| BackendError::Weight { name: spec.name.clone(), reason: e.to_string() })
}

/// The matrix whose rows a program's tokens become, if it embeds tokens.
fn embedding(program: &Program) -> Option<WeightId> {
    program.steps.iter().find_map(|step| if let Op::Embed { weight } = step.op { Some(weight) } else { None })
}

/// A norm's gain as numbers.
fn gain(matrix: &Matrix<'_>) -> Vec<f32> {
    let mut gain = vec![0.0; matrix.columns()];
    matrix.format().dequantise_row(matrix.row(0), &mut gain);
    gain
}

/// Tables of all rotary embeddings of a program for positions `0..context`.
fn rope_tables(program: &Program, context: usize) -> Vec<RopeTable> {
    program.ropes.iter().map(|r| RopeTable::new(&r.inv_freq, context)).collect()
}

/// Bytes of [`rope_tables`]: a cosine and a sine per position and pair.
fn rope_bytes(program: &Program, context: usize) -> usize {
    program.ropes.iter().map(|r| 2 * context * r.inv_freq.len() * size_of::<f32>()).sum()
}

/// What the rows of a forward see, as kernels read it.
fn tails(inputs: &RowInputs) -> Tails<'_> {
    Tails {
        positions: inputs.positions(),
        prefix: inputs.prefix(),
        tail_len: inputs.tail_len(),
        tails: inputs.tails(),
        tail_capacity: inputs.tail_capacity(),
    }
}
