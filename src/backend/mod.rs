//! Programs become executables: loaded with weights, ready to be replayed.
//!
//! A backend takes whole [`Program`]s of one graph. [`Executables`] is immutable and shared; what one request needs
//! (arena, cache, threads) is a [`Replay`] opened from it. Law: `Replay` methods allocate nothing, and a row's result
//! depends only on the logical sequence it attends to, never on width, thread count, row order or slots. `cpu` is this
//! processor, `cuda` a GPU. `reference` is the judge: scalar kernels, one thread, nothing fused beyond what the program
//! says.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "planner")]
mod eager;
mod error;
mod instruments;
mod loading;
mod memory;
mod phase;
mod reference;
mod slots;
mod tier;
mod verification;

use std::{fmt::Debug, sync::Arc};

pub(crate) use crate::storage::processors;

pub use cpu::{PackedLayout, Pinning, Workers, available_tiers, packed_layouts};
#[cfg(feature = "cuda")]
pub use cuda::{keep_compiled_kernels, keep_kernels_apart};
#[cfg(feature = "planner")]
pub use eager::load_eager;
pub use error::BackendError;
pub use instruments::{Exercise, Instruments, Moment, Observer};
pub use loading::Loading;
pub use phase::{DraftPhases, GrowingTree, Grown, PhaseId, PhaseRoot, PhaseShape};
pub use slots::{CUT_SLOTS, MOVED_SLOTS, SlotMoves};
use tier::Runner;
pub use tier::{Gpu, gpu, has_own_memory, packed_sizes, rounds_activations};
pub use verification::{Accepted, VerificationId, Verifications};
pub use ygg_kernels::{
    Activations, KvFormat, Tier,
    cpu::{Arithmetic, Tuning},
};
use ygg_kernels::{Matrix, RopeTable, Tails};

use crate::ir::{
    DeviceSpec, IdVec, Op, OutputId, Program, ProgramId, RopeSpec, RowInputs, WeightId, WeightSource,
    WeightSpec,
};

/// How many slots a cache has, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    /// Longest committed sequence in tokens; also the number of positions.
    pub context: usize,
    /// Slots after the committed prefix for the rows of trees.
    pub scratch: usize,
}

impl SlotLayout {
    /// All slots: committed and scratch. Padding rows have none.
    pub fn slots(&self) -> usize {
        self.context + self.scratch
    }
}

/// Options of one request's state.
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
    /// Most slots that a row attends to after its prefix: those of its ancestors and its own.
    pub tail_capacity: usize,
}

/// All programs of one graph loaded with its weights.
pub trait Executables: Send + Sync + Debug {
    /// The programs.
    fn programs(&self) -> &IdVec<ProgramId, Program>;

    /// Bytes of weights that forwards read: in memory of this object, or mapped as they were kept.
    fn weight_bytes(&self) -> usize;

    /// Whether a kernel may begin while the one before it still runs; none where the device does not know of that.
    fn kernels_overlap(&self) -> Option<bool> {
        None
    }

    /// Bytes that [`open`](Self::open) would take for this layout.
    fn replay_bytes(&self, options: &ReplayOptions) -> usize;

    /// The same with more programs, whose ids follow these: of one graph that was derived from theirs, so that its
    /// weights begin with theirs. Weights that are loaded are shared; `weights` is asked for the others only.
    ///
    /// # Errors
    /// [`BackendError`] when a weight cannot be packed.
    fn with(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError>;

    /// Other programs over the same weights, with caches of their own: of one graph whose weights begin with those of
    /// these programs' graph. Weights that are loaded are shared; `weights` is asked for the others only.
    ///
    /// # Errors
    /// [`BackendError`] when a weight cannot be packed, or the device cannot run a program.
    fn beside(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError>;

    /// Writes the embedding `[D]` of a token, as forwards read it. If the device fails it writes zeros, and all replays
    /// have [failed](Replay::failure).
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

/// One request's state on a device: arena, key/value cache, threads. It runs forwards; what else it can do are its
/// [`Capabilities`].
pub trait Replay: Capabilities + Send + Debug {
    /// The device's first failure, if it has failed. From then on nothing runs, and results are placeholders that let a
    /// step end without a panic: callers check this before they hand out results. Processors do not fail.
    fn failure(&self) -> Option<&BackendError>;

    /// Runs a program on the given rows, leaving out the groups with `skipped[group]`. A device that runs in parallel
    /// with the host only begins, and [`finish`](Self::finish) waits for it: in between slots may be copied, which the
    /// device does after it; results may not be read.
    fn begin(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]);

    /// Whether what was begun still runs. Does not wait.
    fn is_running(&self) -> bool {
        false
    }

    /// Waits for what was begun, as every later run does.
    fn finish(&mut self) {}

    /// An output of the last replay, which must have been of `program`: logits `[V]`, or a row of candidates.
    fn shown(&self, program: ProgramId, output: OutputId) -> &[f32];

    /// The row `[D]` of an output of the last replay, which must have been of `program`, among those that the program
    /// [leaves](Program::rows_left) as number `part`: 0 is the hidden row. Where the program keeps the rows of all its
    /// rows, that of the row of this number. `None` if the graph declares none.
    fn hidden(&self, program: ProgramId, part: usize, output: OutputId) -> Option<&[f32]>;

    /// Its cache, to move slots in.
    fn slots(&mut self) -> &mut dyn SlotMoves;
}

impl dyn Replay {
    /// [`begin`](Replay::begin), and its end.
    pub fn replay(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        self.begin(program, inputs, skipped);
        self.finish();
    }
}

/// What a replay can do in addition to forwards. A backend that only runs forwards implements none of it.
pub trait Capabilities {
    /// Its threads, for replays that run when it does not.
    fn workers(&self) -> Option<Workers> {
        None
    }

    /// Measuring, tuning and checking.
    fn instruments(&mut self) -> Option<&mut dyn Instruments> {
        None
    }

    /// Ranking candidates by the [noise](RowInputs::set_noise) of their rows, where there is some.
    fn ranks_by_noise(&self) -> bool {
        false
    }

    /// Draft phases on the device.
    fn phases(&mut self) -> Option<&mut dyn DraftPhases> {
        None
    }

    /// Verifications on the device.
    fn verifications(&mut self) -> Option<&mut dyn Verifications> {
        None
    }
}

/// Why there is no GPU in a build without one.
#[cfg(not(feature = "cuda"))]
fn not_built_in() -> BackendError {
    let reason =
        "it is not built into this version of yggc; build it with the feature `cuda`, or use the processor";
    BackendError::NoCuda { reason: reason.to_owned() }
}

/// Loads the programs of one graph for a device, packing weights once for all of them.
///
/// # Errors
/// [`BackendError`] when the device lacks the tier or a weight cannot be packed.
pub fn load(
    programs: Vec<Program>,
    device: &DeviceSpec,
    loading: &Loading<'_>,
    threads: usize,
) -> Result<Arc<dyn Executables>, BackendError> {
    assert!(!programs.is_empty(), "at least one program");
    match Runner::of(device.tier) {
        Runner::Reference => {
            Ok(Arc::new(reference::ReferenceExecutables::load(programs, device.kv_format, loading)))
        }
        Runner::Cpu => Ok(Arc::new(cpu::CpuExecutables::load(programs, device, loading, threads)?)),
        #[cfg(feature = "cuda")]
        Runner::Cuda => {
            Ok(Arc::new(cuda::CudaExecutables::load(cuda::Way::Graph, programs, device, loading, threads)?))
        }
        #[cfg(not(feature = "cuda"))]
        Runner::Cuda => Err(not_built_in()),
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

/// Vectors, one after the other, as numbers: gains of norms, or biases.
fn vector(
    weights: &[WeightId],
    specs: &[WeightSpec],
    source: &dyn WeightSource,
) -> Result<Vec<f32>, BackendError> {
    let mut all = Vec::new();
    for weight in weights {
        let spec = &specs[weight.0 as usize];
        let bytes = source.bytes(*weight);
        let stored = matrix(spec, &bytes)?;
        let mut numbers = vec![0.0; stored.columns()];
        stored.format().dequantise_row(stored.row(0), &mut numbers);
        all.extend(numbers.into_iter().map(|number| number + spec.offset));
    }
    Ok(all)
}

/// Tables of all rotary embeddings of a program for positions `0..context`.
fn rope_tables(program: &Program, context: usize) -> Vec<RopeTable> {
    let table = |r: &RopeSpec| RopeTable::new(r.inv_freq_within(context), r.magnitude, context);
    program.ropes.iter().map(table).collect()
}

/// Bytes of [`rope_tables`]: a cosine and a sine per position and pair.
fn rope_bytes(program: &Program, context: usize) -> usize {
    program.ropes.iter().map(|r| 2 * context * r.inv_freq.len() * size_of::<f32>()).sum()
}

/// The slots that each row of a forward attends to, in the form that kernels take.
fn tails(inputs: &RowInputs) -> Tails<'_> {
    Tails {
        positions: inputs.positions(),
        prefix: inputs.prefix(),
        tail_len: inputs.tail_len(),
        tails: inputs.tails(),
        tail_capacity: inputs.tail_capacity(),
    }
}
