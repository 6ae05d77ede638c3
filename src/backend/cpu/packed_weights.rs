//! All weights of a model in the layouts that the kernels read, each packed once for all programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use ygg_kernels::{
    Matrix,
    cpu::{PackError, PackedLinear, Reserved},
};

use crate::ir::{Norm, Op, OpWeights, Program, WeightId, WeightSource, WeightSpec};

use super::BackendError;
use crate::backend::memory::probe;

/// What is packed together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Matrices stacked by rows.
    Stack(Vec<WeightId>),
    /// Gate and up in turn.
    Gated(WeightId, WeightId),
    /// A norm's gain.
    Gain(WeightId),
}

impl Key {
    fn weights(&self) -> Vec<WeightId> {
        match self {
            Self::Stack(weights) => weights.clone(),
            Self::Gated(gate, up) => vec![*gate, *up],
            Self::Gain(weight) => vec![*weight],
        }
    }
}

/// Number of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixId(usize);

/// Number of a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GainId(usize);

/// Packed matrices and gains, found by what is packed together.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedWeights {
    places: BTreeMap<Key, usize>,
    matrices: Vec<Arc<PackedLinear>>,
    gains: Vec<Arc<[f32]>>,
}

impl PackedWeights {
    /// Packs everything that a step of the programs, all of one graph, reads and that is not packed yet, on `threads`
    /// threads. What is packed keeps its number.
    pub(super) fn pack(
        &mut self,
        programs: &[Program],
        source: &dyn WeightSource,
        threads: usize,
    ) -> Result<(), BackendError> {
        let Some(Program { weights: specs, .. }) = programs.first() else { return Ok(()) };
        let mut seen = BTreeSet::new();
        let keys: Vec<Key> = programs
            .iter()
            .flat_map(|p| &p.steps)
            .flat_map(|step| keys_of(&step.op))
            .filter(|key| !self.places.contains_key(key) && seen.insert(key.clone()))
            .collect();
        if keys.is_empty() {
            return Ok(());
        }
        // In the order of use, one behind the other.
        let sizes = keys.iter().map(|key| bytes_of(key, specs, source)).collect::<Result<Vec<_>, _>>()?;
        probe(sizes.iter().sum(), "the weights")?;
        let places = Reserved::together(&sizes);
        let jobs = Mutex::new(keys.into_iter().zip(places));
        let packed = Mutex::new(Vec::with_capacity(sizes.len()));
        let next = || jobs.lock().expect("no packing thread panics").next();
        let work = || {
            while let Some((key, memory)) = next() {
                let result = pack_one(&key, specs, source, memory);
                key.weights().iter().for_each(|weight| source.note_loaded(*weight));
                packed.lock().expect("no packing thread panics").push((key, result));
            }
        };
        let helped = std::thread::scope(|scope| {
            let helper = |_| std::thread::Builder::new().spawn_scoped(scope, work).map(drop);
            (1..threads).try_for_each(helper).inspect(|()| work())
        });
        helped.map_err(|source| BackendError::Threads { threads, source })?;
        let mut all = packed.into_inner().expect("no packing thread panicked");
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (key, result) in all {
            let place = match result? {
                Packed::Matrix(matrix) => {
                    self.matrices.push(Arc::new(matrix));
                    self.matrices.len() - 1
                }
                Packed::Gain(gain) => {
                    self.gains.push(gain.into());
                    self.gains.len() - 1
                }
            };
            self.places.insert(key, place);
        }
        Ok(())
    }

    fn place(&self, key: &Key) -> usize {
        *self.places.get(key).expect("every step's weights were packed")
    }

    pub(super) fn stack(&self, weights: &[WeightId]) -> MatrixId {
        MatrixId(self.place(&Key::Stack(weights.to_vec())))
    }

    pub(super) fn gated(&self, gate: WeightId, up: WeightId) -> MatrixId {
        MatrixId(self.place(&Key::Gated(gate, up)))
    }

    pub(super) fn gain_id(&self, weight: WeightId) -> GainId {
        GainId(self.place(&Key::Gain(weight)))
    }

    pub(super) fn matrix(&self, id: MatrixId) -> &PackedLinear {
        &self.matrices[id.0]
    }

    /// All matrices, each once.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &PackedLinear> {
        self.matrices.iter().map(|matrix| &**matrix)
    }

    pub(super) fn gain(&self, id: GainId) -> &[f32] {
        &self.gains[id.0]
    }

    pub(super) fn resident_bytes(&self) -> usize {
        let gains: usize = self.gains.iter().map(|g| g.len() * size_of::<f32>()).sum();
        self.matrices().map(PackedLinear::resident_bytes).sum::<usize>() + gains
    }
}

fn keys_of(op: &Op) -> Vec<Key> {
    let with_gain = |matrices: Key, norm: Option<Norm>| {
        std::iter::once(matrices).chain(norm.map(|n| Key::Gain(n.weight))).collect()
    };
    match op.weights() {
        OpWeights::Nothing => Vec::new(),
        OpWeights::Rows(weight) => vec![Key::Stack(vec![weight])],
        OpWeights::Gain(norm) => vec![Key::Gain(norm.weight)],
        OpWeights::Stack { weights, norm } => with_gain(Key::Stack(weights.to_vec()), norm),
        OpWeights::Gated { gate, up, norm } => with_gain(Key::Gated(gate, up), norm),
    }
}

enum Packed {
    Matrix(PackedLinear),
    Gain(Vec<f32>),
}

/// The matrices of a key.
enum Parts<'a> {
    Stack(Vec<Matrix<'a>>),
    Gated(Matrix<'a>, Matrix<'a>),
    Gain(Matrix<'a>),
}

fn parts_of<'a>(
    key: &Key,
    specs: &[WeightSpec],
    source: &'a dyn WeightSource,
) -> Result<Parts<'a>, BackendError> {
    let matrix = |id: &WeightId| crate::backend::matrix(&specs[id.0 as usize], source.bytes(*id));
    Ok(match key {
        Key::Stack(ids) => Parts::Stack(ids.iter().map(matrix).collect::<Result<_, _>>()?),
        Key::Gated(gate, up) => Parts::Gated(matrix(gate)?, matrix(up)?),
        Key::Gain(id) => Parts::Gain(matrix(id)?),
    })
}

/// The weights of a key cannot be packed.
fn refused(key: &Key, specs: &[WeightSpec], reason: PackError) -> BackendError {
    let first = match key {
        Key::Stack(ids) => ids[0],
        Key::Gated(id, _) | Key::Gain(id) => *id,
    };
    BackendError::Weight { name: specs[first.0 as usize].name.clone(), reason: reason.to_string() }
}

/// Memory that a key's packed matrix takes; a gain has its own.
fn bytes_of(key: &Key, specs: &[WeightSpec], source: &dyn WeightSource) -> Result<usize, BackendError> {
    let bytes = match parts_of(key, specs, source)? {
        Parts::Stack(parts) => PackedLinear::stack_bytes(&parts),
        Parts::Gated(gate, up) => PackedLinear::gated_bytes(&gate, &up),
        Parts::Gain(_) => Ok(0),
    };
    bytes.map_err(|reason| refused(key, specs, reason))
}

fn pack_one(
    key: &Key,
    specs: &[WeightSpec],
    source: &dyn WeightSource,
    memory: Reserved,
) -> Result<Packed, BackendError> {
    let packed = match parts_of(key, specs, source)? {
        Parts::Stack(parts) => PackedLinear::stack_in(&parts, memory),
        Parts::Gated(gate, up) => PackedLinear::gated_in(&gate, &up, memory),
        Parts::Gain(gain) => return Ok(Packed::Gain(crate::backend::gain(&gain))),
    };
    packed.map(Packed::Matrix).map_err(|reason| refused(key, specs, reason))
}
