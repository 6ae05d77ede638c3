//! One request's state on the CPU, and the walk over a program's steps.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use ygg_kernels::{
    Attention, ConvLayer, KvLayer, Rope, RopeTable, Routes, Rows, RowsMut, StateLayer,
    cpu::{FoundLayout, Kernels, Tuning},
};

use crate::ir::{Id, IdVec, OutputId, Program, ProgramId, Region, RopeId, RowInputs, StepId};

use super::{
    super::{
        BackendError, Capabilities, Exercise, Instruments, Moment, Observer, Replay, ReplayOptions,
        SlotMoves,
        memory::{Arena, Block, KvCache},
    },
    CpuExecutables,
    packed_weights::PackedWeights,
    pool::{Pool, Worker, Workers},
    step::CpuStep,
    streaming::{self, PoolId},
};

/// Arena, cache, scratch and threads of one request.
#[derive(Debug)]
pub(super) struct CpuReplay {
    executables: Arc<CpuExecutables>,
    arena: Arena,
    cache: KvCache,
    scratch: Block,
    scratch_bytes: usize,
    /// What threads keep of a step until they join it.
    shared: Block,
    ropes: Vec<RopeTable>,
    all_rows: Vec<u32>,
    /// Of every step; steps other than linears have the default.
    tunings: IdVec<ProgramId, IdVec<StepId, Tuning>>,
    pool: Arc<Pool>,
}

/// What eager execution runs steps by.
#[cfg(feature = "planner")]
impl CpuReplay {
    pub(super) fn executables(&self) -> Arc<CpuExecutables> {
        Arc::clone(&self.executables)
    }

    pub(super) fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// The tuning of a step of a program.
    pub(super) fn tuning(&self, program: ProgramId, step: StepId) -> Tuning {
        self.tunings[program][step]
    }
}

impl CpuReplay {
    pub(super) fn new(
        executables: Arc<CpuExecutables>,
        options: &ReplayOptions,
    ) -> Result<Self, BackendError> {
        let arena = Arena::new(executables.arena_bytes())?;
        Self::with_arena(executables, options, arena)
    }

    /// Like `new`, over an arena of another kind.
    pub(super) fn with_arena(
        executables: Arc<CpuExecutables>,
        options: &ReplayOptions,
        arena: Arena,
    ) -> Result<Self, BackendError> {
        let first = &executables.programs[ProgramId::FIRST];
        let cache = KvCache::new(first.kv, executables.kv_format, options.layout)?;
        let scratch_bytes = executables.scratch_bytes();
        let scratch = Block::zeroed(scratch_bytes * options.threads, "the threads' scratch")?;
        let shared = Block::zeroed(executables.shared_bytes(options), "what threads join")?;
        let ropes = crate::backend::rope_tables(first, options.layout.context);
        let widest = executables.programs.iter().map(|p| p.binding.width).max().unwrap_or(1);
        let all_rows = (0..u32::try_from(widest).expect("widths are small")).collect();
        let pool = match &options.workers {
            Some(Workers(pool)) => {
                assert_eq!(pool.threads(), options.threads, "scratch for each of the workers that are lent");
                Arc::clone(pool)
            }
            None => Pool::new(options.threads, options.pinning)
                .map(Arc::new)
                .map_err(|source| BackendError::Threads { threads: options.threads, source })?,
        };
        let defaults = |steps: &IdVec<StepId, CpuStep>| steps.iter().map(|_| Tuning::DEFAULT).collect();
        let tunings = executables.steps.iter().map(defaults).collect();
        Ok(Self { executables, arena, cache, scratch, scratch_bytes, shared, ropes, all_rows, tunings, pool })
    }

    /// What the workers share, and the workers.
    pub(super) fn forward<'a>(
        &'a mut self,
        program: ProgramId,
        inputs: &'a RowInputs,
    ) -> (Forward<'a>, &'a Pool) {
        let executables = &*self.executables;
        let streams = executables.streams[program];
        let experts = executables.weights.experts().filter(|_| streams.experts);
        let forward = Forward {
            stream: executables.weights.streamer().filter(|_| streams.units).map(|streamer| streamer.begin()),
            calls: experts.map(|experts| experts.begin(self.pool.threads())),
            kernels: executables.kernels,
            weights: &executables.weights,
            inputs,
            program: &executables.programs[program],
            steps: &executables.steps[program],
            tunings: &self.tunings[program],
            arena: &self.arena,
            cache: &self.cache,
            scratch: &self.scratch,
            scratch_bytes: self.scratch_bytes,
            shared: &self.shared,
            ropes: &self.ropes,
            all_rows: &self.all_rows,
        };
        (forward, &self.pool)
    }
}

/// What the workers of one replay share. Its views are safe to make here because of three promises: the arena's law (a
/// step's result overlaps nothing it reads, but for residuals in place, which are only written), the shares of a step
/// (disjoint tiles, rows or units), and the barrier between steps, which a step that merges what all have found has
/// once more inside.
#[derive(Debug)]
pub(super) struct Forward<'a> {
    pub(super) kernels: Kernels,
    pub(super) weights: &'a PackedWeights,
    pub(super) inputs: &'a RowInputs,
    program: &'a Program,
    steps: &'a IdVec<StepId, CpuStep>,
    /// The turn of a forward that reads streamed weights.
    stream: Option<streaming::Forward<'a>>,
    /// The turn of a forward that reads experts.
    calls: Option<streaming::Calls<'a>>,
    tunings: &'a IdVec<StepId, Tuning>,
    arena: &'a Arena,
    cache: &'a KvCache,
    scratch: &'a Block,
    scratch_bytes: usize,
    shared: &'a Block,
    ropes: &'a [RopeTable],
    all_rows: &'a [u32],
}

impl<'a> Forward<'a> {
    pub(super) fn read(&self, region: &Region) -> Rows<'a> {
        // SAFETY: no worker writes what a step reads, by the arena's law and the barrier.
        unsafe { self.arena.rows(region) }
    }

    pub(super) fn write(&self, region: &Region) -> RowsMut<'a> {
        // SAFETY: workers write disjoint shares of the region and none reads it, by the arena's law.
        unsafe { self.arena.rows_mut(region) }
    }

    /// A row that is in this worker's share of the step, to be changed once it is written.
    pub(super) fn own_row(&self, region: &Region, row: usize) -> &'a mut [f32] {
        // SAFETY: no other worker has the row in its share, and none reads the region within the step, by the arena's
        // law.
        unsafe { self.arena.row_mut(region, row) }
    }

    pub(super) fn layer(&self, layer: usize) -> KvLayer<'a> {
        // SAFETY: appends and reads of a layer are different steps; units of an append are disjoint, but for padding
        // rows, which are given no slot.
        unsafe { self.cache.layer(layer) }
    }

    pub(super) fn conv(&self, layer: usize) -> ConvLayer<'a> {
        // SAFETY: units of a convolution are disjoint channels, and no other step touches the layer.
        unsafe { self.cache.conv(layer) }
    }

    pub(super) fn recurrence(&self, layer: usize) -> StateLayer<'a> {
        // SAFETY: units of a recurrence are disjoint heads, and no other step touches the layer.
        unsafe { self.cache.recurrence(layer) }
    }

    pub(super) fn scratch(&self, worker: Worker<'_>) -> &'a mut [u8] {
        // SAFETY: a worker uses its own part only, and one step at a time.
        unsafe { self.scratch.part(worker.index, self.scratch_bytes) }
    }

    /// Where a worker keeps the candidates it finds, until all have found theirs.
    pub(super) fn found_part(&self, worker: Worker<'_>, layout: &FoundLayout) -> &'a mut [u8] {
        // SAFETY: a worker writes its own part only, and nobody reads it until all workers have met after that.
        unsafe { self.shared.part(worker.index, layout.part_bytes()) }
    }

    /// The candidates that all workers found, once they have met.
    pub(super) fn found(&self, layout: &FoundLayout) -> &'a [u8] {
        // SAFETY: workers write their parts before they meet, and again only after the barrier at the step's end.
        unsafe { self.shared.bytes(layout.bytes()) }
    }

    /// Where workers keep the partial results of attention.
    pub(super) fn write_partials(&self, attention: &Attention<'_>) -> RowsMut<'a> {
        let (rows, columns) = (attention.partial_rows(), attention.partial_columns());
        // SAFETY: inside the block, initialised; workers write disjoint items, and nobody reads them until all have
        // met.
        unsafe { RowsMut::from_raw(self.shared.start(4 * rows * columns).cast(), rows, columns, columns) }
    }

    /// The partial results of all workers, once they have met.
    pub(super) fn partials(&self, attention: &Attention<'_>) -> Rows<'a> {
        let (rows, columns) = (attention.partial_rows(), attention.partial_columns());
        // SAFETY: inside the block, initialised; workers write them again only after the barrier at the step's end.
        unsafe { Rows::from_raw(self.shared.start(4 * rows * columns).cast(), rows, columns, columns) }
    }

    pub(super) fn rope(&self, id: RopeId) -> Rope<'a> {
        let pairing = self.program.ropes[id.0 as usize].pairing;
        Rope { table: &self.ropes[id.0 as usize], pairing }
    }

    pub(super) fn head_dim(&self, id: RopeId) -> usize {
        self.program.ropes[id.0 as usize].head_dim
    }

    /// What a worker takes of the experts that a step has called, if they share places.
    pub(super) fn called(&self, pool: Option<PoolId>) -> Option<streaming::Called<'_>> {
        pool.map(|pool| self.calls.as_ref().expect("a forward that multiplies by experts").called(pool))
    }

    /// Waits for the streamed matrix of a step, if it has one: whether there was one, or `None` if it did not come, to
    /// all workers alike. Then they end the forward. Experts are called here, and waited for by the products.
    fn fetch(&self, step: &CpuStep, worker: Worker<'_>) -> Option<bool> {
        if let Some((calls, (pool, routes))) = self.calls.as_ref().zip(step.pool()) {
            if worker.index == 0 {
                calls.call(pool, Routes::new(self.read(routes)));
            }
            worker.wait();
            return (!calls.have_ended()).then_some(false);
        }
        let Some((stream, unit)) = self.stream.as_ref().zip(step.unit(self.weights)) else {
            return Some(false);
        };
        if worker.index == 0 {
            stream.skip_to(unit);
        }
        stream.wait(unit).then_some(true)
    }

    /// Gives the place of a step's streamed matrix back, once all workers have met after the step.
    fn release(&self, step: &CpuStep, worker: Worker<'_>) {
        if worker.index == 0
            && let Some((stream, unit)) = self.stream.as_ref().zip(step.unit(self.weights))
        {
            stream.release(unit);
        }
    }

    /// The first `rows` rows, in order.
    pub(super) fn first_rows(&self, rows: usize) -> &'a [u32] {
        &self.all_rows[..rows]
    }
}

impl Replay for CpuReplay {
    fn failure(&self) -> Option<&BackendError> {
        self.executables.weights.failure()
    }

    fn begin(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        let (forward, pool) = self.forward(program, inputs);
        pool.run(&|worker: Worker<'_>| {
            for (step, tuning) in forward.steps.iter().zip(forward.tunings.iter()) {
                if step.runs(skipped) {
                    if forward.fetch(step, worker).is_none() {
                        return;
                    }
                    step.run(&forward, *tuning, worker);
                    worker.wait();
                    forward.release(step, worker);
                }
            }
        });
    }

    fn shown(&self, program: ProgramId, output: OutputId) -> &[f32] {
        let region = &self.executables.programs[program].shown;
        // SAFETY: `&self`: no replay is running.
        unsafe { self.arena.rows(region) }.row(output.index())
    }

    fn hidden(&self, program: ProgramId, part: usize, output: OutputId) -> Option<&[f32]> {
        let region = self.executables.programs[program].rows_left(part)?;
        // SAFETY: `&self`: no replay is running.
        Some(unsafe { self.arena.rows(region) }.row(output.index()))
    }

    fn slots(&mut self) -> &mut dyn SlotMoves {
        &mut self.cache
    }
}

impl Capabilities for CpuReplay {
    fn ranks_by_noise(&self) -> bool {
        true
    }

    fn workers(&self) -> Option<Workers> {
        Some(Workers(Arc::clone(&self.pool)))
    }

    fn instruments(&mut self) -> Option<&mut dyn Instruments> {
        Some(self)
    }
}

impl Instruments for CpuReplay {
    fn replay_observed(
        &mut self,
        program: ProgramId,
        inputs: &RowInputs,
        skipped: &[bool],
        observer: Observer<'_>,
    ) {
        let (forward, pool) = self.forward(program, inputs);
        let observer = Mutex::new(observer);
        pool.run(&|worker: Worker<'_>| {
            let mut observer =
                (worker.index == 0).then(|| observer.lock().expect("only the first worker observes"));
            let mut see = |moment| {
                if let Some(observer) = &mut observer {
                    observer(moment);
                }
            };
            worker.wait();
            see(Moment::Begun);
            for (number, step) in forward.steps.pairs() {
                if step.runs(skipped) {
                    match forward.fetch(step, worker) {
                        Some(true) => see(Moment::Fetched(number)),
                        Some(false) => {}
                        None => return,
                    }
                    step.run(&forward, forward.tunings[number], worker);
                    see(Moment::ShareDone(number));
                    worker.wait();
                    forward.release(step, worker);
                    see(Moment::StepDone(number));
                }
            }
        });
    }

    fn tune(&mut self, program: ProgramId, step: StepId, tuning: Tuning) {
        assert!(self.executables.steps[program][step].is_linear(), "only linears are tuned");
        self.tunings[program][step] = tuning;
    }

    fn exercise(&mut self, exercise: Exercise) -> u64 {
        let (kernels, weights) = (self.executables.kernels, &self.executables.weights);
        let done = AtomicU64::new(0);
        self.pool.run(&|worker: Worker<'_>| {
            let amount = match exercise {
                Exercise::ReadWeights { passes } => {
                    let mut bytes = 0;
                    for matrix in (0..passes).flat_map(|_| weights.resident()) {
                        // Whole tiles, as a linear shares them.
                        let tile = matrix.bytes().len() / matrix.tiles();
                        let share = worker.share(matrix.tiles());
                        let share = &matrix.bytes()[share.start * tile..share.end * tile];
                        std::hint::black_box(kernels.read(share));
                        bytes += share.len() as u64;
                    }
                    bytes
                }
                Exercise::MultiplyAdds { arithmetic, rounds } => kernels.multiply_adds(arithmetic, rounds),
                Exercise::EmptySteps { steps } => {
                    (0..steps).for_each(|_| worker.wait());
                    if worker.index == 0 { steps } else { 0 }
                }
            };
            done.fetch_add(amount, Ordering::Relaxed);
        });
        done.into_inner()
    }

    fn poison_slots(&mut self, slots: Range<u32>, seed: u64) {
        self.cache.poison(slots, seed);
    }
}
