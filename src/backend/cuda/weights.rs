//! All weights of a model, each uploaded once for all programs, or kept in memory of the host to be streamed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cudarc::driver::{CudaStream, result};
use ygg_kernels::{
    Matrix,
    cuda::packing::{Layout, Stack},
};

use crate::{
    backend::{
        Loading,
        tier::{cuda_rows_bytes, cuda_stack_bytes, cuda_words_bytes},
    },
    ir::{HeadTokens, Norm, Op, OpWeights, Program, Residence, WeightId, WeightSource, WeightSpec},
};

use super::{
    super::BackendError,
    device::{Device, DeviceBlock, PinnedBlock, check},
    projection::{HalvesTogether, Projection},
    streaming::{Streamed, UnitId},
};
pub(super) use ygg_kernels::cuda::packing::ALIGNMENT;

/// Words of each of the two buffers that uploads pass through: one is filled while the other is copied.
const STAGING_WORDS: usize = 4 << 20;

/// Weights that are uploaded as one block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Matrices stacked by rows, packed for products; of projections, perhaps in another order.
    Stack(Vec<WeightId>, Option<HalvesTogether>),
    /// Rows as the file has them, to be embedded.
    Rows(WeightId),
    /// A norm's gain, or taps, as f32.
    Vector(WeightId),
    /// Biases, one after the other, as f32; in the order of their outputs in the stack.
    Biases(Vec<WeightId>, Option<HalvesTogether>),
    /// The tokens of a trimmed head.
    Names(Vec<u32>),
}

impl Key {
    /// The weights of the model in it.
    fn weights(&self) -> &[WeightId] {
        match self {
            Self::Stack(weights, _) | Self::Biases(weights, _) => weights,
            Self::Rows(weight) | Self::Vector(weight) => std::slice::from_ref(weight),
            Self::Names(_) => &[],
        }
    }

    /// Bytes of what it is uploaded as.
    fn bytes(&self, specs: &[WeightSpec]) -> usize {
        let spec = |id: &WeightId| &specs[id.0 as usize];
        match self {
            Self::Stack(ids, _) => {
                let WeightSpec { format, columns, .. } = *spec(&ids[0]);
                let outputs = ids.iter().map(|id| spec(id).rows).sum();
                cuda_stack_bytes(format, outputs, columns)
            }
            Self::Rows(id) => {
                let WeightSpec { format, rows, columns, .. } = *spec(id);
                cuda_rows_bytes(format, rows, columns)
            }
            Self::Vector(id) => cuda_words_bytes(spec(id).columns),
            Self::Biases(ids, _) => cuda_words_bytes(ids.iter().map(|id| spec(id).columns).sum()),
            Self::Names(tokens) => cuda_words_bytes(tokens.len()),
        }
    }

    /// Bytes of its matrices, as the source has or makes them.
    fn stored<'s>(&self, source: &'s dyn WeightSource) -> Vec<Cow<'s, [u8]>> {
        match self {
            Self::Stack(ids, _) => ids.iter().map(|id| source.bytes(*id)).collect(),
            Self::Rows(id) => vec![source.bytes(*id)],
            Self::Vector(_) | Self::Biases(..) | Self::Names(_) => Vec::new(),
        }
    }

    /// Whether it stays in memory of the host, where kernels read single rows of it.
    fn is_mapped(&self, specs: &[WeightSpec]) -> bool {
        matches!(self, Self::Rows(id) if specs[id.0 as usize].residence == Residence::Mapped)
    }

    fn is_streamed(&self, specs: &[WeightSpec]) -> bool {
        let streamed = |id: &WeightId| specs[id.0 as usize].residence == Residence::Streamed;
        matches!(self, Self::Stack(..)) && self.weights().iter().any(streamed)
    }
}

/// A packed matrix in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    pub(super) codes: u64,
    /// 0 where the layout has none.
    pub(super) scales: u64,
    pub(super) layout: Layout,
    /// `N`.
    pub(super) outputs: usize,
    /// `K`.
    pub(super) columns: usize,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Packed(Packed),
    Plain(u64),
}

impl Place {
    /// A stack whose codes are at an address, and its scales after them.
    fn of(stack: &Stack<'_>, codes: u64) -> Self {
        let (code_bytes, scale_bytes) = Part::stack_bytes(stack);
        let scales = if scale_bytes == 0 { 0 } else { codes + code_bytes as u64 };
        let (layout, outputs, columns) = (stack.layout(), stack.outputs(), stack.columns());
        Self::Packed(Packed { codes, scales, layout, outputs, columns })
    }
}

/// Weights, found by what lies together. Clones share the memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    places: BTreeMap<Key, Place>,
    blocks: Vec<Arc<DeviceBlock>>,
    /// Rows in memory of the host.
    mapped: Vec<Arc<PinnedBlock>>,
    streamed: Option<Arc<Streamed>>,
    /// The unit in which each streamed stack is.
    units: BTreeMap<Key, UnitId>,
}

impl Weights {
    /// Uploads everything that the programs, all of one graph, read and that is not there yet, packed by `threads`
    /// threads; what is streamed is packed into memory of the host.
    ///
    /// # Panics
    /// If there is more to be streamed than the first programs said.
    pub(super) fn upload(
        &mut self,
        device: &Arc<Device>,
        programs: &[Program],
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<(), BackendError> {
        let Some(Program { weights: specs, .. }) = programs.first() else { return Ok(()) };
        let mut seen = BTreeSet::new();
        let (mut keys, mut units): (Vec<Key>, Vec<Vec<Key>>) = Default::default();
        for (program, step) in programs.iter().flat_map(|p| (0..p.steps.len()).map(move |step| (p, step))) {
            let new = keys_of(program, step)
                .into_iter()
                .filter(|key| !self.places.contains_key(key) && seen.insert(key.clone()));
            let (streamed, resident): (Vec<Key>, Vec<Key>) = new.partition(|key| key.is_streamed(specs));
            keys.extend(resident);
            units.extend((!streamed.is_empty()).then_some(streamed));
        }
        if !units.is_empty() {
            self.stream(device, units, specs, loading, threads)?;
        }
        let (mapped, keys): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(|key| key.is_mapped(specs));
        for key in mapped {
            let rows = self.host_rows(device, &key, specs, loading)?;
            self.places.insert(key, rows);
        }
        let total = keys.iter().map(|key| key.bytes(specs)).sum();
        if total == 0 {
            return Ok(());
        }
        let block = DeviceBlock::new(device, total, "the weights")?;
        let mut upload = Upload::new(device, threads)?;
        let mut at = 0;
        for key in keys {
            // What a source makes of a matrix is dropped before the next is made.
            let stored = key.stored(loading.weights);
            let bytes = key.bytes(specs);
            let place =
                upload.part(&Part::of(&key, specs, &stored, loading.weights)?, block.at(at, bytes))?;
            loading.note(key.weights());
            at += bytes;
            self.places.insert(key, place);
        }
        upload.finish()?;
        self.blocks.push(Arc::new(block));
        Ok(())
    }

    /// Rows that kernels read where they are, by one address for host and device (CUDA's unified addressing): few of
    /// them are read by a forward, and all of them may be larger than the rest of the model.
    fn host_rows(
        &mut self,
        device: &Arc<Device>,
        key: &Key,
        specs: &[WeightSpec],
        loading: &Loading<'_>,
    ) -> Result<Place, BackendError> {
        let words = key.bytes(specs).div_ceil(size_of::<u32>());
        let mut block = PinnedBlock::new(device, words, "embeddings of layers")?;
        let stored = key.stored(loading.weights);
        match Part::of(key, specs, &stored, loading.weights)? {
            Part::Rows(bytes) => block.bytes_mut()[..bytes.len()].copy_from_slice(bytes),
            Part::Words(words) => block.words_mut()[..words.len()].copy_from_slice(&words),
            Part::Stack(_) => unreachable!("rows are no stack"),
        }
        loading.note(key.weights());
        let place = Place::Plain(block.words().as_ptr() as u64);
        self.mapped.push(Arc::new(block));
        Ok(place)
    }

    /// Packs what is streamed, unit by unit in the order of use.
    fn stream(
        &mut self,
        device: &Arc<Device>,
        units: Vec<Vec<Key>>,
        specs: &[WeightSpec],
        loading: &Loading<'_>,
        threads: usize,
    ) -> Result<(), BackendError> {
        assert!(self.streamed.is_none(), "the first programs multiply by all that is streamed");
        let sizes: Vec<usize> =
            units.iter().map(|unit| unit.iter().map(|key| key.bytes(specs)).sum()).collect();
        let (places, unit_of) = (&mut self.places, &mut self.units);
        let fill = |unit: UnitId, at: u64, host: &mut [u8]| {
            let (mut at, mut rest) = (at, host);
            for key in &units[unit.0] {
                let stored = key.stored(loading.weights);
                let stack = &match Part::of(key, specs, &stored, loading.weights)? {
                    Part::Stack(stack) => stack,
                    Part::Rows(_) | Part::Words(_) => unreachable!("stacks are streamed"),
                };
                let (code_bytes, scale_bytes) = Part::stack_bytes(stack);
                let (codes, after) = rest.split_at_mut(code_bytes);
                let (scales, after) = after.split_at_mut(scale_bytes);
                let (codes_of_row, scales_of_row) = stack.tile_row_bytes();
                let rows = stack.tile_rows();
                let (codes, scales) =
                    (&mut codes[..rows * codes_of_row], &mut scales[..rows * scales_of_row]);
                pack_rows(stack, 0..rows, codes, scales, threads)
                    .map_err(|source| BackendError::Threads { threads, source })?;
                loading.note(key.weights());
                places.insert(key.clone(), Place::of(stack, at));
                unit_of.insert(key.clone(), unit);
                (at, rest) = (at + (code_bytes + scale_bytes) as u64, after);
            }
            Ok(())
        };
        self.streamed = Some(Arc::new(Streamed::new(device, &sizes, fill)?));
        Ok(())
    }

    /// What is streamed, if anything is.
    pub(super) fn streamed(&self) -> Option<&Arc<Streamed>> {
        self.streamed.as_ref()
    }

    /// The streamed matrix that a step multiplies by, if it does.
    pub(super) fn unit(&self, program: &Program, step: usize) -> Option<UnitId> {
        if self.units.is_empty() {
            return None;
        }
        keys_of(program, step).iter().find_map(|key| self.units.get(key)).copied()
    }

    fn place(&self, key: &Key) -> Place {
        *self.places.get(key).expect("every step's weights were uploaded")
    }

    pub(super) fn stack(&self, weights: &[WeightId], order: Option<HalvesTogether>) -> Packed {
        match self.place(&Key::Stack(weights.to_vec(), order)) {
            Place::Packed(packed) => packed,
            Place::Plain(_) => unreachable!("stacks are packed"),
        }
    }

    /// The first matrix of experts, and bytes from one to the next.
    ///
    /// # Panics
    /// If they do not lie one after the other, as the upload of an op's keys leaves them.
    pub(super) fn experts(&self, experts: &[WeightId]) -> (Packed, usize) {
        let place = |expert: &WeightId| self.stack(std::slice::from_ref(expert), None);
        let first = place(&experts[0]);
        let (codes, scales) = first.layout.stack_bytes(first.outputs, first.columns);
        let bytes = codes + scales;
        let is_next = |(number, expert)| place(expert).codes == first.codes + (number * bytes) as u64;
        assert!(experts.iter().enumerate().all(is_next), "experts lie one after the other");
        (first, bytes)
    }

    pub(super) fn rows(&self, weight: WeightId) -> u64 {
        self.plain(&Key::Rows(weight))
    }

    pub(super) fn vector(&self, weight: WeightId) -> u64 {
        self.plain(&Key::Vector(weight))
    }

    /// 0 where there are none.
    pub(super) fn biases(&self, biases: &[WeightId], order: Option<HalvesTogether>) -> u64 {
        if biases.is_empty() { 0 } else { self.plain(&Key::Biases(biases.to_vec(), order)) }
    }

    pub(super) fn names(&self, tokens: &HeadTokens) -> u64 {
        self.plain(&Key::Names(tokens.as_slice().to_vec()))
    }

    fn plain(&self, key: &Key) -> u64 {
        match self.place(key) {
            Place::Plain(at) => at,
            Place::Packed(_) => unreachable!("only stacks are packed"),
        }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> usize {
        let buffer = self.streamed.as_ref().map_or(0, |streamed| streamed.buffer_bytes());
        self.blocks.iter().map(|block| block.bytes()).sum::<usize>() + buffer
    }

    /// Start and bytes of every block that stays on the device.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u64, usize)> {
        self.blocks.iter().map(|block| (block.at(0, block.bytes()), block.bytes()))
    }
}

fn keys_of(program: &Program, number: usize) -> Vec<Key> {
    let op = &program.steps[number].op;
    let order = Projection::of(program, number).and_then(|projection| projection.order);
    let mut keys = weight_keys(op, order);
    if let Op::Candidates { tokens: Some(tokens), .. } = op {
        keys.push(Key::Names(tokens.as_slice().to_vec()));
    }
    keys
}

fn weight_keys(op: &Op, order: Option<HalvesTogether>) -> Vec<Key> {
    let with_gain = |norm: Option<Norm>, stacks: &[&[WeightId]]| {
        let stacks = stacks.iter().map(|ids| Key::Stack(ids.to_vec(), order));
        norm.map(|n| Key::Vector(n.weight)).into_iter().chain(stacks).collect()
    };
    match op.weights() {
        OpWeights::Nothing => Vec::new(),
        OpWeights::Rows(weight) => vec![Key::Rows(weight)],
        OpWeights::Gain(Norm { weight, .. }) => vec![Key::Vector(weight)],
        OpWeights::Vectors(weights) => weights.iter().copied().map(Key::Vector).collect(),
        OpWeights::Stack { weights, biases, norm } => {
            let mut keys: Vec<Key> = with_gain(norm, &[weights]);
            keys.extend((!biases.is_empty()).then(|| Key::Biases(biases.to_vec(), order)));
            keys
        }
        OpWeights::Gated { gate, up, norm } => with_gain(norm, &[&[gate], &[up]]),
        OpWeights::Experts { experts, biases } => {
            let biases = (!biases.is_empty()).then(|| Key::Biases(biases.to_vec(), order));
            experts.iter().map(|expert| Key::Stack(vec![*expert], order)).chain(biases).collect()
        }
    }
}

/// What a key's weights are in memory of the host.
enum Part<'a> {
    Stack(Stack<'a>),
    Rows(&'a [u8]),
    /// Numbers of four bytes: of gains, taps and biases, or ids of tokens.
    Words(Vec<u32>),
}

impl<'a> Part<'a> {
    /// `stored` has the bytes of the key's matrices.
    fn of(
        key: &Key,
        specs: &[WeightSpec],
        stored: &'a [Cow<'_, [u8]>],
        source: &dyn WeightSource,
    ) -> Result<Self, BackendError> {
        let matrix = |(id, bytes): (&WeightId, &'a Cow<'_, [u8]>)| {
            crate::backend::matrix(&specs[id.0 as usize], bytes)
        };
        Ok(match key {
            Key::Stack(ids, order) => {
                let parts: Vec<Matrix<'a>> = ids.iter().zip(stored).map(matrix).collect::<Result<_, _>>()?;
                let stack = Stack::new(&parts);
                Self::Stack(match order {
                    Some(HalvesTogether { head_dim, rotated }) => stack.halves_together(*head_dim, *rotated),
                    None => stack,
                })
            }
            Key::Rows(id) => {
                let matrix = matrix((id, &stored[0]))?;
                match Layout::of_rows(matrix.format()) == matrix.format() {
                    true => Self::Rows(matrix.bytes()),
                    false => Self::of_floats(values(&matrix)),
                }
            }
            Key::Vector(id) => Self::of_floats(crate::backend::vector(&[*id], specs, source)?),
            Key::Biases(ids, order) => {
                let biases = crate::backend::vector(ids, specs, source)?;
                let from = |output| order.map_or(output, |order| order.output(output));
                Self::of_floats((0..biases.len()).map(|output| biases[from(output)]).collect())
            }
            Key::Names(tokens) => Self::Words(tokens.clone()),
        })
    }

    fn of_floats(floats: Vec<f32>) -> Self {
        Self::Words(floats.into_iter().map(f32::to_bits).collect())
    }

    /// Bytes of the codes and of the scales of a stack, each aligned.
    fn stack_bytes(stack: &Stack<'_>) -> (usize, usize) {
        stack.layout().stack_bytes(stack.outputs(), stack.columns())
    }
}

/// All elements of a matrix, row after row.
fn values(matrix: &Matrix<'_>) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows() * matrix.columns()];
    let rows = values.chunks_exact_mut(matrix.columns());
    rows.enumerate().for_each(|(n, row)| matrix.format().dequantise_row(matrix.row(n), row));
    values
}

/// Copies through two pinned buffers in turn: one is filled while the other travels.
struct Upload {
    device: Arc<Device>,
    streams: [Arc<CudaStream>; 2],
    staging: [PinnedBlock; 2],
    turn: usize,
    threads: usize,
}

impl Upload {
    fn new(device: &Arc<Device>, threads: usize) -> Result<Self, BackendError> {
        let staging = || PinnedBlock::new(device, STAGING_WORDS, "a buffer to upload weights through");
        let streams = [device.stream()?, device.stream()?];
        Ok(Self { device: Arc::clone(device), streams, staging: [staging()?, staging()?], turn: 0, threads })
    }

    fn part(&mut self, part: &Part<'_>, at: u64) -> Result<Place, BackendError> {
        match part {
            Part::Rows(bytes) => self.plain(bytes, at),
            Part::Words(words) => {
                let bytes: Vec<u8> = words.iter().flat_map(|x| x.to_le_bytes()).collect();
                self.plain(&bytes, at)
            }
            Part::Stack(stack) => self.stack(stack, at),
        }
    }

    fn plain(&mut self, bytes: &[u8], at: u64) -> Result<Place, BackendError> {
        let mut to = at;
        for chunk in bytes.chunks(STAGING_WORDS * size_of::<u32>()) {
            self.copy_split((to, to), usize::MAX, |staging, _| {
                staging[..chunk.len()].copy_from_slice(chunk);
                Ok(chunk.len())
            })?;
            to += chunk.len() as u64;
        }
        Ok(Place::Plain(at))
    }

    fn stack(&mut self, stack: &Stack<'_>, codes_at: u64) -> Result<Place, BackendError> {
        let scales_at = codes_at + Part::stack_bytes(stack).0 as u64;
        let (codes, scales) = stack.tile_row_bytes();
        let per_turn = (STAGING_WORDS * size_of::<u32>() / (codes + scales).max(1)).max(1);
        // Rows of tiles are longer than the buffer in no model that fits a device, but nothing says so.
        let longest = STAGING_WORDS * size_of::<u32>();
        if codes + scales > longest {
            let reason =
                format!("a row of 16 outputs takes {} bytes, expected at most {longest}", codes + scales);
            return Err(BackendError::Cuda { what: "upload weights", reason });
        }
        for first in (0..stack.tile_rows()).step_by(per_turn) {
            let rows = first..stack.tile_rows().min(first + per_turn);
            let code_bytes = rows.len() * codes;
            // Codes and scales of these rows travel in two copies from one buffer.
            let pack = |staging: &mut [u8], threads: usize| {
                let (to_codes, rest) = staging.split_at_mut(code_bytes);
                let to_scales = &mut rest[..rows.len() * scales];
                pack_rows(stack, rows.clone(), to_codes, to_scales, threads)
                    .map_err(|source| BackendError::Threads { threads, source })?;
                Ok(code_bytes + rows.len() * scales)
            };
            let to = (codes_at + (first * codes) as u64, scales_at + (first * scales) as u64);
            self.copy_split(to, code_bytes, pack)?;
        }
        Ok(Place::of(stack, codes_at))
    }

    /// Fills a buffer; its first `split` bytes go to the first address, the rest to the second.
    fn copy_split(
        &mut self,
        (first, second): (u64, u64),
        split: usize,
        fill: impl FnOnce(&mut [u8], usize) -> Result<usize, BackendError>,
    ) -> Result<(), BackendError> {
        self.device.bind()?;
        let turn = self.turn;
        self.turn = 1 - turn;
        check("wait for an upload", self.streams[turn].synchronize())?;
        let staging = self.staging[turn].bytes_mut();
        let filled = fill(staging, self.threads)?;
        let (head, tail) = staging[..filled].split_at(split.min(filled));
        let stream = self.streams[turn].cu_stream();
        for (to, bytes) in [(first, head), (second, tail)] {
            if !bytes.is_empty() {
                // SAFETY: the destination is inside the block of the weights; the buffer is not touched before the
                // stream has been waited for.
                check("upload weights", unsafe { result::memcpy_htod_async(to, bytes, stream) })?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), BackendError> {
        self.streams.iter().try_for_each(|stream| check("wait for an upload", stream.synchronize()))
    }
}

/// Packs rows of tiles on several threads.
///
/// # Errors
/// What the system says when it refuses a thread.
fn pack_rows(
    stack: &Stack<'_>,
    rows: std::ops::Range<usize>,
    codes: &mut [u8],
    scales: &mut [u8],
    threads: usize,
) -> std::io::Result<()> {
    let (code_bytes, scale_bytes) = stack.tile_row_bytes();
    let share = rows.len().div_ceil(threads.max(1)).max(1);
    let first = rows.start;
    std::thread::scope(|scope| {
        let mut scales = scales;
        for (i, codes) in codes.chunks_mut(share * code_bytes).enumerate() {
            let count = codes.len() / code_bytes;
            let (mine, rest) = scales.split_at_mut(count * scale_bytes);
            scales = rest;
            let mut work = move || {
                for (row, codes) in codes.chunks_exact_mut(code_bytes).enumerate() {
                    let scales = &mut mine[row * scale_bytes..][..scale_bytes];
                    stack.pack(first + i * share + row, codes, scales);
                }
            };
            if share >= rows.len() {
                work();
            } else {
                std::thread::Builder::new().spawn_scoped(scope, work)?;
            }
        }
        Ok(())
    })
}
