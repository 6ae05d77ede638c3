//! One request's state on a GPU: its memory, and a captured graph for every program.

use std::{ops::Range, sync::Arc};

use cudarc::driver::{CudaStream, result};
use ygg_kernels::cuda::abi::{YGG_MOST_WIDTH, YggMoves, YggMultiply, YggPoison};

use crate::ir::{Id, IdVec, OutputId, Program, ProgramId, Region, RowInputs, StepId};

use super::{
    super::{
        Accepted, BackendError, Capabilities, DraftPhases, Executables, Exercise, GrowingTree, Grown,
        Instruments, Moment, Observer, PhaseId, PhaseRoot, PhaseShape, Replay, ReplayOptions, Tuning,
        VerificationId, Verifications,
    },
    CudaExecutables, Way,
    alone::{multiply_launch, multiplying_threads, nothing_launch, read_launches},
    cache::Cache,
    capture::Graph,
    device::{DeviceBlock, Launch, PinnedBlock, check, is_busy},
    launches::{Addresses, Launches},
    layout::{InputWords, left_of},
    phase::Phase,
    places::{Places, upload_ropes},
    scratch::Scratch,
    streaming::{Copies, StepKernels, Streamed, in_turn, put},
    verification::{BestOf, Verification},
};

/// A program ready to run.
struct Ready {
    /// None where the host launches the kernels one by one.
    graph: Option<Graph>,
    /// The kernels of every step, which the graph was captured from if there is one.
    steps: IdVec<StepId, StepKernels>,
    words: InputWords,
    /// Address of its inputs.
    inputs_at: u64,
    /// What it leaves to be read, what is shown first: where the host reads it, and its address.
    left_at: Arc<[(Range<usize>, u64)]>,
}

/// Where what the programs of a replay share is in device memory.
pub(super) struct Ground {
    pub(super) arena: u64,
    pub(super) cache: Cache,
    ropes: Vec<u64>,
    scratch: Scratch,
    pub(super) options: ReplayOptions,
}

/// Memory, stream and graphs of one request. Graphs come first: they end before what they use.
pub(super) struct CudaReplay {
    ready: IdVec<ProgramId, Ready>,
    phases: IdVec<PhaseId, Phase>,
    verifications: IdVec<VerificationId, Verification>,
    pub(super) ground: Ground,
    pub(super) executables: Arc<CudaExecutables>,
    pub(super) stream: Arc<CudaStream>,
    /// None where no weights are streamed.
    copies: Option<Copies>,
    moves: Vec<Launch>,
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
        let in_memory = [places.cache, places.kept].map(at);
        let cache = Cache::new(&programs[ProgramId::FIRST].kv, kv_format, options, in_memory);
        let ground = Ground {
            arena: at(places.arena),
            cache,
            ropes: places.ropes.iter().map(|offset| at(*offset)).collect(),
            scratch: Scratch {
                fragments: places.fragments.map(at),
                parts: at(places.parts),
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
            let steps = replay.kernels(program, at(places.inputs))?;
            let ready = replay.ready(program, steps, words, at(places.inputs))?;
            replay.ready.push(ready);
        }
        Ok(replay)
    }

    /// The kernels of a program by steps, for inputs at an address.
    pub(super) fn kernels(
        &self,
        program: &Program,
        inputs: u64,
    ) -> Result<IdVec<StepId, StepKernels>, BackendError> {
        let Ground { arena, cache, ropes, scratch, options } = &self.ground;
        let addresses = Addresses {
            arena: *arena,
            inputs,
            words: InputWords::of(program, options),
            cache: cache.at(),
            kept: cache.kept_at(),
            slots: options.layout.slots(),
            context: options.layout.context,
            ropes,
            scratch: *scratch,
        };
        let CudaExecutables { device, weights, kv_format, .. } = &*self.executables;
        let all = Launches::new(device, weights, *kv_format, program, &addresses).all()?;
        let of_step = |(step, launches)| StepKernels::new(weights.unit(program, step), launches);
        Ok(all.into_iter().enumerate().map(of_step).collect())
    }

    /// What is streamed, if anything is.
    pub(super) fn streamed(&self) -> Option<&Arc<Streamed>> {
        self.copies.as_ref().map(|copies| &copies.streamed)
    }

    /// Whether a program reads streamed weights.
    pub(super) fn streams(&self, program: ProgramId) -> bool {
        self.ready[program].steps.iter().any(|step| step.unit.is_some())
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
    pub(super) fn forward(&self, program: ProgramId) -> Result<(), BackendError> {
        let Ready { words, inputs_at, .. } = self.ready[program];
        self.send_inputs(words.words, inputs_at)?;
        self.put(self.ready[program].steps.iter())
    }

    /// Puts the kernels of a program on the stream, with others that write their rows after the copy of what else they
    /// read.
    pub(super) fn forward_of_rows_by(&self, program: ProgramId, rows: &Launch) -> Result<(), BackendError> {
        let Ready { words, inputs_at, .. } = self.ready[program];
        self.send_inputs(words.tails, inputs_at)?;
        rows.on(&self.stream)?;
        self.put(self.ready[program].steps.iter())
    }

    /// Runs a program once on padding if any of its kernels never ran, and captures it.
    fn ready(
        &mut self,
        program: &Program,
        steps: IdVec<StepId, StepKernels>,
        words: InputWords,
        inputs_at: u64,
    ) -> Result<Ready, BackendError> {
        let arena = self.ground.arena;
        let at = |(words, region): (_, &Region)| (words, arena + region.offset_bytes as u64);
        let left_at: Arc<[_]> = left_of(program).map(at).collect();
        self.write_rows(words, &words.padding());
        let all = |replay: &mut Self| -> Result<(), BackendError> {
            replay.send_inputs(words.words, inputs_at)?;
            replay.put(steps.iter())?;
            replay.fetch(&left_at)
        };
        let streams = steps.iter().any(|step| step.unit.is_some());
        if self.executables.device.is_cold(steps.iter().flat_map(|step| &step.launches)) {
            self.try_once(streams, "run a forward", all)?;
        }
        let graph = match self.executables.way {
            Way::Graph => Some(self.capture(streams, all)?),
            Way::Eager => None,
        };
        Ok(Ready { graph, steps, words, inputs_at, left_at })
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

    /// The verification by a program, of the best nodes of a grown tree if one is named.
    fn verification(
        &self,
        program: ProgramId,
        shows_hidden: bool,
        best: Option<&BestOf>,
    ) -> Option<VerificationId> {
        let mut known = self.verifications.pairs();
        known.find_map(|(id, known)| known.is_of(program, shows_hidden, best).then_some(id))
    }

    /// Writes what a program reads, once nothing reads it any more.
    fn write_inputs(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        self.finish();
        let words = self.ready[program].words;
        words.write(inputs, skipped, self.inputs.words_mut());
    }

    fn launch_whole(&mut self, program: ProgramId) -> Result<(), BackendError> {
        if let Some(graph) = &self.ready[program].graph {
            return graph.launch("launch a graph");
        }
        self.executables.device.bind()?;
        self.forward(program)?;
        let left_at = Arc::clone(&self.ready[program].left_at);
        self.fetch(&left_at)
    }

    fn replay_steps(
        &mut self,
        program: ProgramId,
        skipped: &[bool],
        observer: Observer<'_>,
    ) -> Result<(), BackendError> {
        let (streamed, stream) = (self.streamed().cloned(), Arc::clone(&self.stream));
        in_turn(streamed.as_deref(), &stream, || self.observe_steps(program, skipped, observer))
    }

    fn observe_steps(
        &mut self,
        program: ProgramId,
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
            let (step, stream) = (&self.ready[program].steps[number], &self.stream);
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

/// What a verification accepts on a device that has failed: the root.
const NOTHING_ACCEPTED: Accepted<'static> = Accepted { rows: &[0], tokens: &[0] };
/// What a phase grows there: the root.
const NOTHING_GROWN: Grown<'static> =
    Grown { tokens: &[0], parents: &[0], ranks: &[0], scores: &[0.0], forwarded: 1 };

impl CudaReplay {
    /// Does something that the device may fail in, if it never did: a first failure is remembered, and nothing is done
    /// after it.
    fn attempt<T: Default>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, BackendError>) -> T {
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
        self.attempt(|replay| replay.launch_whole(program));
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

    fn copy_slots(&mut self, from: &[u32], first: u32) {
        self.attempt(|replay| {
            replay.executables.device.bind()?;
            let chunks = from.chunks(YGG_MOST_WIDTH as usize);
            for (chunk, first) in chunks.zip((first..).step_by(YGG_MOST_WIDTH as usize)) {
                for moves in &mut replay.moves {
                    // SAFETY: made with this structure.
                    let params = unsafe { moves.params_mut::<YggMoves>() };
                    params.first = first;
                    params.count = u32::try_from(chunk.len()).expect("few moves");
                    params.from[..chunk.len()].copy_from_slice(chunk);
                    moves.on(&replay.stream)?;
                }
            }
            Ok(())
        });
    }
}

impl Capabilities for CudaReplay {
    fn instruments(&mut self) -> Option<&mut dyn Instruments> {
        Some(self)
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
        self.attempt(|replay| replay.replay_steps(program, skipped, observer));
        self.show_nothing(program);
    }

    fn tune(&mut self, _program: ProgramId, _step: StepId, tuning: Tuning) {
        assert_eq!(tuning, Tuning::DEFAULT, "kernels of a GPU have one tuning");
    }

    fn exercise(&mut self, exercise: Exercise) -> u64 {
        self.attempt(|replay| replay.exercised(exercise))
    }

    fn poison_slots(&mut self, slots: Range<u32>, seed: u64) {
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

impl DraftPhases for CudaReplay {
    fn prepare(&mut self, shape: PhaseShape) -> Result<PhaseId, BackendError> {
        let phase = Phase::new(self, shape)?;
        Ok(self.phases.push(phase))
    }

    fn begin_growth(&mut self, phase: PhaseId, depth: usize, root: PhaseRoot<'_>, skipped: &[bool]) {
        self.finish();
        self.attempt(|replay| {
            let graph = replay.phases[phase].graph(depth, root, skipped, &replay.ground.options);
            graph.launch("launch a draft phase")?;
            check("note a draft phase", replay.phases[phase].tree().grown.record(&replay.stream))
        });
    }

    fn grown(&mut self, phase: PhaseId) -> Grown<'_> {
        self.attempt(|replay| check("run a draft phase", replay.stream.synchronize()));
        if self.failure().is_some() { NOTHING_GROWN } else { self.phases[phase].grown() }
    }

    fn growing(&self, phase: PhaseId) -> GrowingTree {
        GrowingTree(Arc::clone(self.phases[phase].tree()) as _)
    }
}

impl Verifications for CudaReplay {
    fn prepare(&mut self, program: ProgramId, shows_hidden: bool) -> Result<(), BackendError> {
        if self.verification(program, shows_hidden, None).is_none() {
            let verification = Verification::new(self, program, shows_hidden, None)?;
            self.verifications.push(verification);
        }
        Ok(())
    }

    fn prepare_grown(
        &mut self,
        program: ProgramId,
        width: usize,
        shows_hidden: bool,
        tree: &GrowingTree,
    ) -> Result<VerificationId, BackendError> {
        let best = BestOf::new(tree, width);
        if let Some(known) = self.verification(program, shows_hidden, Some(&best)) {
            return Ok(known);
        }
        let verification = Verification::new(self, program, shows_hidden, Some(best))?;
        Ok(self.verifications.push(verification))
    }

    fn verify_grown(&mut self, verification: VerificationId, inputs: &RowInputs) {
        self.finish();
        let program = self.verifications[verification].program;
        self.ready[program].words.write(inputs, &self.nothing_skipped, self.inputs.words_mut());
        self.attempt(|replay| {
            let verification = &replay.verifications[verification];
            check("wait for a tree", replay.stream.wait(verification.grown()))?;
            verification.graph().launch("launch a verification")?;
            check("run a verification", replay.stream.synchronize())
        });
    }

    fn grown_accepted(&self, verification: VerificationId) -> (&[u32], Accepted<'_>) {
        if self.failure().is_some() {
            return (&[0], NOTHING_ACCEPTED);
        }
        let verification = &self.verifications[verification];
        (verification.kept(), verification.accepted())
    }

    fn verify(&mut self, program: ProgramId, shows_hidden: bool, inputs: &RowInputs) -> Accepted<'_> {
        assert!(inputs.used() > 0, "a tree has a root");
        self.finish();
        self.ready[program].words.write(inputs, &self.nothing_skipped, self.inputs.words_mut());
        let place = self.verification(program, shows_hidden, None).expect("the program was prepared");
        self.attempt(|replay| {
            replay.verifications[place].graph().launch("launch a verification")?;
            check("run a verification", replay.stream.synchronize())
        });
        if self.failure().is_some() { NOTHING_ACCEPTED } else { self.verifications[place].accepted() }
    }
}
