//! The CUDA backend: weights uploaded once, every program captured as a graph, a forward replayed by one launch.
//!
//! | file | what it is |
//! |---|---|
//! | `device` | the GPU, its kernels (embedded, or compiled through NVRTC), its memory, launches |
//! | `compiled` | what NVRTC made, kept in a folder |
//! | `weights` | uploads |
//! | `streaming` | weights that every forward copies to the device |
//! | `cache` | keys and values, and the kernels that move them |
//! | `layout` | where inputs and results lie |
//! | `launches` | steps of a program as kernels with parameters |
//! | `candidates` | kernels behind logits: candidates, by logits or under noise, and draws |
//! | `attention` | blocks and shared memory of attention |
//! | `experts` | routes, and products with experts |
//! | `states` | states of rows |
//! | `projection` | which products leave queries, keys and values turned and stored |
//! | `alone` | kernels that measure the machine |
//! | `capture` | graphs |
//! | `replay` | one request: warm-up, capture, replay |
//! | `slots` | what the host moves, keeps and forgets between forwards |
//! | `phase` | a draft phase as one graph: forwards with the growth of the tree between them |
//! | `verification` | a verification as one graph: a forward, then the walk and the move of what is accepted |
//!
//! A graph copies the rows in, runs every kernel, with copies of streamed weights in parallel, and copies the results
//! out; the host writes pinned memory, launches, waits, reads. What kernels do is in `kernels/cuda`.

mod alone;
mod attention;
mod cache;
mod candidates;
mod capture;
mod compiled;
mod device;
mod experts;
mod launches;
mod layout;
mod phase;
mod places;
mod products;
mod projection;
mod replay;
mod scratch;
mod slots;
mod states;
mod streaming;
mod verification;
mod weights;

use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::result;
use ygg_kernels::{
    Activations, KvFormat, WeightFormat,
    cuda::{
        abi::{YGG_MOST_CANDIDATES, YGG_MOST_EXPERTS, YGG_MOST_WIDTH},
        packing::Layout,
    },
};

use crate::ir::{DeviceSpec, IdVec, Op, Program, ProgramId, WeightId, WeightSource};

use super::{BackendError, Executables, Gpu, Loading, Replay, ReplayOptions};
pub use compiled::keep_compiled_kernels;
pub use device::keep_kernels_apart;
use device::{Device, check};
use replay::CudaReplay;
use weights::Weights;

/// What the emulated driver of the tests calls its device.
const EMULATED: &str = "emulated by the host";

/// The first GPU, as [`gpu`](super::gpu) says.
pub(super) fn first_gpu() -> Result<Gpu, BackendError> {
    let (name, driver) = device::probe()?;
    let is_emulated = name == EMULATED;
    Ok(Gpu { name, driver, is_emulated })
}

/// An embedding matrix as the host reads rows of it.
#[derive(Clone, Copy, Debug)]
struct EmbeddingRows {
    at: u64,
    format: WeightFormat,
    row_bytes: usize,
}

/// How the kernels of a forward reach the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Captured as a graph once, launched as one; a kernel begins while the one before it ends, where the device can.
    Graph,
    /// Launched one by one by the host.
    #[cfg_attr(not(feature = "planner"), expect(dead_code, reason = "made to compare with only"))]
    Eager,
}

/// Programs with their weights on a GPU. Clones share them.
#[derive(Debug)]
pub(super) struct CudaExecutables {
    programs: IdVec<ProgramId, Program>,
    way: Way,
    weights: Weights,
    device: Arc<Device>,
    /// Layouts of weights that the device has kernels for.
    layouts: u32,
    kv_format: KvFormat,
    /// Bytes of a row of the embedding, reserved once.
    row: Mutex<Vec<u8>>,
    /// What failed when a row of the embedding was fetched.
    failure: OnceLock<BackendError>,
}

impl Clone for CudaExecutables {
    fn clone(&self) -> Self {
        let Self { programs, way, weights, device, layouts, kv_format, row: _, failure: _ } = self;
        Self {
            programs: programs.clone(),
            way: *way,
            weights: weights.clone(),
            device: Arc::clone(device),
            layouts: *layouts,
            kv_format: *kv_format,
            row: Mutex::default(),
            failure: OnceLock::new(),
        }
    }
}

impl CudaExecutables {
    pub(super) fn load(
        way: Way,
        programs: Vec<Program>,
        spec: &DeviceSpec,
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<Self, BackendError> {
        if spec.activations != Activations::Native {
            return Err(BackendError::CudaLimit {
                what: "activations",
                expected: Activations::Native.to_string(),
                found: spec.activations.to_string(),
            });
        }
        match spec.kv_format {
            KvFormat::F16 | KvFormat::F32 => {}
            KvFormat::Q8 => {
                return Err(BackendError::CudaLimit {
                    what: "key/value cache",
                    expected: format!("{} or {}", KvFormat::F16, KvFormat::F32),
                    found: spec.kv_format.to_string(),
                });
            }
        }
        check_limits(&programs)?;
        let layouts = all_layouts(&programs);
        let empty = Self {
            programs: IdVec::default(),
            way,
            weights: Weights::default(),
            device: Device::open(layouts, way)?,
            layouts,
            kv_format: spec.kv_format,
            row: Mutex::default(),
            failure: OnceLock::new(),
        };
        empty.and(programs, loading, threads)
    }

    fn and(
        mut self,
        programs: Vec<Program>,
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<Self, BackendError> {
        self.weights.upload(&self.device, &programs, loading, threads)?;
        self.programs.extend(programs);
        if let Some(rows) = self.embedding() {
            self.row = Mutex::new(vec![0; rows.row_bytes]);
        }
        Ok(self)
    }

    fn embedding(&self) -> Option<EmbeddingRows> {
        let program = &self.programs[ProgramId::FIRST];
        let weight = super::embedding(program)?;
        let WeightId(number) = weight;
        let spec = &program.weights[number as usize];
        let format = Layout::of_rows(spec.format);
        let row_bytes = format.row_bytes(spec.columns).expect("the model's loader has checked sizes");
        Some(EmbeddingRows { at: self.weights.rows(weight), format, row_bytes })
    }
}

/// Layouts of the programs' weights, and of every format that a program derived from them may bring: the same ones.
fn all_layouts(programs: &[Program]) -> u32 {
    let specs = programs.iter().flat_map(|p| p.weights.iter());
    specs.fold(0, |all, spec| all | Layout::of(spec.format).bit())
}

fn check_limits(programs: &[Program]) -> Result<(), BackendError> {
    let refuse = |what, most: usize, found: usize| {
        Err(BackendError::CudaLimit { what, expected: format!("at most {most}"), found: found.to_string() })
    };
    for program in programs {
        let most = YGG_MOST_WIDTH as usize;
        if program.binding.width > most {
            return refuse("rows of a forward", most, program.binding.width);
        }
        let (_, [_, of_others]) = program.kv.shapes()[1];
        let head_dim = program.kv.head_dim.max(of_others);
        if attention::widest(head_dim).is_none() {
            return refuse("elements of a head", attention::HEADS_TO[3], head_dim);
        }
        for step in &program.steps {
            if let Op::Route { .. } = &step.op {
                let scores = step.operands[0].region().map_or(0, |scores| scores.columns);
                if scores > YGG_MOST_EXPERTS as usize {
                    return refuse("experts of a layer", YGG_MOST_EXPERTS as usize, scores);
                }
            }
            let most = YGG_MOST_CANDIDATES as usize;
            if let Op::Candidates { most: found, .. } = &step.op
                && *found > most
            {
                return refuse("candidates of a row", most, *found);
            }
        }
    }
    Ok(())
}

impl Executables for CudaExecutables {
    fn programs(&self) -> &IdVec<ProgramId, Program> {
        &self.programs
    }

    fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    fn kernels_overlap(&self) -> Option<bool> {
        Some(self.device.overlaps())
    }

    fn replay_bytes(&self, options: &ReplayOptions) -> usize {
        places::replay_bytes(&self.programs, self.kv_format, options)
    }

    fn with(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        check_limits(&programs)?;
        Ok(Arc::new(self.clone().and(programs, &Loading::of(weights), threads)?))
    }

    fn beside(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        check_limits(&programs)?;
        let layouts = all_layouts(&programs);
        let device = match layouts & !self.layouts {
            0 => Arc::clone(&self.device),
            // The same GPU and memory, with kernels for the other weights too.
            _ => Device::open(self.layouts | layouts, self.way)?,
        };
        let layouts = self.layouts | layouts;
        let beside = Self { programs: IdVec::default(), layouts, device, ..self.clone() };
        Ok(Arc::new(beside.and(programs, &Loading::of(weights), threads)?))
    }

    fn embed(&self, token: u32, row: &mut [f32]) {
        let EmbeddingRows { at, format, row_bytes } = self.embedding().expect("the programs embed tokens");
        let mut bytes = self.row.lock().expect("no user of the row panics");
        let from = at + u64::from(token) * row_bytes as u64;
        let mut fetch = || {
            // SAFETY: a row of the embedding, which is on the device as long as `self`.
            let copied = unsafe { result::memcpy_dtoh_sync(&mut bytes[..row_bytes], from) };
            check("fetch an embedding", copied)
        };
        let copied = self.device.bind().and_then(|()| fetch());
        if let Err(failure) = copied {
            // Every replay over these programs has failed by this: the first word is enough.
            let _later = self.failure.set(failure);
            row.fill(0.0);
            return;
        }
        format.dequantise_row(&bytes[..row_bytes], row);
    }

    fn open(self: Arc<Self>, options: &ReplayOptions) -> Result<Box<dyn Replay>, BackendError> {
        Ok(Box::new(CudaReplay::new(self, options)?))
    }
}
