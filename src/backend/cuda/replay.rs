//! One request's state on a GPU: its memory, and a captured graph for every program.

use std::{ops::Range, sync::Arc};

use cudarc::driver::{CudaStream, result};
use ygg_kernels::cuda::abi::{YggMultiply, YggPoison};

use crate::ir::{Id, IdVec, OutputId, Program, ProgramId, Region, RowInputs, StepId};

use super::{
    super::{
        BackendError, Capabilities, DraftPhases, Executables, Exercise, Instruments, Moment, Observer,
        PhaseId, Replay, ReplayOptions, SlotMoves, Tuning, VerificationId, Verifications,
    },
    CudaExecutables, Way,
    alone::{multiply_launch, multiplying_threads, nothing_launch, read_launches},
    cache::Cache,
    candidates::{Decider, shows_candidates},
    capture::Graph,
    device::{DeviceBlock, Launch, PinnedBlock, check, is_busy},
    launches::{Addresses, Launches},
    layout::{InputWords, left_of},
    phase::Phase,
    places::{Places, upload_ropes},
    scratch::Scratch,
    states::{StateSizes, States},
    streaming::{Copies, StepKernels, Streamed, in_turn, put},
    verification::Verification,
};

/// The kernels of a program.
struct Kernels {
    /// None where the host launches them one by one.
    graph: Option<Graph>,
    /// Those of every step, which the graph was captured from if there is one.
    steps: IdVec<StepId, StepKernels>,
}

/// A program ready to run.
struct Ready {
    by_logits: Kernels,
    /// None of programs that show no candidates.
    by_noise: Option<Kernels>,
    words: InputWords,
    /// Address of its inputs.
    inputs_at: u64,
    /// What it leaves to be read, what is shown first: where the host reads it, and its address.
    left_at: Arc<[(Range<usize>, u64)]>,
}

impl Ready {
    fn by(&self, decider: Decider) -> &Kernels {
        match decider {
            Decider::Logits => &self.by_logits,
            Decider::Noise => self.by_noise.as_ref().expect("noise is of rows with candidates"),
        }
    }
}

/// Where what the programs of a replay share is in device memory.
pub(super) struct Ground {
    pub(super) arena: u64,
    pub(super) cache: Cache,
    pub(super) states: States,
    ropes: Vec<u64>,
    scratch: Scratch,
    pub(super) options: ReplayOptions,
}

/// Memory, stream and graphs of one request. Graphs come first: they end before what they use.
pub(super) struct CudaReplay {
    ready: IdVec<ProgramId, Ready>,
    pub(super) phases: IdVec<PhaseId, Phase>,
    pub(super) verifications: IdVec<VerificationId, Verification>,
    pub(super) ground: Ground,
    pub(super) executables: Arc<CudaExecutables>,
    pub(super) stream: Arc<CudaStream>,
    /// None where no weights are streamed.
    copies: Option<Copies>,
    pub(super) moves: Vec<Launch>,
    poison: Vec<Launch>,
    reads: Vec<(Launch, u64)>,
    multiply: Launch,
    nothing: Launch,
    /// Of no group.
    nothing_skipped: Vec<bool>,
    /// Host memory that copies in the graphs read and write.
    inputs: PinnedBlock,
    results: PinnedBlock,
    memory: DeviceBlock,
    /// The program of the forward that the host has not waited for.
    begun: Option<ProgramId>,
    /// What ended it; nothing is run after it.
    failure: Option<BackendError>,
}

impl std::fmt::Debug for CudaReplay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaReplay({} programs, {} bytes)", self.ready.len(), self.memory.bytes())
    }
}

impl CudaReplay {
    pub(super) fn new(
        executables: Arc<CudaExecutables>,
        options: &ReplayOptions,
    ) -> Result<Self, BackendError> {
        let device = Arc::clone(&executables.device);
        let (programs, kv_format) = (&executables.programs, executables.kv_format);
        let places = Places::of(programs, kv_format, options);
        let memory = DeviceBlock::new(&device, places.bytes, "a session")?;
        let stream = device.stream()?;
        let inputs = PinnedBlock::new(&device, places.input_words, "the rows of a forward")?;
        let results = PinnedBlock::new(&device, places.result_words, "the results of a forward")?;
        // Whatever is read before it is written, such as slots of the cache, is finite.
        let all = memory.at(0, places.bytes);
        // SAFETY: the whole block, which nothing uses yet.
        check("clear memory", unsafe { result::memset_d8_async(all, 0, places.bytes, stream.cu_stream()) })?;
        upload_ropes(&programs[ProgramId::FIRST], &places, &memory, options.layout.context, &stream)?;

        let start = memory.at(0, 0);
        let at = |offset: usize| start + offset as u64;
        let kv = &programs[ProgramId::FIRST].kv;
        let [kept, matrices, held, saved, walk] = places.states.map(at);
        let states = States { sizes: StateSizes::of(kv, options), kept, matrices, held, saved, walk };
        let cache = Cache::new(kv, kv_format, options, [places.cache, places.kept].map(at), &states);
        let ground = Ground {
            arena: at(places.arena),
            cache,
            states,
            ropes: places.ropes.iter().map(|offset| at(*offset)).collect(),
            scratch: Scratch {
                fragments: places.fragments.map(at),
                parts: at(places.parts),
                pieces: at(places.pieces),
                logits: at(places.logits),
                partial: places.partial.map(at),
                ranges: places.ranges.map(at),
            },
            options: options.clone(),
        };
        let streamed = executables.weights.streamed();
        let mut replay = Self {
            copies: streamed.map(|streamed| Copies::new(&device, streamed)).transpose()?,
            ready: IdVec::default(),
            phases: IdVec::default(),
            verifications: IdVec::default(),
            ground,
            moves: cache.moves(&device)?,
            poison: cache.poison(&device)?,
            reads: read_launches(&device, &executables.weights, at(places.sink))?,
            multiply: multiply_launch(&device, at(places.sink))?,
            nothing: nothing_launch(&device, at(places.sink))?,
            nothing_skipped: vec![false; programs[ProgramId::FIRST].groups as usize],
            executables: Arc::clone(&executables),
            stream,
            inputs,
            results,
            memory,
            begun: None,
            failure: None,
        };
        for program in programs.iter() {
            let words = InputWords::of(program, options);
            let inputs_at = at(places.inputs);
            let from = |(words, region): (_, &Region)| (words, at(places.arena + region.offset_bytes));
            let left_at: Arc<[_]> = left_of(program).map(from).collect();
            let mut by = |decider| {
                let steps = replay.kernels(program, decider, inputs_at)?;
                replay.captured(steps, words, &left_at, inputs_at)
            };
            let by_logits = by(Decider::Logits)?;
            let by_noise = shows_candidates(program).then(|| by(Decider::Noise)).transpose()?;
            replay.ready.push(Ready { by_logits, by_noise, words, inputs_at, left_at });
        }
        Ok(replay)
    }

    /// The kernels of a program by steps, for inputs at an address.
    pub(super) fn kernels(
        &self,
        program: &Program,
        decider: Decider,
        inputs: u64,
    ) -> Result<IdVec<StepId, StepKernels>, BackendError> {
        let weights = &self.executables.weights;
        let all = self.launches(program, decider, inputs, |launches| launches.all())?;
        let of_step = |(step, launches)| StepKernels::new(weights.unit(program, step), launches);
        Ok(all.into_iter().enumerate().map(of_step).collect())
    }

    /// What draws a token from every row of a program.
    pub(super) fn race(&self, program: ProgramId) -> Result<[Launch; 2], BackendError> {
        let inputs = self.inputs_at(program);
        let program = &self.executables.programs[program];
        self.launches(program, Decider::Noise, inputs, |launches| launches.race())
    }

    /// Some launches of a program.
    fn launches<T>(
        &self,
        program: &Program,
        decider: Decider,
        inputs: u64,
        make: impl FnOnce(Launches<'_>) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let Ground { arena, cache, states, ropes, scratch, options } = &self.ground;
        let addresses = Addresses {
            arena: *arena,
            inputs,
            words: InputWords::of(program, options),
            cache: cache.at(),
            kept: cache.kept_at(),
            states: *states,
            slots: options.layout.slots(),
            context: options.layout.context,
            ropes,
            scratch: *scratch,
        };
        let CudaExecutables { device, weights, kv_format, .. } = &*self.executables;
        make(Launches::new(device, weights, *kv_format, (program, decider), &addresses))
    }

    /// What is streamed, if anything is.
    pub(super) fn streamed(&self) -> Option<&Arc<Streamed>> {
        self.copies.as_ref().map(|copies| &copies.streamed)
    }

    /// Whether a program reads streamed weights.
    pub(super) fn streams(&self, program: ProgramId) -> bool {
        self.ready[program].by_logits.steps.iter().any(|step| step.unit.is_some())
    }

    /// Puts steps on the stream, one after the other.
    pub(super) fn put<'k>(
        &self,
        steps: impl Iterator<Item = &'k StepKernels> + Clone,
    ) -> Result<(), BackendError> {
        put(self.copies.as_ref(), steps, &self.stream)
    }

    /// Where a program reads its inputs.
    pub(super) fn inputs_at(&self, program: ProgramId) -> u64 {
        self.ready[program].inputs_at
    }

    /// Writes rows for a program that is tried.
    pub(super) fn write_rows(&mut self, words: InputWords, rows: &RowInputs) {
        words.write(rows, &self.nothing_skipped, self.inputs.words_mut());
    }

    /// Puts the kernels of a program on the stream, after the copy of what they read.
    pub(super) fn forward(&self, program: ProgramId, decider: Decider) -> Result<(), BackendError> {
        let Ready { words, inputs_at, .. } = self.ready[program];
        self.send_inputs(words.words, inputs_at)?;
        self.put(self.ready[program].by(decider).steps.iter())
    }

    /// Puts the kernels of a program that rank by logits on the stream, with others that write their rows after the
    /// copy of what else they read.
    pub(super) fn forward_of_rows_by(&self, program: ProgramId, rows: &Launch) -> Result<(), BackendError> {
        let Ready { words, inputs_at, .. } = self.ready[program];
        self.send_inputs(words.tails, inputs_at)?;
        rows.on(&self.stream)?;
        self.put(self.ready[program].by_logits.steps.iter())
    }

    /// Runs a program once on padding if any of its kernels never ran, and captures it.
    fn captured(
        &mut self,
        steps: IdVec<StepId, StepKernels>,
        words: InputWords,
        left_at: &[(Range<usize>, u64)],
        inputs_at: u64,
    ) -> Result<Kernels, BackendError> {
        self.write_rows(words, &words.padding());
        let all = |replay: &mut Self| -> Result<(), BackendError> {
            replay.send_inputs(words.words, inputs_at)?;
            replay.put(steps.iter())?;
            replay.fetch(left_at)
        };
        let streams = steps.iter().any(|step| step.unit.is_some());
        if self.executables.device.is_cold(steps.iter().flat_map(|step| &step.launches)) {
            self.try_once(streams, "run a forward", all)?;
        }
        let graph = match self.executables.way {
            Way::Graph => Some(self.capture(streams, all)?),
            Way::Eager => None,
        };
        Ok(Kernels { graph, steps })
    }

    /// Sends the first words of what the host has written.
    fn send_inputs(&self, words: usize, at: u64) -> Result<(), BackendError> {
        let words = &self.inputs.words()[..words];
        // SAFETY: inside the device's block; the host's words live as long as the graph, and are changed between
        // forwards only.
        check("send the rows", unsafe { result::memcpy_htod_async(at, words, self.stream.cu_stream()) })
    }

    /// Fetches the hidden and inner rows of a program's forward to where they are read.
    pub(super) fn fetch_hidden(&mut self, program: ProgramId) -> Result<(), BackendError> {
        let left_at = Arc::clone(&self.ready[program].left_at);
        self.fetch(&left_at[1..])
    }

    /// Fetches what lies at addresses to where the host reads it.
    fn fetch(&mut self, left: &[(Range<usize>, u64)]) -> Result<(), BackendError> {
        let stream = self.stream.cu_stream();
        left.iter().try_for_each(|(words, from)| {
            let to = &mut self.results.floats_mut()[words.clone()];
            // SAFETY: inside the device's block; the host's words are read after the stream has been waited for.
            check("fetch results", unsafe { result::memcpy_dtoh_async(to, *from, stream) })
        })
    }

    /// Writes what a verification by a program reads, once nothing reads it any more.
    pub(super) fn write_verified(&mut self, program: ProgramId, inputs: &RowInputs) {
        self.finish();
        self.ready[program].words.write(inputs, &self.nothing_skipped, self.inputs.words_mut());
    }

    /// Writes what a program reads, once nothing reads it any more.
    fn write_inputs(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        self.finish();
        let words = self.ready[program].words;
        words.write(inputs, skipped, self.inputs.words_mut());
    }

    fn launch_whole(&mut self, program: ProgramId, decider: Decider) -> Result<(), BackendError> {
        if let Some(graph) = &self.ready[program].by(decider).graph {
            return graph.launch("launch a graph");
        }
        self.executables.device.bind()?;
        self.forward(program, decider)?;
        let left_at = Arc::clone(&self.ready[program].left_at);
        self.fetch(&left_at)
    }

    fn replay_steps(
        &mut self,
        program: (ProgramId, Decider),
        skipped: &[bool],
        observer: Observer<'_>,
    ) -> Result<(), BackendError> {
        let (streamed, stream) = (self.streamed().cloned(), Arc::clone(&self.stream));
        in_turn(streamed.as_deref(), &stream, || self.observe_steps(program, skipped, observer))
    }

    fn observe_steps(
        &mut self,
        (program, decider): (ProgramId, Decider),
        skipped: &[bool],
        observer: Observer<'_>,
    ) -> Result<(), BackendError> {
        self.executables.device.bind()?;
        let executables = Arc::clone(&self.executables);
        let Ready { words, inputs_at, ref left_at, .. } = self.ready[program];
        let left_at = Arc::clone(left_at);
        self.send_inputs(words.words, inputs_at)?;
        check("send the rows", self.stream.synchronize())?;
        observer(Moment::Begun);
        for (number, step) in (0..).map(StepId::new).zip(&executables.programs()[program].steps) {
            if step.group.is_some_and(|g| skipped[g.0 as usize]) {
                continue;
            }
            let (step, stream) = (&self.ready[program].by(decider).steps[number], &self.stream);
            if let (Some(unit), Some(streamed)) = (step.unit, self.streamed()) {
                streamed.copy(unit, stream)?;
                check("copy streamed weights", stream.synchronize())?;
                observer(Moment::Fetched(number));
            }
            step.on(stream)?;
            check("run a step", self.stream.synchronize())?;
            observer(Moment::ShareDone(number));
            observer(Moment::StepDone(number));
        }
        self.fetch(&left_at)?;
        check("fetch results", self.stream.synchronize())
    }

    fn exercised(&mut self, exercise: Exercise) -> Result<u64, BackendError> {
        self.executables.device.bind()?;
        let done = match exercise {
            Exercise::ReadWeights { passes } => {
                for _ in 0..passes {
                    self.reads.iter().try_for_each(|(launch, _)| launch.on(&self.stream))?;
                }
                passes * self.reads.iter().map(|(_, bytes)| bytes).sum::<u64>()
            }
            Exercise::MultiplyAdds { arithmetic: _, rounds } => {
                let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
                // SAFETY: made with this structure.
                unsafe { self.multiply.params_mut::<YggMultiply>() }.rounds = rounds;
                self.multiply.on(&self.stream)?;
                let threads = u64::from(multiplying_threads(&self.executables.device));
                // 8 chains, a product and a sum each.
                16 * threads * u64::from(rounds)
            }
            Exercise::EmptySteps { steps } => {
                for _ in 0..steps {
                    self.nothing.on(&self.stream)?;
                }
                steps
            }
        };
        check("measure the device", self.stream.synchronize())?;
        Ok(done)
    }
}

impl CudaReplay {
    /// Does something that the device may fail in, if it never did: a first failure is remembered, and nothing is done
    /// after it.
    pub(super) fn attempt<T: Default>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, BackendError>,
    ) -> T {
        if self.failure().is_some() {
            return T::default();
        }
        work(self).unwrap_or_else(|failure| {
            self.failure = Some(failure);
            T::default()
        })
    }

    /// A row of what a program leaves as number `place`.
    fn row_left(&self, program: ProgramId, place: usize, output: OutputId) -> &[f32] {
        let region = self.executables.programs()[program].left().nth(place).expect("the program leaves it");
        let output = output.index();
        assert!(output < region.rows, "output {output} of {}", region.rows);
        let first = self.ready[program].left_at[place].0.start + output * region.row_stride;
        &self.results.floats()[first..][..region.columns]
    }

    /// After a failure: rows that can be walked, of logits or of candidates, of which there is one.
    fn show_nothing(&mut self, program: ProgramId) {
        if self.failure().is_none() {
            return;
        }
        let Region { rows, row_stride, .. } = self.executables.programs()[program].shown;
        let words = self.results.words_mut();
        words.fill(0);
        (0..rows).for_each(|row| words[row * row_stride] = 1);
    }
}

impl Replay for CudaReplay {
    fn failure(&self) -> Option<&BackendError> {
        self.failure.as_ref().or(self.executables.failure.get())
    }

    fn begin(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        self.write_inputs(program, inputs, skipped);
        self.attempt(|replay| replay.launch_whole(program, Decider::of(inputs)));
        self.begun = Some(program);
    }

    fn is_running(&self) -> bool {
        self.begun.is_some() && is_busy(&self.stream)
    }

    fn finish(&mut self) {
        let Some(program) = self.begun.take() else { return };
        self.attempt(|replay| check("run a forward", replay.stream.synchronize()));
        self.show_nothing(program);
    }

    fn shown(&self, program: ProgramId, output: OutputId) -> &[f32] {
        self.row_left(program, 0, output)
    }

    fn hidden(&self, program: ProgramId, part: usize, output: OutputId) -> Option<&[f32]> {
        let made = &self.executables.programs()[program];
        made.rows_left(part)?;
        // What is shown comes before.
        Some(self.row_left(program, part + usize::from(made.hidden.is_some()), output))
    }

    fn slots(&mut self) -> &mut dyn SlotMoves {
        self
    }
}

impl Capabilities for CudaReplay {
    fn instruments(&mut self) -> Option<&mut dyn Instruments> {
        Some(self)
    }

    fn ranks_by_noise(&self) -> bool {
        true
    }

    fn phases(&mut self) -> Option<&mut dyn DraftPhases> {
        match self.executables.way {
            Way::Graph => Some(self),
            Way::Eager => None,
        }
    }

    fn verifications(&mut self) -> Option<&mut dyn Verifications> {
        match self.executables.way {
            Way::Graph => Some(self),
            Way::Eager => None,
        }
    }
}

impl Instruments for CudaReplay {
    fn replay_observed(
        &mut self,
        program: ProgramId,
        inputs: &RowInputs,
        skipped: &[bool],
        observer: Observer<'_>,
    ) {
        self.write_inputs(program, inputs, skipped);
        self.attempt(|replay| replay.replay_steps((program, Decider::of(inputs)), skipped, observer));
        self.show_nothing(program);
    }

    fn tune(&mut self, _program: ProgramId, _step: StepId, tuning: Tuning) {
        assert_eq!(tuning, Tuning::DEFAULT, "kernels of a GPU have one tuning");
    }

    fn exercise(&mut self, exercise: Exercise) -> u64 {
        self.attempt(|replay| replay.exercised(exercise))
    }

    fn poison_slots(&mut self, slots: Range<u32>, seed: u64) {
        let slots = self.ground.cache.poisoned(slots);
        self.attempt(|replay| {
            replay.executables.device.bind()?;
            replay.poison.iter_mut().try_for_each(|poison| {
                // SAFETY: made with this structure.
                let params = unsafe { poison.params_mut::<YggPoison>() };
                (params.first, params.count, params.seed) = (slots.start, slots.end - slots.start, seed);
                poison.on(&replay.stream)
            })
        });
    }
}
