//! Executables with a planted fault, for tests of the checks that must find it.

use std::{ops::Range, sync::Arc};

use crate::{
    backend::{
        BackendError, Capabilities, DraftPhases, Executables, Exercise, Instruments, Observer, Replay,
        ReplayOptions, SlotMoves, Tuning, Verifications, Workers,
    },
    ir::{Candidates, Id, IdVec, OutputId, Program, ProgramId, RowInputs, StepId, WeightSource},
};

use crate::runtime::{BLOCK_TOKENS, ExecutableSet};

/// The planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: a check must not find what is not there.
    None,
    /// Forwards of this width and wider add in another order: logits are off by the last bit.
    WidthDependentReduction(usize),
    /// Accepted paths are gathered from one slot further.
    OffByOneSlot,
    /// Of tokens with equal logits the highest id is chosen first.
    HighestIdFirst,
    /// The first sub-layer does not run, whatever the width.
    SubLayerLeftOut,
}

/// The same executables with the fault in every replay.
#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Executables>,
    fault: Fault,
}

impl Executables for Faulty {
    fn programs(&self) -> &IdVec<ProgramId, Program> {
        self.inner.programs()
    }

    fn weight_bytes(&self) -> usize {
        self.inner.weight_bytes()
    }

    fn replay_bytes(&self, options: &ReplayOptions) -> usize {
        self.inner.replay_bytes(options)
    }

    fn with(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        Ok(Arc::new(Self { inner: self.inner.with(programs, weights, threads)?, fault: self.fault }))
    }

    fn beside(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        self.inner.beside(programs, weights, threads)
    }

    fn embed(&self, token: u32, row: &mut [f32]) {
        self.inner.embed(token, row);
    }

    fn open(self: Arc<Self>, options: &ReplayOptions) -> Result<Box<dyn Replay>, BackendError> {
        let mut inner = Arc::clone(&self.inner).open(options)?;
        let block_bytes = inner.slots().moved_bytes(BLOCK_TOKENS);
        let last_slot = u32::try_from(options.layout.slots() - 1).expect("contexts are far below 2^32");
        Ok(Box::new(FaultyReplay {
            executables: self,
            inner,
            block_bytes,
            last_slot,
            shown: IdVec::default(),
        }))
    }
}

#[derive(Debug)]
struct FaultyReplay {
    executables: Arc<Faulty>,
    inner: Box<dyn Replay>,
    block_bytes: usize,
    last_slot: u32,
    /// What every output of the last replay shows.
    shown: IdVec<OutputId, Vec<f32>>,
}

impl FaultyReplay {
    fn instruments_of_inner(&mut self) -> &mut dyn Instruments {
        self.inner.instruments().expect("the backend has instruments")
    }

    fn skipped(&self, skipped: &[bool]) -> Vec<bool> {
        let mut skipped = skipped.to_vec();
        if let (Fault::SubLayerLeftOut, Some(first)) = (self.executables.fault, skipped.first_mut()) {
            *first = true;
        }
        skipped
    }

    fn note(&mut self, program: ProgramId) {
        let Faulty { inner: executables, fault } = &*self.executables;
        let binding = executables.programs()[program].binding;
        let shows_logits = executables.programs()[program].shown.columns
            == executables.programs()[ProgramId::FIRST].shown.columns;
        let outputs = (0..binding.outputs).map(OutputId::new);
        self.shown = outputs.map(|output| self.inner.shown(program, output).to_vec()).collect();
        for output in self.shown.ids() {
            let row = &mut self.shown[output];
            match fault {
                Fault::WidthDependentReduction(width) if binding.width >= *width && shows_logits => {
                    row.iter_mut().for_each(|x| *x = f32::from_bits(x.to_bits() ^ 1));
                }
                Fault::HighestIdFirst if !shows_logits => highest_id_first(row),
                Fault::None
                | Fault::OffByOneSlot
                | Fault::WidthDependentReduction(_)
                | Fault::HighestIdFirst
                | Fault::SubLayerLeftOut => {}
            }
        }
    }
}

/// Turns the order of equal candidates around.
fn highest_id_first(row: &mut [f32]) {
    let mut order: Vec<(u32, f32)> = Candidates::new(row).iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    let half = (row.len() - 1) / 2;
    for (place, (token, value)) in order.into_iter().enumerate() {
        row[1 + place] = f32::from_bits(token);
        row[1 + half + place] = value;
    }
}

impl Replay for FaultyReplay {
    fn failure(&self) -> Option<&BackendError> {
        self.inner.failure()
    }

    fn begin(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        self.inner.replay(program, inputs, &self.skipped(skipped));
        self.note(program);
    }

    fn shown(&self, _program: ProgramId, output: OutputId) -> &[f32] {
        &self.shown[output]
    }

    fn hidden(&self, program: ProgramId, part: usize, output: OutputId) -> Option<&[f32]> {
        self.inner.hidden(program, part, output)
    }

    fn slots(&mut self) -> &mut dyn SlotMoves {
        self
    }
}

impl SlotMoves for FaultyReplay {
    fn copy_slots(&mut self, from: &[u32], first: u32) {
        let further: Vec<u32> = from.iter().map(|slot| (slot + 1).min(self.last_slot)).collect();
        let is_off = self.executables.fault == Fault::OffByOneSlot;
        self.inner.slots().copy_slots(if is_off { &further } else { from }, first);
    }

    fn moved_bytes(&self, slots: usize) -> usize {
        assert_eq!(slots, BLOCK_TOKENS, "sessions move blocks");
        self.block_bytes
    }

    fn read_slots(&mut self, slots: Range<u32>, bytes: &mut [u8]) {
        self.inner.slots().read_slots(slots, bytes);
    }

    fn write_slots(&mut self, slots: Range<u32>, bytes: &[u8]) {
        self.inner.slots().write_slots(slots, bytes);
    }
}

impl Capabilities for FaultyReplay {
    fn workers(&self) -> Option<Workers> {
        self.inner.workers()
    }

    fn instruments(&mut self) -> Option<&mut dyn Instruments> {
        Some(self)
    }

    fn phases(&mut self) -> Option<&mut dyn DraftPhases> {
        self.inner.phases()
    }

    /// Offered by none with a fault: what shows and copies here would be left out.
    fn verifications(&mut self) -> Option<&mut dyn Verifications> {
        match self.executables.fault {
            Fault::None => self.inner.verifications(),
            Fault::WidthDependentReduction(_)
            | Fault::OffByOneSlot
            | Fault::HighestIdFirst
            | Fault::SubLayerLeftOut => None,
        }
    }
}

impl Instruments for FaultyReplay {
    fn replay_observed(
        &mut self,
        program: ProgramId,
        inputs: &RowInputs,
        skipped: &[bool],
        observer: Observer<'_>,
    ) {
        let skipped = self.skipped(skipped);
        self.instruments_of_inner().replay_observed(program, inputs, &skipped, observer);
        self.note(program);
    }

    fn tune(&mut self, program: ProgramId, step: StepId, tuning: Tuning) {
        self.instruments_of_inner().tune(program, step, tuning);
    }

    fn exercise(&mut self, exercise: Exercise) -> u64 {
        self.instruments_of_inner().exercise(exercise)
    }

    fn poison_slots(&mut self, slots: Range<u32>, seed: u64) {
        self.instruments_of_inner().poison_slots(slots, seed);
    }
}

impl ExecutableSet {
    /// The same executables with a fault.
    pub(crate) fn with_fault(&self, fault: Fault) -> Self {
        let inner = Arc::clone(&self.executables);
        let mut set = self.clone();
        set.executables = Arc::new(Faulty { inner, fault });
        set
    }
}
