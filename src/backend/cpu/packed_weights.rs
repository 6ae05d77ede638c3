//! All weights of a model in the layouts that the kernels read, each packed once for all programs.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use ygg_kernels::{
    Matrix,
    cpu::{self, ALIGNMENT, PACKED_LAYOUT, PackError, PackedLinear, Packing, Reserved, Target},
};

use crate::{
    ir::{
        Norm, Op, OpWeights, PAGE, Program, Residence, SharedBytes, Staging, StagingPlace, Step, WeightId,
        WeightSource, WeightSpec,
    },
    packed::{Append, KEPT_ALIGNMENT, KeptBytes, KeptWeights, PackedDigest, PackedFile},
};

use super::{
    BackendError, Loading,
    streaming::{Experts, PoolId, PoolSpec, Streamer, Unit, UnitId},
};
use crate::backend::memory::probe;

/// Weights that are packed as one matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Matrices stacked by rows.
    Stack(Vec<WeightId>),
    /// Gate and up in turn.
    Gated(WeightId, WeightId),
    /// A norm's gain, taps, a router's bias, or biases, one after the other.
    Vector(Vec<WeightId>),
}

impl Key {
    fn weights(&self) -> Vec<WeightId> {
        match self {
            Self::Stack(weights) | Self::Vector(weights) => weights.clone(),
            Self::Gated(gate, up) => vec![*gate, *up],
        }
    }

    /// Bytes of each of its weights, as the source has or makes them.
    fn stored<'s>(&self, source: &'s dyn WeightSource) -> Vec<Cow<'s, [u8]>> {
        self.weights().into_iter().map(|weight| source.bytes(weight)).collect()
    }

    /// Bytes of a matrix when it is packed.
    fn packed_bytes(&self, specs: &[WeightSpec]) -> usize {
        let of = |ids: &[WeightId]| {
            let rows = ids.iter().map(|id| specs[id.0 as usize].rows).sum();
            let WeightSpec { format, columns, .. } = specs[ids[0].0 as usize];
            cpu::packed_bytes(format, rows, columns)
        };
        match self {
            Self::Stack(ids) => of(ids),
            Self::Gated(gate, up) => of(&[*gate]) + of(&[*up]),
            Self::Vector(_) => unreachable!("vectors are not packed"),
        }
    }
}

/// Number of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixId(usize);

/// Number of a gain, of taps or of biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VectorId(usize);

/// A matrix that is not packed: its rows are read where the model's files have them.
#[derive(Clone, Debug)]
pub(super) struct MappedRows {
    bytes: SharedBytes,
    spec: WeightSpec,
}

impl MappedRows {
    fn new(weight: WeightId, specs: &[WeightSpec], source: &dyn WeightSource) -> Result<Self, BackendError> {
        let (spec, bytes) = (specs[weight.0 as usize].clone(), source.shared(weight));
        crate::backend::matrix(&spec, bytes.as_ref())?;
        Ok(Self { bytes, spec })
    }

    /// The matrix.
    pub(super) fn matrix(&self) -> Matrix<'_> {
        crate::backend::matrix(&self.spec, self.bytes.as_ref()).expect("checked when it was made")
    }
}

/// Packed matrices and vectors, found by what is packed together.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedWeights {
    places: BTreeMap<Key, usize>,
    matrices: Vec<Arc<PackedLinear>>,
    vectors: Vec<Arc<[f32]>>,
    mapped: BTreeMap<WeightId, MappedRows>,
    streamed: Streamed,
}

/// The matrices that are read from a file: of those that were packed first.
#[derive(Clone, Debug, Default)]
struct Streamed {
    /// Those that every forward reads, by their numbers.
    units: BTreeMap<usize, UnitId>,
    streamer: Option<Arc<Streamer>>,
    /// Experts that share places, by their numbers.
    pools: BTreeMap<usize, PoolId>,
    experts: Option<Arc<Experts>>,
    /// Of the buffer and of places.
    bytes: usize,
}

impl PackedWeights {
    /// Packs everything that a step of the programs, all of one graph, reads and that is not packed yet, on `threads`
    /// threads. What is packed keeps its number.
    pub(super) fn pack(
        &mut self,
        programs: &[Program],
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<(), BackendError> {
        let Some(Program { weights: specs, .. }) = programs.first() else { return Ok(()) };
        let mut seen = BTreeSet::new();
        let steps = || programs.iter().flat_map(|p| &p.steps);
        for weight in steps().filter_map(|step| mapped_by(&step.op, specs)) {
            if let Entry::Vacant(place) = self.mapped.entry(weight) {
                place.insert(MappedRows::new(weight, specs, loading.weights)?);
                loading.note(&[weight]);
            }
        }
        let keys: Vec<Key> = steps()
            .filter(|step| mapped_by(&step.op, specs).is_none())
            .flat_map(|step| keys_of(&step.op))
            .filter(|key| !self.places.contains_key(key) && seen.insert(key.clone()))
            .collect();
        if keys.is_empty() {
            return Ok(());
        }
        let is_first = self.places.is_empty();
        let (vectors, matrices): (Vec<Key>, Vec<Key>) =
            keys.into_iter().partition(|key| matches!(key, Key::Vector(_)));
        for key in vectors {
            let vector = crate::backend::vector(&key.weights(), specs, loading.weights)?;
            loading.note(&key.weights());
            self.places.insert(key, self.vectors.len());
            self.vectors.push(vector.into());
        }
        let packed = match is_first {
            true => self.pack_first(&matrices, &programs[0], loading, threads)?,
            // Heads, substitutes and drafters: made by their sources, or small.
            false => {
                let packed = one_by_one(&matrices, specs, loading, threads)?;
                packed.into_iter().map(Arc::new).collect()
            }
        };
        for (key, matrix) in matrices.into_iter().zip(packed) {
            self.places.insert(key, self.matrices.len());
            self.matrices.push(matrix);
        }
        Ok(())
    }

    /// Packs the matrices of a model together, or takes them from where they were kept; streams those that are to be.
    fn pack_first(
        &mut self,
        matrices: &[Key],
        program: &Program,
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<Vec<Arc<PackedLinear>>, BackendError> {
        let specs = &program.weights[..];
        let stored: Vec<_> = matrices.iter().map(|key| key.stored(loading.weights)).collect();
        let packings = matrices.iter().zip(&stored).map(|(key, stored)| packing_of(key, specs, stored));
        let packings = packings.collect::<Result<Vec<_>, _>>()?;
        let note = |i: usize| loading.note(&matrices[i].weights());
        let digest = digest_of(matrices, specs, &packings);
        let residence = |key: &Key| specs[key.weights()[0].0 as usize].residence;
        let residences: Vec<Residence> = matrices.iter().map(residence).collect();
        if !residences.iter().any(|residence| residence.is_streamed()) {
            let packed = kept_or_packed(packings, &digest, loading.kept, threads, &note)?;
            return Ok(packed.into_iter().map(Arc::new).collect());
        }
        let kept = loading.kept.ok_or_else(|| BackendError::NoStream {
            reason: "no folder was given to keep packed weights in; give one".to_owned(),
        })?;
        let numbers = matrices.iter().enumerate().map(|(number, key)| (key, number)).collect();
        let pools = pools_of(program, &numbers);
        let (packed, streamed) = stream(packings, (&residences, &pools), (&digest, kept), threads, &note)?;
        self.streamed = streamed;
        Ok(packed)
    }

    /// What streams matrices, if any are.
    pub(super) fn streamer(&self) -> Option<&Arc<Streamer>> {
        self.streamed.streamer.as_ref()
    }

    /// What reads experts that share places, if any do.
    pub(super) fn experts(&self) -> Option<&Arc<Experts>> {
        self.streamed.experts.as_ref()
    }

    /// What went wrong with reading, if something did.
    pub(super) fn failure(&self) -> Option<&BackendError> {
        let of_streamer = self.streamer().and_then(|streamer| streamer.failure());
        of_streamer.or_else(|| self.experts()?.failure())
    }

    /// The number of the pool of an expert's matrix, if it has no place of its own.
    pub(super) fn pool(&self, id: MatrixId) -> Option<PoolId> {
        self.streamed.pools.get(&id.0).copied()
    }

    /// The number of a matrix among those that are streamed, if it is.
    pub(super) fn unit(&self, id: MatrixId) -> Option<UnitId> {
        self.streamed.units.get(&id.0).copied()
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

    /// A matrix that is not packed, if it is none that is.
    pub(super) fn mapped(&self, weight: WeightId) -> Option<&MappedRows> {
        self.mapped.get(&weight)
    }

    pub(super) fn matrix(&self, id: MatrixId) -> &PackedLinear {
        &self.matrices[id.0]
    }

    /// All matrices in memory, each once.
    pub(super) fn resident(&self) -> impl Iterator<Item = &PackedLinear> {
        let Streamed { units, pools, .. } = &self.streamed;
        let is_resident = |place: &usize| !units.contains_key(place) && !pools.contains_key(place);
        (0..self.matrices.len()).filter(is_resident).map(|place| &*self.matrices[place])
    }

    pub(super) fn vector(&self, id: VectorId) -> &[f32] {
        &self.vectors[id.0]
    }

    pub(super) fn resident_bytes(&self) -> usize {
        let vectors: usize = self.vectors.iter().map(|v| v.len() * size_of::<f32>()).sum();
        self.resident().map(PackedLinear::resident_bytes).sum::<usize>() + vectors + self.streamed.bytes
    }
}

/// The matrix that an op reads rows of in the model's files.
fn mapped_by(op: &Op, specs: &[WeightSpec]) -> Option<WeightId> {
    let OpWeights::Rows(weight) = op.weights() else { return None };
    (specs[weight.0 as usize].residence == Residence::Mapped).then_some(weight)
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
        OpWeights::Gain(Norm { weight, .. }) => vec![Key::Vector(vec![weight])],
        OpWeights::Vectors(weights) => weights.iter().map(|weight| Key::Vector(vec![*weight])).collect(),
        OpWeights::Stack { weights, biases, norm } => {
            with_vectors(Key::Stack(weights.to_vec()), biases, norm)
        }
        OpWeights::Gated { gate, up, norm } => with_vectors(Key::Gated(gate, up), &[], norm),
        OpWeights::Experts { experts, biases } => {
            let biases = (!biases.is_empty()).then(|| Key::Vector(biases.to_vec()));
            experts.iter().map(|expert| Key::Stack(vec![*expert])).chain(biases).collect()
        }
    }
}

/// How the matrices of a key, whose bytes are `stored`, are packed.
fn packing_of<'a>(
    key: &Key,
    specs: &[WeightSpec],
    stored: &'a [Cow<'_, [u8]>],
) -> Result<Packing<'a>, BackendError> {
    let ids = key.weights();
    let matrix =
        |(id, bytes): (&WeightId, &'a Cow<'_, [u8]>)| crate::backend::matrix(&specs[id.0 as usize], bytes);
    let parts = ids.iter().zip(stored).map(matrix).collect::<Result<Vec<_>, _>>()?;
    let packing = match key {
        Key::Stack(_) => Packing::stack(&parts),
        Key::Gated(..) => Packing::gated(&parts[0], &parts[1]),
        Key::Vector(_) => unreachable!("vectors are not packed"),
    };
    let refused = |reason: PackError| BackendError::Weight {
        name: specs[ids[0].0 as usize].name.clone(),
        reason: reason.to_string(),
    };
    packing.map_err(refused)
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
            let WeightSpec { name, elements, format, rows, columns, offset: _, residence: _ } =
                &specs[weight.0 as usize];
            field(format!("{name} {format} [{rows}, {columns}]{}", elements.named(*columns)));
        }
    }
    *hasher.finalize().as_bytes()
}

/// Matrices as they were kept, or packed and kept.
fn kept_or_packed(
    packings: Vec<Packing<'_>>,
    digest: &PackedDigest,
    folder: Option<&KeptWeights>,
    threads: usize,
    note: &(dyn Fn(usize) + Sync),
) -> Result<Vec<PackedLinear>, BackendError> {
    if let Some(kept) = folder.and_then(|folder| folder.kept(digest)) {
        (0..packings.len()).for_each(note);
        return Ok(from_kept(packings, &kept));
    }
    let packed = on_threads(packings, threads, note)?;
    if let Some(folder) = folder {
        let sizes: Vec<usize> = packed.iter().map(|matrix| matrix.bytes().len()).collect();
        folder.keep(digest, &sizes, &mut |part, append| append(packed[part].bytes()));
    }
    Ok(packed)
}

/// The experts of a product that share places.
struct Pool {
    /// Numbers of their matrices.
    matrices: Vec<usize>,
    of_each: usize,
    /// Matrices that have a place at a time.
    places: usize,
    /// The pool of the product that follows by the same routes.
    next: Option<PoolId>,
}

/// The pools of a program, in the order of use.
fn pools_of(program: &Program, numbers: &BTreeMap<&Key, usize>) -> Vec<Pool> {
    let routes = |step: &Step| step.operands[1].region().map(|routes| routes.value);
    let (mut pools, mut before): (Vec<Pool>, Option<_>) = (Vec::new(), None);
    for step in &program.steps {
        let OpWeights::Experts { experts, biases: _ } = step.op.weights() else { continue };
        let Residence::Pooled { places } = program.weights[experts[0].0 as usize].residence else { continue };
        let number = |expert: &WeightId| numbers[&Key::Stack(vec![*expert])];
        let of_each = if matches!(step.op, Op::RoutedGated { .. }) { 2 } else { 1 };
        let next = PoolId(pools.len());
        if let Some(last) = pools.last_mut().filter(|_| before == Some(routes(step))) {
            last.next = Some(next);
        }
        before = Some(routes(step));
        let matrices: Vec<usize> = experts.iter().map(number).collect();
        let places = (places as usize * of_each).min(matrices.len());
        pools.push(Pool { matrices, of_each, places, next: None });
    }
    pools
}

/// Matrices of which some are read from the file that keeps all; it is made first if there is none.
fn stream(
    packings: Vec<Packing<'_>>,
    (residences, pools): (&[Residence], &[Pool]),
    (digest, folder): (&PackedDigest, &KeptWeights),
    threads: usize,
    note: &(dyn Fn(usize) + Sync),
) -> Result<(Vec<Arc<PackedLinear>>, Streamed), BackendError> {
    let sizes: Vec<usize> = packings.iter().map(Packing::bytes).collect();
    let mut pack = |part: usize, append: &mut Append<'_>| {
        let packed = on_threads(vec![packings[part].clone()], threads, &|_| ()).map_err(io::Error::other)?;
        packed.iter().try_for_each(|matrix| append(matrix.bytes()))
    };
    let file = folder.file(digest, &sizes, &mut pack).map_err(|reason| BackendError::NoStream { reason })?;
    let file = Arc::new(file);
    let starts = sizes.iter().scan(0, |end, bytes| {
        let start = *end;
        *end += bytes.next_multiple_of(KEPT_ALIGNMENT) as u64;
        Some(start)
    });
    let starts: Vec<u64> = starts.collect();
    let numbers = |wanted: Residence| (0..sizes.len()).filter(move |number| residences[*number] == wanted);
    let resident: Vec<usize> = numbers(Residence::Resident).collect();
    let of_resident = resident.iter().map(|number| packings[*number].clone()).collect();
    let of_resident = on_threads(of_resident, threads, &|place| note(resident[place]))?;
    let mut packed: BTreeMap<usize, Arc<PackedLinear>> =
        resident.iter().copied().zip(of_resident.into_iter().map(Arc::new)).collect();
    let mut streamed = Streamed::default();
    let units: Vec<usize> = numbers(Residence::Streamed).collect();
    if !units.is_empty() {
        packed.extend(streamed.add_units(&file, (&packings, &starts), &units)?);
    }
    if !pools.is_empty() {
        packed.extend(streamed.add_pools(&file, (&packings, &starts), pools)?);
    }
    (0..sizes.len()).filter(|number| residences[*number].is_streamed()).for_each(note);
    Ok((packed.into_values().collect(), streamed))
}

/// Memory that weights are read into.
fn read_into(bytes: usize, what: &'static str) -> Result<Arc<cpu::Staging>, BackendError> {
    cpu::Staging::new(bytes).map(Arc::new).ok_or(BackendError::Memory { what, bytes })
}

/// Matrices by their numbers.
type Numbered = Vec<(usize, Arc<PackedLinear>)>;

impl Streamed {
    /// Streams the matrices of these numbers, which begin at `starts` of the file.
    fn add_units(
        &mut self,
        file: &Arc<PackedFile>,
        (packings, starts): (&[Packing<'_>], &[u64]),
        numbers: &[usize],
    ) -> Result<Numbered, BackendError> {
        let unit = |number: &usize| Unit { start: starts[*number], bytes: packings[*number].bytes() };
        let units: Vec<Unit> = numbers.iter().map(unit).collect();
        let sizes: Vec<usize> = units.iter().map(|unit| unit.bytes).collect();
        let staging = Staging::of(&sizes);
        let memory = read_into(staging.bytes, "the buffer that weights are streamed through")?;
        let matrix = |(number, place): (&usize, &StagingPlace)| {
            // SAFETY: products read the matrix between its delivery and its release only, and readers write it at other
            // times only.
            let matrix = unsafe { packings[*number].clone().staged(&memory, place.at.start) };
            (*number, Arc::new(matrix))
        };
        let matrices = numbers.iter().zip(&staging.places).map(matrix).collect();
        self.units = numbers.iter().copied().zip((0..).map(UnitId)).collect();
        self.bytes += staging.bytes;
        self.streamer = Some(Arc::new(Streamer::new(Arc::clone(file), &units, &staging, memory)?));
        Ok(matrices)
    }

    /// Reads experts when rows use them. What a number of an expert names is a matrix of its shape.
    fn add_pools(
        &mut self,
        file: &Arc<PackedFile>,
        (packings, starts): (&[Packing<'_>], &[u64]),
        pools: &[Pool],
    ) -> Result<Numbered, BackendError> {
        let place_bytes = |pool: &Pool| packings[pool.matrices[0]].bytes().next_multiple_of(PAGE);
        let bytes = pools.iter().map(|pool| pool.places * place_bytes(pool)).sum();
        let memory = read_into(bytes, "the places that experts share")?;
        let (mut at, mut matrices, mut specs) = (0, Vec::new(), Vec::new());
        for (id, pool) in pools.iter().enumerate() {
            let first = &packings[pool.matrices[0]];
            let place = |place: usize| {
                let at = at + place * place_bytes(pool);
                // SAFETY: products read a matrix between the end of its reading and their passing it only, and readers
                // write it at other times only.
                (at, Arc::new(unsafe { first.clone().staged(&memory, at) }))
            };
            let places: Vec<_> = (0..pool.places).map(place).collect();
            at += pool.places * place_bytes(pool);
            self.pools.extend(pool.matrices.iter().map(|number| (*number, PoolId(id))));
            matrices.extend(pool.matrices.iter().map(|number| (*number, Arc::clone(&places[0].1))));
            specs.push(PoolSpec {
                starts: pool.matrices.iter().map(|number| starts[*number]).collect(),
                bytes: first.bytes(),
                of_each: pool.of_each,
                places,
                next: pool.next,
            });
        }
        self.bytes += bytes;
        self.experts = Some(Arc::new(Experts::new(Arc::clone(file), specs, memory)?));
        Ok(matrices)
    }
}

/// Matrices where they were kept, as [`KeptWeights::keep`] says.
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

/// Bytes of packed weights that a thread takes at a time: few enough that all threads end at about the same time.
const PIECE_BYTES: usize = 1 << 20;

/// One allocation for matrices of these bytes, in the order of use, one after the other.
fn reserve(sizes: &[usize]) -> Result<Vec<Reserved>, BackendError> {
    probe(sizes.iter().sum(), "the weights")?;
    Ok(Reserved::together(sizes))
}

/// Packs matrices one after the other, as [`on_threads`] does them together: what a source makes of one is dropped
/// before the next is made.
fn one_by_one(
    keys: &[Key],
    specs: &[WeightSpec],
    loading: &Loading<'_>,
    threads: usize,
) -> Result<Vec<PackedLinear>, BackendError> {
    let sizes: Vec<usize> = keys.iter().map(|key| key.packed_bytes(specs)).collect();
    let mut packed = Vec::with_capacity(keys.len());
    for (key, place) in keys.iter().zip(reserve(&sizes)?) {
        let stored = key.stored(loading.weights);
        let packing = packing_of(key, specs, &stored)?;
        let note = |_| loading.note(&key.weights());
        packed.extend(into_places(vec![packing], vec![place], threads, &note)?);
    }
    Ok(packed)
}

/// Packs matrices together into one allocation.
fn on_threads(
    packings: Vec<Packing<'_>>,
    threads: usize,
    note: &(dyn Fn(usize) + Sync),
) -> Result<Vec<PackedLinear>, BackendError> {
    let sizes: Vec<usize> = packings.iter().map(Packing::bytes).collect();
    into_places(packings, reserve(&sizes)?, threads, note)
}

/// Packs each matrix into its place. All threads take pieces from one queue; `note` is told of each matrix when the
/// last of its pieces is written.
fn into_places(
    packings: Vec<Packing<'_>>,
    places: Vec<Reserved>,
    threads: usize,
    note: &(dyn Fn(usize) + Sync),
) -> Result<Vec<PackedLinear>, BackendError> {
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
