//! The reference backend: scalar kernels on one thread, weights read as stored. Slow and obvious, the judge of others.

use std::{borrow::Cow, ops::Range, sync::Arc};

use ygg_kernels::{
    Activations, AppendKv, Attention, KvFormat, Matrix, Norm, Recurrence, Rope, RopeTable, Routes, Rows,
    RowsMut, ScanWeights, ShortConv, StateWeights, cpu::Kernels, reference as kernels,
};

use crate::ir::{
    self, HeadTokens, Id, IdVec, Op, Operand, OutputId, Program, ProgramId, Region, RopeId, RowInputs, Step,
    StepId, WeightId, WeightSource,
};

use super::{
    BackendError, Capabilities, Executables, Exercise, Instruments, Loading, Moment, Observer, Replay,
    ReplayOptions, SlotMoves, Tuning,
    memory::{Arena, KvCache},
};

/// Programs with a copy of the weights' bytes, which clones share.
#[derive(Clone, Debug)]
pub(super) struct ReferenceExecutables {
    programs: IdVec<ProgramId, Program>,
    weights: Vec<Arc<[u8]>>,
    kv_format: KvFormat,
}

impl ReferenceExecutables {
    pub(super) fn load(programs: Vec<Program>, kv_format: KvFormat, loading: &Loading<'_>) -> Self {
        let mut empty = Self { programs: IdVec::default(), weights: Vec::new(), kv_format };
        empty.add(programs, loading);
        empty
    }

    fn add(&mut self, programs: Vec<Program>, loading: &Loading<'_>) {
        let count = programs.first().map_or(0, |program| program.weights.len());
        let loaded = |weight| {
            let bytes = Arc::from(&*loading.weights.bytes(weight));
            loading.note(&[weight]);
            bytes
        };
        self.weights.extend((0..).map(WeightId).take(count).skip(self.weights.len()).map(loaded));
        self.programs.extend(programs);
    }

    fn matrix(&self, id: WeightId) -> Matrix<'_> {
        let specs = &self.programs.last().expect("at least one program").weights;
        let spec = &specs[id.0 as usize];
        super::matrix(spec, &self.weights[id.0 as usize]).expect("the model's loader has checked sizes")
    }

    fn vector(&self, ids: &[WeightId]) -> Vec<f32> {
        let specs = &self.programs.last().expect("at least one program").weights;
        super::vector(ids, specs, self).expect("the model's loader has checked sizes")
    }

    fn arena_bytes(&self) -> usize {
        self.programs.iter().map(|p| p.arena_bytes).max().unwrap_or(0)
    }
}

impl WeightSource for ReferenceExecutables {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.weights[weight.0 as usize])
    }
}

impl Executables for ReferenceExecutables {
    fn programs(&self) -> &IdVec<ProgramId, Program> {
        &self.programs
    }

    fn weight_bytes(&self) -> usize {
        self.weights.iter().map(|weight| weight.len()).sum()
    }

    fn replay_bytes(&self, options: &ReplayOptions) -> usize {
        let cache = KvCache::bytes(self.programs[ProgramId::FIRST].kv, self.kv_format, options.layout);
        self.arena_bytes()
            + cache
            + super::rope_bytes(&self.programs[ProgramId::FIRST], options.layout.context)
    }

    fn with(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        _threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        let mut both = self.clone();
        both.add(programs, &Loading::of(weights));
        Ok(Arc::new(both))
    }

    fn beside(
        &self,
        programs: Vec<Program>,
        weights: &dyn WeightSource,
        _threads: usize,
    ) -> Result<Arc<dyn Executables>, BackendError> {
        let mut other = Self { programs: IdVec::default(), ..self.clone() };
        other.add(programs, &Loading::of(weights));
        Ok(Arc::new(other))
    }

    fn embed(&self, token: u32, row: &mut [f32]) {
        let columns = row.len();
        let embedding =
            super::embedding(&self.programs[ProgramId::FIRST]).expect("the programs embed tokens");
        let matrix = self.matrix(embedding);
        kernels::embed(&matrix, &[token], RowsMut::new(row, columns));
    }

    fn open(self: Arc<Self>, options: &ReplayOptions) -> Result<Box<dyn Replay>, BackendError> {
        let arena = Arena::new(self.arena_bytes())?;
        let cache = KvCache::new(self.programs[ProgramId::FIRST].kv, self.kv_format, options.layout)?;
        let ropes = super::rope_tables(&self.programs[ProgramId::FIRST], options.layout.context);
        Ok(Box::new(ReferenceReplay { executables: self, arena, cache, ropes }))
    }
}

/// The product of a step's numeric class.
fn linear_of(step: &Step) -> fn(Rows<'_>, &Matrix<'_>, RowsMut<'_>) {
    match step.kernel.class.activations {
        Activations::Native => kernels::linear,
        Activations::Int8 => kernels::linear_int8,
    }
}

#[derive(Debug)]
struct ReferenceReplay {
    executables: Arc<ReferenceExecutables>,
    arena: Arena,
    cache: KvCache,
    ropes: Vec<RopeTable>,
}

impl ReferenceReplay {
    fn rows(&self, operand: &Operand) -> Rows<'_> {
        let region = operand.region().expect("the program's operand has bytes");
        // SAFETY: one thread, and the arena's law keeps a step's result apart from what is read through this; a
        // residual in place is only written.
        unsafe { self.arena.rows(&region) }
    }

    fn rows_mut(&self, region: &Region) -> RowsMut<'_> {
        // SAFETY: as in `rows`.
        unsafe { self.arena.rows_mut(region) }
    }

    fn rope(&self, program: &Program, id: RopeId) -> Rope<'_> {
        Rope { table: &self.ropes[id.0 as usize], pairing: program.ropes[id.0 as usize].pairing }
    }

    fn name_candidates(&self, tokens: Option<&HeadTokens>, shown: Option<Region>) {
        let (Some(tokens), Some(region)) = (tokens, shown) else { return };
        for row in 0..region.rows {
            // SAFETY: one thread, and no view of the region lives.
            tokens.name_candidates(unsafe { self.arena.row_mut(&region, row) });
        }
    }

    /// A copy of `x`, normalised if a norm is fused in front.
    fn prepared(&self, x: Rows<'_>, norm: Option<ir::Norm>) -> Vec<f32> {
        let copy: Vec<f32> = (0..x.width()).flat_map(|w| x.row(w).to_vec()).collect();
        let Some(norm) = norm else { return copy };
        let gain = self.executables.vector(&[norm.weight]);
        let mut out = vec![0.0; copy.len()];
        let norm = Norm { weight: &gain, eps: norm.eps };
        kernels::rms_norm(Rows::new(&copy, gain.len()), norm, RowsMut::new(&mut out, gain.len()));
        out
    }

    /// Writes the elements of `x`, which may be these rows themselves.
    fn copy(&self, x: Rows<'_>, out: RowsMut<'_>) {
        let copy = self.prepared(x, None);
        let zeros = vec![0.0; copy.len()];
        kernels::add(Rows::new(&copy, x.columns()), Rows::new(&zeros, x.columns()), out);
    }

    /// Runs a step. One exhaustive match over the ops.
    #[expect(clippy::too_many_lines, reason = "one exhaustive match over the ops")]
    fn step(&self, program: &Program, step: &Step, inputs: &RowInputs) {
        let read = |i: usize| self.rows(&step.operands[i]);
        let result = step.result.region();
        let write = || self.rows_mut(result.as_ref().expect("the step has a result"));
        match &step.op {
            Op::Input(_) | Op::Slice { .. } => unreachable!("inputs and views are no steps"),
            Op::Embed { weight } => {
                kernels::embed(&self.executables.matrix(*weight), inputs.tokens(), write());
            }
            Op::RmsNorm(norm) => {
                let gain = self.executables.vector(&[norm.weight]);
                kernels::rms_norm(read(0), Norm { weight: &gain, eps: norm.eps }, write());
            }
            Op::Linear { weights, biases, norm, residual } => {
                let x = self.prepared(read(0), *norm);
                let x = Rows::new(&x, read(0).columns());
                let linear = linear_of(step);
                let mut first = 0;
                for weight in weights {
                    let matrix = self.executables.matrix(*weight);
                    let out = write().slice_columns(first..first + matrix.rows());
                    first += matrix.rows();
                    if *residual {
                        let mut product = vec![0.0; x.width() * matrix.rows()];
                        linear(x, &matrix, RowsMut::new(&mut product, matrix.rows()));
                        kernels::add_into(Rows::new(&product, matrix.rows()), out);
                    } else {
                        linear(x, &matrix, out);
                    }
                }
                if !biases.is_empty() {
                    kernels::add_bias(&self.executables.vector(biases), write());
                }
            }
            Op::GatedLinear { function, gate, up, norm } => {
                let x = self.prepared(read(0), *norm);
                let (gate, up) = (self.executables.matrix(*gate), self.executables.matrix(*up));
                let linear_gated = match step.kernel.class.activations {
                    Activations::Native => kernels::linear_gated,
                    Activations::Int8 => kernels::linear_gated_int8,
                };
                linear_gated(*function, Rows::new(&x, read(0).columns()), &gate, &up, write());
            }
            Op::Gate(function) => kernels::gate(*function, read(0), read(1), write()),
            Op::Rope(id) => {
                let head = program.ropes[id.0 as usize].head_dim;
                kernels::rope(read(0), head, inputs.positions(), self.rope(program, *id), write());
            }
            Op::AppendKv { layer, rope } => kernels::append_kv(&AppendKv {
                keys: read(0),
                values: read(1),
                positions: inputs.positions(),
                slots: inputs.slots(),
                rope: rope.map(|id| self.rope(program, id)),
                // SAFETY: one thread runs one op at a time.
                kv: unsafe { self.cache.layer(*layer) },
            }),
            Op::Attention { layer, heads, scoring, rope, sinks } => {
                let sinks = sinks.map(|sinks| self.executables.vector(&[sinks]));
                let attention = Attention {
                    queries: read(0),
                    rope: rope.map(|id| self.rope(program, id)),
                    // SAFETY: one thread runs one op at a time.
                    kv: unsafe { self.cache.layer(*layer) },
                    tails: super::tails(inputs),
                    heads: *heads,
                    scoring: *scoring,
                    sinks: sinks.as_deref(),
                };
                kernels::attention(&attention, write());
            }
            Op::ShortConv { layer, taps } => {
                let conv = ShortConv {
                    x: read(0),
                    taps: &self.executables.vector(&[*taps]),
                    slots: inputs.slots(),
                    tails: super::tails(inputs),
                    // SAFETY: one thread runs one op at a time.
                    memory: unsafe { self.cache.conv(*layer) },
                };
                kernels::short_conv(&conv, write());
            }
            Op::Recurrence { layer, vectors, form } => {
                let all: Vec<_> = vectors.iter().map(|id| self.executables.vector(&[*id])).collect();
                let [taps, decays, biases, of_scans @ ..] = &all[..] else {
                    unreachable!("the law of graphs")
                };
                let scan = match of_scans {
                    [channels, skips] => Some(ScanWeights { channels, skips }),
                    _ => None,
                };
                let rule = Recurrence {
                    x: read(0),
                    steps: read(1),
                    rates: scan.is_none().then(|| read(2)),
                    weights: StateWeights { taps, decays, biases, scan },
                    form: *form,
                    slots: inputs.slots(),
                    tails: super::tails(inputs),
                    // SAFETY: one thread runs one op at a time.
                    memory: unsafe { self.cache.recurrence(*layer) },
                };
                kernels::recurrence(&rule, write());
            }
            Op::Route { routing, vector } => {
                let numbers = vector.map(|vector| self.executables.vector(&[*vector.place()]));
                let vector = vector.zip(numbers.as_deref()).map(|(vector, numbers)| vector.map(|_| numbers));
                kernels::route(read(0), vector, routing, write());
            }
            Op::RoutedGated { experts, biases, .. } | Op::RoutedLinear { experts, biases } => {
                let biases = (!biases.is_empty()).then(|| self.executables.vector(biases));
                let experts: Vec<_> = experts.iter().map(|id| self.executables.matrix(*id)).collect();
                let (experts, routes) = ((&experts[..], biases.as_deref()), Routes::new(read(1)));
                let linear = linear_of(step);
                match &step.op {
                    Op::RoutedGated { function, .. } => {
                        kernels::routed_gated(linear, *function, read(0), routes, experts, write());
                    }
                    _ => kernels::routed_linear(linear, read(0), routes, experts, write()),
                }
            }
            Op::Add if result == step.operands[0].region() => kernels::add_into(read(1), write()),
            Op::Add => kernels::add(read(0), read(1), write()),
            Op::Scale { factor } => {
                self.copy(read(0), write());
                kernels::scale(*factor, write());
            }
            Op::Softcap { cap } => {
                self.copy(read(0), write());
                kernels::softcap(*cap, write());
            }
            Op::SelectRows => kernels::select_rows(read(0), inputs.output_rows(), write()),
            Op::GivenRows { columns } => {
                let given = Rows::new(inputs.given(), *columns);
                let all: Vec<u32> = (0..).take(given.width()).collect();
                kernels::select_rows(given, &all, write());
            }
            Op::Candidates { head: None, most: _, tokens } => {
                let noise = inputs.row_noise(tokens.as_ref().map(HeadTokens::as_slice));
                kernels::candidates(read(0), inputs.choice(), noise, write());
                self.name_candidates(tokens.as_ref(), result);
            }
            Op::Candidates { head: Some(ir::Head { weights, norm }), most: _, tokens } => {
                let x = self.prepared(read(0), *norm);
                let x = Rows::new(&x, read(0).columns());
                let matrices: Vec<_> = weights.iter().map(|id| self.executables.matrix(*id)).collect();
                let vocabulary = matrices.iter().map(Matrix::rows).sum();
                let mut logits = vec![0.0; x.width() * vocabulary];
                let linear = linear_of(step);
                let mut first = 0;
                for matrix in &matrices {
                    let columns = first..first + matrix.rows();
                    first = columns.end;
                    let out = RowsMut::new(&mut logits, vocabulary).slice_columns(columns);
                    linear(x, matrix, out);
                }
                let noise = inputs.row_noise(tokens.as_ref().map(HeadTokens::as_slice));
                kernels::candidates(Rows::new(&logits, vocabulary), inputs.choice(), noise, write());
                self.name_candidates(tokens.as_ref(), result);
            }
        }
    }
}

impl Replay for ReferenceReplay {
    fn failure(&self) -> Option<&BackendError> {
        None
    }

    fn begin(&mut self, program: ProgramId, inputs: &RowInputs, skipped: &[bool]) {
        self.replay_observed(program, inputs, skipped, &mut |_| {});
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

impl Capabilities for ReferenceReplay {
    fn ranks_by_noise(&self) -> bool {
        true
    }

    fn instruments(&mut self) -> Option<&mut dyn Instruments> {
        Some(self)
    }
}

impl Instruments for ReferenceReplay {
    fn replay_observed(
        &mut self,
        program: ProgramId,
        inputs: &RowInputs,
        skipped: &[bool],
        observer: Observer<'_>,
    ) {
        let executables = Arc::clone(&self.executables);
        let program = &executables.programs[program];
        observer(Moment::Begun);
        for (number, step) in (0..).map(StepId::new).zip(&program.steps) {
            if step.group.is_none_or(|g| !skipped[g.0 as usize]) {
                self.step(program, step, inputs);
                observer(Moment::ShareDone(number));
                observer(Moment::StepDone(number));
            }
        }
    }

    fn tune(&mut self, _program: ProgramId, _step: StepId, tuning: Tuning) {
        assert_eq!(tuning, Tuning::DEFAULT, "scalar kernels have one tuning");
    }

    fn exercise(&mut self, exercise: Exercise) -> u64 {
        let kernels = Kernels::portable();
        match exercise {
            Exercise::ReadWeights { passes } => {
                for weight in (0..passes).flat_map(|_| &self.executables.weights) {
                    std::hint::black_box(kernels.read(weight));
                }
                passes * self.executables.weight_bytes() as u64
            }
            Exercise::MultiplyAdds { arithmetic, rounds } => kernels.multiply_adds(arithmetic, rounds),
            Exercise::EmptySteps { steps } => steps,
        }
    }

    fn poison_slots(&mut self, slots: Range<u32>, seed: u64) {
        self.cache.poison(slots, seed);
    }
}
