//! Eager execution, for measuring what static programs are worth: every op is run by itself, as a framework without
//! compiled programs does.
//!
//! What it includes in addition to the kernels: for each op of an unfused program the look-up of its kernel and
//! weights, a buffer for its result from the cache of freed ones, the publication of the op to all threads, their
//! return to the caller after it, and the release of results that no later op reads. What it does not include: an
//! interpreter above all that, checks of shapes, or kernels that are slower than a static program's. Bits are those of
//! every other execution.

use std::{ops::Range, sync::Arc};

use ygg_kernels::cpu::Tuning;

use crate::ir::{IdVec, OutputId, Program, ProgramId, RowInputs, Step, StepId, WeightSource};

use super::{
    super::{
        BackendError, Capabilities, Executables, Exercise, Instruments, Loading, Moment, Observer, Replay,
        ReplayOptions, SlotMoves, memory::Arena,
    },
    CpuExecutables,
    pool::{Worker, Workers},
    replay::CpuReplay,
    step::CpuStep,
};

/// Unfused programs, to be run op by op.
#[derive(Clone, Debug)]
pub(in crate::backend) struct EagerExecutables(Arc<CpuExecutables>);

impl EagerExecutables {
    /// Takes programs that no pass fused, whose values have bytes of their own.
    pub(in crate::backend) fn new(unfused: CpuExecutables) -> Self {
        Self(Arc::new(unfused))
    }
}

impl Executables for EagerExecutables {
    fn programs(&self) -> &IdVec<ProgramId, Program> {
        self.0.programs()
    }

    fn weight_bytes(&self) -> usize {
        self.0.weight_bytes()
    }

    /// An upper bound: results that no later op reads make room for others.
    fn replay_bytes(&self, options: &ReplayOptions) -> usize {
        self.0.replay_bytes(options)
    }

    fn with(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        let mut both = CpuExecutables::clone(&self.0);
        both.add(programs, &Loading::of(weights), threads)?;
        Ok(Arc::new(Self::new(both)))
    }

    fn beside(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        self.0.beside(programs, weights, threads)
    }

    fn embed(&self, token: u32, row: &mut [f32]) {
        self.0.embed(token, row);
    }

    fn open(self: Arc<Self>, options: &ReplayOptions) -> Result<Box<dyn Replay>, BackendError> {
        let dead_behind = self.0.programs().iter().map(dead_behind).collect();
        let replay = CpuReplay::with_arena(Arc::clone(&self.0), options, Arena::apart())?;
        Ok(Box::new(EagerReplay { replay, dead_behind }))
    }
}

/// For every step of a program, the offsets of the results that no later step reads.
fn dead_behind(program: &Program) -> IdVec<StepId, Vec<usize>> {
    let steps = &program.steps;
    let results: Vec<_> = steps.iter().map(|step| step.result.region()).collect();
    let mut dead = vec![Vec::new(); steps.len()];
    for (made, result) in results.iter().enumerate() {
        let Some(result) = result else { continue };
        let is_kept = program.left().any(|kept| kept.value == result.value);
        // A view names the value that it shows.
        let reads = |step: &Step| {
            step.operands.iter().filter_map(|operand| operand.region()).any(|read| read.value == result.value)
        };
        let last = (made..steps.len()).rev().find(|step| reads(&steps[*step])).unwrap_or(made);
        if !is_kept {
            dead[last].push(result.offset_bytes);
        }
    }
    dead.into_iter().collect()
}

/// One request's state, run op by op. Unlike other replays it allocates.
#[derive(Debug)]
struct EagerReplay {
    replay: CpuReplay,
    dead_behind: IdVec<ProgramId, IdVec<StepId, Vec<usize>>>,
}

impl EagerReplay {
    fn run(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool], see: &mut dyn FnMut(Moment)) {
        assert!(!skipped.contains(&true), "an unfused program has no groups to skip");
        let executables = self.replay.executables();
        self.replay.arena_mut().release_all();
        let dead_behind = &self.dead_behind[program];
        for (number, step) in dead_behind.ids().zip(&executables.programs()[program].steps) {
            if let Some(result) = step.result.region() {
                self.replay.arena_mut().claim(&result);
            }
            let op = CpuStep::resolve(step, executables.weights(), executables.programs()[program].kv);
            let tuning = self.replay.tuning(program, number);
            let (forward, pool) = self.replay.forward(program, inputs);
            pool.run(&|worker: Worker<'_>| op.run(&forward, tuning, worker));
            drop(forward);
            see(Moment::ShareDone(number));
            for offset in &dead_behind[number] {
                self.replay.arena_mut().release(*offset);
            }
            see(Moment::StepDone(number));
        }
    }
}

impl Replay for EagerReplay {
    fn failure(&self) -> Option<&BackendError> {
        None
    }

    fn begin(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        self.run(program, inputs, skipped, &mut |_| ());
    }

    fn shown(&self, program: ProgramId, output: OutputId) -> &[f32] {
        self.replay.shown(program, output)
    }

    fn hidden(&self, program: ProgramId, part: usize, output: OutputId) -> Option<&[f32]> {
        self.replay.hidden(program, part, output)
    }

    fn slots(&mut self) -> &mut dyn SlotMoves {
        self.replay.slots()
    }
}

impl Capabilities for EagerReplay {
    fn ranks_by_noise(&self) -> bool {
        true
    }

    fn workers(&self) -> Option<Workers> {
        self.replay.workers()
    }

    fn instruments(&mut self) -> Option<&mut dyn Instruments> {
        Some(self)
    }
}

impl Instruments for EagerReplay {
    fn replay_observed(
        &mut self,
        program: ProgramId,
        inputs: &RowInputs,
        skipped: &[bool],
        observer: Observer<'_>,
    ) {
        observer(Moment::Begun);
        self.run(program, inputs, skipped, observer);
    }

    fn tune(&mut self, program: ProgramId, step: StepId, tuning: Tuning) {
        self.replay.tune(program, step, tuning);
    }

    fn exercise(&mut self, exercise: Exercise) -> u64 {
        self.replay.exercise(exercise)
    }

    fn poison_slots(&mut self, slots: Range<u32>, seed: u64) {
        self.replay.poison_slots(slots, seed);
    }
}
