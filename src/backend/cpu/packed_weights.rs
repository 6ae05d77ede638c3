//! All weights of a model in the layouts that the kernels read, each packed once for all programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use ygg_kernels::cpu::{ALIGNMENT, PACKED_LAYOUT, PackError, PackedLinear, Packing, Reserved, Target};

use crate::ir::{
    KEPT_ALIGNMENT, KeptBytes, Norm, Op, OpWeights, PackedDigest, Program, WeightId, WeightSource, WeightSpec,
};

use super::BackendError;
use crate::backend::memory::probe;

/// Weights that are packed as one matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Matrices stacked by rows.
    Stack(Vec<WeightId>),
    /// Gate and up in turn.
    Gated(WeightId, WeightId),
    /// A norm's gain, taps, or biases behind each other.
    Vector(Vec<WeightId>),
}

impl Key {
    fn weights(&self) -> Vec<WeightId> {
        match self {
            Self::Stack(weights) | Self::Vector(weights) => weights.clone(),
            Self::Gated(gate, up) => vec![*gate, *up],
        }
    }
}

/// Number of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixId(usize);

/// Number of a gain, of taps or of biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VectorId(usize);

/// Packed matrices and vectors, found by what is packed together.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedWeights {
    places: BTreeMap<Key, usize>,
    matrices: Vec<Arc<PackedLinear>>,
    vectors: Vec<Arc<[f32]>>,
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
        // What is packed later, heads and drafters, is small or another's.
        let is_first = self.places.is_empty();
        let (mut matrices, mut packings) = (Vec::new(), Vec::new());
        for key in keys {
            match parts_of(&key, specs, source)? {
                Parts::Matrix(packing) => {
                    packings.push(packing);
                    matrices.push(key);
                }
                Parts::Vector(vector) => {
                    key.weights().iter().for_each(|weight| source.note_loaded(*weight));
                    self.places.insert(key, self.vectors.len());
                    self.vectors.push(vector.into());
                }
            }
        }
        let note = |i: usize| matrices[i].weights().iter().for_each(|weight| source.note_loaded(*weight));
        let digest = is_first.then(|| digest_of(&matrices, specs, &packings));
        let packed = match digest.and_then(|digest| source.kept_packed(&digest)) {
            Some(kept) => {
                (0..matrices.len()).for_each(note);
                from_kept(packings, &kept)
            }
            None => {
                let packed = on_threads(packings, threads, &note)?;
                if let Some(digest) = digest {
                    let parts: Vec<&[u8]> = packed.iter().map(PackedLinear::bytes).collect();
                    source.keep_packed(&digest, &parts);
                }
                packed
            }
        };
        for (key, matrix) in matrices.into_iter().zip(packed) {
            self.places.insert(key, self.matrices.len());
            self.matrices.push(Arc::new(matrix));
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

    pub(super) fn vector_id(&self, weights: &[WeightId]) -> VectorId {
        VectorId(self.place(&Key::Vector(weights.to_vec())))
    }

    pub(super) fn matrix(&self, id: MatrixId) -> &PackedLinear {
        &self.matrices[id.0]
    }

    /// All matrices, each once.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &PackedLinear> {
        self.matrices.iter().map(|matrix| &**matrix)
    }

    pub(super) fn vector(&self, id: VectorId) -> &[f32] {
        &self.vectors[id.0]
    }

    pub(super) fn resident_bytes(&self) -> usize {
        let vectors: usize = self.vectors.iter().map(|v| v.len() * size_of::<f32>()).sum();
        self.matrices().map(PackedLinear::resident_bytes).sum::<usize>() + vectors
    }
}

fn keys_of(op: &Op) -> Vec<Key> {
    let with_vectors = |matrices: Key, biases: &[WeightId], norm: Option<Norm>| {
        let biases = (!biases.is_empty()).then(|| Key::Vector(biases.to_vec()));
        let gain = norm.map(|n| Key::Vector(vec![n.weight]));
        std::iter::once(matrices).chain(biases).chain(gain).collect()
    };
    match op.weights() {
        OpWeights::Nothing => Vec::new(),
        OpWeights::Rows(weight) => vec![Key::Stack(vec![weight])],
        OpWeights::Gain(Norm { weight, .. }) | OpWeights::Vector(weight) => vec![Key::Vector(vec![weight])],
        OpWeights::Stack { weights, biases, norm } => {
            with_vectors(Key::Stack(weights.to_vec()), biases, norm)
        }
        OpWeights::Gated { gate, up, norm } => with_vectors(Key::Gated(gate, up), &[], norm),
    }
}

/// What a key stands for.
enum Parts<'a> {
    Matrix(Packing<'a>),
    Vector(Vec<f32>),
}

fn parts_of<'a>(
    key: &Key,
    specs: &[WeightSpec],
    source: &'a dyn WeightSource,
) -> Result<Parts<'a>, BackendError> {
    let matrix = |id: &WeightId| crate::backend::matrix(&specs[id.0 as usize], source.bytes(*id));
    let (first, packing) = match key {
        Key::Stack(ids) => {
            let parts = ids.iter().map(matrix).collect::<Result<Vec<_>, _>>()?;
            (ids[0], Packing::stack(&parts))
        }
        Key::Gated(gate, up) => (*gate, Packing::gated(&matrix(gate)?, &matrix(up)?)),
        Key::Vector(ids) => return Ok(Parts::Vector(crate::backend::vector(ids, specs, source)?)),
    };
    let refused = |reason: PackError| BackendError::Weight {
        name: specs[first.0 as usize].name.clone(),
        reason: reason.to_string(),
    };
    packing.map(Parts::Matrix).map_err(refused)
}

/// Names what is packed, in what order and in which layout; the same on every tier and for any number of threads.
fn digest_of(keys: &[Key], specs: &[WeightSpec], packings: &[Packing<'_>]) -> PackedDigest {
    let mut hasher = blake3::Hasher::new();
    let mut field = |text: String| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    field(PACKED_LAYOUT.to_owned());
    for (key, packing) in keys.iter().zip(packings) {
        field(format!("{key:?} in {} bytes", packing.bytes()));
        for weight in key.weights() {
            // Only vectors, which are not kept, have an offset.
            let WeightSpec { name, first_row, format, rows, columns, offset: _ } = &specs[weight.0 as usize];
            let part = if *first_row == 0 { String::new() } else { format!(" from row {first_row}") };
            field(format!("{name} {format} [{rows}, {columns}]{part}"));
        }
    }
    *hasher.finalize().as_bytes()
}

/// Matrices where they were kept, as [`WeightSource::keep_packed`] says.
fn from_kept(packings: Vec<Packing<'_>>, kept: &KeptBytes) -> Vec<PackedLinear> {
    const { assert!(KEPT_ALIGNMENT.is_multiple_of(ALIGNMENT)) };
    let mut at = 0;
    let place = |packing: Packing<'_>| {
        let start = at;
        at += packing.bytes().next_multiple_of(KEPT_ALIGNMENT);
        packing.from_kept(kept, start)
    };
    packings.into_iter().map(place).collect()
}

/// Bytes of packed weights that a thread takes at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Packs matrices into one allocation, in the order of use one behind the other. All threads take pieces from one queue; `note` is
/// told of each matrix when the last of its pieces is written.
fn on_threads(
    packings: Vec<Packing<'_>>,
    threads: usize,
    note: &(dyn Fn(usize) + Sync),
) -> Result<Vec<PackedLinear>, BackendError> {
    let sizes: Vec<usize> = packings.iter().map(Packing::bytes).collect();
    probe(sizes.iter().sum(), "the weights")?;
    let places = Reserved::together(&sizes);
    let mut targets: Vec<Target<'_>> =
        packings.into_iter().zip(places).map(|(packing, place)| packing.into_memory(place)).collect();
    let (mut left, mut pieces) = (Vec::new(), Vec::new());
    for (i, target) in targets.iter_mut().enumerate() {
        let before = pieces.len();
        pieces.extend(target.pieces(PIECE_BYTES).map(|piece| (i, piece)));
        left.push(AtomicUsize::new(pieces.len() - before));
    }
    let queue = Mutex::new(pieces.into_iter());
    let next = || queue.lock().expect("no thread panics while it takes a piece").next();
    let work = || {
        while let Some((i, piece)) = next() {
            piece.write();
            if left[i].fetch_sub(1, Ordering::Relaxed) == 1 {
                note(i);
            }
        }
    };
    let helped = std::thread::scope(|scope| {
        let helper = |_| std::thread::Builder::new().spawn_scoped(scope, work).map(drop);
        (1..threads).try_for_each(helper).inspect(|()| work())
    });
    helped.map_err(|source| BackendError::Threads { threads, source })?;
    drop(queue);
    Ok(targets.into_iter().map(Target::finish).collect())
}
