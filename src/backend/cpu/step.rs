//! A step with its weights and regions resolved, and how it is shared between threads.

use std::sync::Arc;

use ygg_kernels::{
    AppendKv, Attention, Nonlinearity, Norm, PartialsShape, Recurrence, Rope, RouteVector, Routes, Routing,
    Rows, ScanWeights, Scoring, ShortConv, StateForm, StateShape, StateWeights,
    candidates::ranges,
    cpu::{
        Epilogue, FoundLayout, Kernels, PackedLinear, RoutedGated, RoutedLinear, TILE, Tuning,
        head_scratch_bytes,
    },
};

use crate::ir::{self, Binding, GroupId, HeadTokens, KvSpec, Op, Operand, Region, RopeId, Step};

use super::{
    packed_weights::{MatrixId, PackedWeights, VectorId},
    pool::Worker,
    replay::Forward,
    streaming::{PoolId, UnitId},
};

#[derive(Clone, Copy, Debug)]
struct FusedNorm {
    gain: VectorId,
    eps: f32,
}

/// One kernel call by all threads.
#[derive(Clone, Debug)]
pub(super) struct CpuStep {
    group: Option<GroupId>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Embed { weight: MatrixId, out: Region },
    EmbedMapped { weight: ir::WeightId, out: Region },
    RmsNorm { norm: FusedNorm, x: Region, out: Region },
    Linear(Linear),
    GatedLinear { function: Nonlinearity, weight: MatrixId, norm: Option<FusedNorm>, x: Region, out: Region },
    Gate { function: Nonlinearity, gate: Region, up: Region, out: Region },
    Rope { rope: RopeId, x: Region, out: Region },
    AppendKv { layer: usize, rope: Option<RopeId>, k: Region, v: Region },
    Attention(Attending),
    ShortConv { layer: usize, taps: VectorId, x: Region, out: Region },
    Recurrence(RecurrenceStep),
    Route { routing: Routing, vector: Option<RouteVector<VectorId>>, scores: Region, out: Region },
    RoutedGated { function: Nonlinearity, products: Routed },
    RoutedLinear(Routed),
    Add { a: Region, b: Region, out: Region },
    AddInto { a: Region, out: Region },
    Scale { factor: f32, x: Region, out: Region },
    Softcap { cap: f32, x: Region, out: Region },
    SelectRows { x: Region, out: Region },
    GivenRows { columns: usize, out: Region },
    Candidates { head: Option<Head>, most: usize, tokens: Option<HeadTokens>, x: Region, out: Region },
}

/// A product, with its biases.
#[derive(Clone, Copy, Debug)]
struct Linear {
    weight: MatrixId,
    bias: Option<VectorId>,
    norm: Option<FusedNorm>,
    x: Region,
    epilogue: Epilogue,
    out: Region,
}

/// Attention over one layer of the cache.
#[derive(Clone, Copy, Debug)]
struct Attending {
    layer: usize,
    heads: usize,
    scoring: Scoring,
    rope: Option<RopeId>,
    sinks: Option<VectorId>,
    q: Region,
    out: Region,
}

/// States that follow rows, with what goes in; taps, decays and biases of steps; what only scans have.
#[derive(Clone, Copy, Debug)]
struct RecurrenceStep {
    layer: usize,
    shape: StateShape,
    form: StateForm,
    vectors: [VectorId; 3],
    scan: Option<[VectorId; 2]>,
    x: Region,
    steps: Region,
    rates: Option<Region>,
    out: Region,
}

/// Products with the matrices of experts.
#[derive(Clone, Debug)]
struct Routed {
    matrices: Arc<[MatrixId]>,
    /// The pool of the matrices, if they share places.
    pool: Option<PoolId>,
    biases: Option<VectorId>,
    x: Region,
    routes: Region,
    out: Region,
}

/// A product whose results are folded as they are made.
#[derive(Clone, Copy, Debug)]
struct Head {
    weight: MatrixId,
    norm: Option<FusedNorm>,
}

impl CpuStep {
    #[expect(clippy::too_many_lines, reason = "one exhaustive match over the ops")]
    pub(super) fn resolve(step: &Step, weights: &PackedWeights, kv: KvSpec) -> Self {
        let region = |operand: &Operand| operand.region().expect("the program's operand has bytes");
        let operand = |i: usize| region(&step.operands[i]);
        let fused = |norm: &ir::Norm| FusedNorm { gain: weights.vector_id(&[norm.weight]), eps: norm.eps };
        let routed = |experts: &[ir::WeightId], biases: &[ir::WeightId]| Routed {
            matrices: experts.iter().map(|expert| weights.stack(&[*expert])).collect(),
            pool: weights.pool(weights.stack(&experts[..1])),
            biases: (!biases.is_empty()).then(|| weights.vector_id(biases)),
            x: operand(0),
            routes: operand(1),
            out: region(&step.result),
        };
        let kind = match &step.op {
            Op::Input(_) | Op::Slice { .. } => unreachable!("inputs and views are no steps"),
            Op::Embed { weight } if weights.mapped(*weight).is_some() => {
                Kind::EmbedMapped { weight: *weight, out: region(&step.result) }
            }
            Op::Embed { weight } => {
                Kind::Embed { weight: weights.stack(&[*weight]), out: region(&step.result) }
            }
            Op::RmsNorm(norm) => {
                Kind::RmsNorm { norm: fused(norm), x: operand(0), out: region(&step.result) }
            }
            Op::Linear { weights: ids, biases, norm, residual } => Kind::Linear(Linear {
                weight: weights.stack(ids),
                bias: (!biases.is_empty()).then(|| weights.vector_id(biases)),
                norm: norm.as_ref().map(fused),
                x: operand(0),
                epilogue: if *residual { Epilogue::AddInto } else { Epilogue::Store },
                out: region(&step.result),
            }),
            Op::GatedLinear { function, gate, up, norm } => Kind::GatedLinear {
                function: *function,
                weight: weights.gated(*gate, *up),
                norm: norm.as_ref().map(fused),
                x: operand(0),
                out: region(&step.result),
            },
            Op::Gate(function) => Kind::Gate {
                function: *function,
                gate: operand(0),
                up: operand(1),
                out: region(&step.result),
            },
            Op::Rope(rope) => Kind::Rope { rope: *rope, x: operand(0), out: region(&step.result) },
            Op::AppendKv { layer, rope } => {
                Kind::AppendKv { layer: *layer, rope: *rope, k: operand(0), v: operand(1) }
            }
            Op::Attention { layer, heads, scoring, rope, sinks } => Kind::Attention(Attending {
                layer: *layer,
                heads: *heads,
                scoring: *scoring,
                rope: *rope,
                sinks: sinks.map(|sinks| weights.vector_id(&[sinks])),
                q: operand(0),
                out: region(&step.result),
            }),
            Op::ShortConv { layer, taps } => Kind::ShortConv {
                layer: *layer,
                taps: weights.vector_id(&[*taps]),
                x: operand(0),
                out: region(&step.result),
            },
            Op::Recurrence { layer, vectors, form } => Kind::Recurrence(RecurrenceStep {
                layer: *layer,
                shape: kv.states.shape,
                form: *form,
                vectors: [0, 1, 2].map(|i| weights.vector_id(&[vectors[i]])),
                scan: (vectors.len() > 3).then(|| [3, 4].map(|i| weights.vector_id(&[vectors[i]]))),
                x: operand(0),
                steps: operand(1),
                rates: (kv.states.shape.said() > 1).then(|| operand(2)),
                out: region(&step.result),
            }),
            Op::Route { routing, vector } => Kind::Route {
                routing: *routing,
                vector: vector.map(|vector| vector.map(|id| weights.vector_id(&[id]))),
                scores: operand(0),
                out: region(&step.result),
            },
            Op::RoutedGated { function, experts, biases } => {
                Kind::RoutedGated { function: *function, products: routed(experts, biases) }
            }
            Op::RoutedLinear { experts, biases } => Kind::RoutedLinear(routed(experts, biases)),
            Op::Add if step.result == step.operands[0] => {
                Kind::AddInto { a: operand(1), out: region(&step.result) }
            }
            Op::Add => Kind::Add { a: operand(0), b: operand(1), out: region(&step.result) },
            Op::Softcap { cap } => Kind::Softcap { cap: *cap, x: operand(0), out: region(&step.result) },
            Op::Scale { factor } => Kind::Scale { factor: *factor, x: operand(0), out: region(&step.result) },
            Op::SelectRows => Kind::SelectRows { x: operand(0), out: region(&step.result) },
            Op::GivenRows { columns } => Kind::GivenRows { columns: *columns, out: region(&step.result) },
            Op::Candidates { head, most, tokens } => {
                let head = head.as_ref().map(|ir::Head { weights: ids, norm }| Head {
                    weight: weights.stack(ids),
                    norm: norm.as_ref().map(fused),
                });
                Kind::Candidates {
                    head,
                    most: *most,
                    tokens: tokens.clone(),
                    x: operand(0),
                    out: region(&step.result),
                }
            }
        };
        Self { group: step.group, kind }
    }

    /// Whether a forward that leaves out the groups with `skipped[group]` has it.
    pub(super) fn runs(&self, skipped: &[bool]) -> bool {
        self.group.is_none_or(|group| !skipped[group.0 as usize])
    }

    /// How `threads` threads keep what they find before it is merged, if this is a step that finds candidates.
    pub(super) fn found_layout(&self, weights: &PackedWeights, threads: usize) -> Option<FoundLayout> {
        let Kind::Candidates { head, most, x, .. } = &self.kind else { return None };
        let vocabulary = head.map_or(x.columns, |head| weights.matrix(head.weight).outputs());
        Some(FoundLayout::new(x.rows, vocabulary, *most, threads))
    }

    /// Bytes that `threads` threads keep until they join what each has done of it, over a cache of `slots` slots.
    pub(super) fn shared_bytes(
        &self,
        weights: &PackedWeights,
        kv: KvSpec,
        slots: usize,
        threads: usize,
    ) -> usize {
        if let Kind::Attention(Attending { layer, heads, q, .. }) = self.kind {
            let [kv_heads, head_dim] = kv.heads(layer);
            let shape = PartialsShape { width: q.rows, heads, kv_heads, head_dim };
            return shape.most_bytes(slots, threads);
        }
        self.found_layout(weights, threads).map_or(0, |layout| layout.bytes())
    }

    /// The streamed matrix that it multiplies by, if it does.
    pub(super) fn unit(&self, weights: &PackedWeights) -> Option<UnitId> {
        match self.kind {
            Kind::Linear(Linear { weight, .. }) | Kind::GatedLinear { weight, .. } => weights.unit(weight),
            _ => None,
        }
    }

    /// The pool whose matrices it multiplies by, and the routes that name them, if they share places.
    pub(super) fn pool(&self) -> Option<(PoolId, &Region)> {
        match &self.kind {
            Kind::RoutedGated { products, .. } | Kind::RoutedLinear(products) => {
                products.pool.map(|pool| (pool, &products.routes))
            }
            _ => None,
        }
    }

    /// Whether it has a tuning.
    pub(super) fn is_linear(&self) -> bool {
        matches!(
            self.kind,
            Kind::Linear(_) | Kind::GatedLinear { .. } | Kind::Candidates { head: Some(_), .. }
        )
    }

    /// Scratch that one thread needs for it, attention aside.
    pub(super) fn scratch_bytes(&self, kernels: Kernels, weights: &PackedWeights, binding: Binding) -> usize {
        match &self.kind {
            Kind::Linear(Linear { weight, .. }) | Kind::GatedLinear { weight, .. } => {
                let matrix = weights.matrix(*weight);
                kernels.linear_scratch_bytes(matrix.format(), binding.width, matrix.columns())
            }
            Kind::Candidates { head: Some(head), x, .. } => {
                prepared_bytes(kernels, weights.matrix(head.weight), x.rows) + head_scratch_bytes(x.rows)
            }
            Kind::RoutedGated { products: Routed { matrices, .. }, .. }
            | Kind::RoutedLinear(Routed { matrices, .. }) => {
                let matrix = weights.matrix(matrices[0]);
                let shape = [matrix.outputs(), matrix.columns()];
                kernels.routed_scratch_bytes(matrix.format(), binding.width, shape)
            }
            Kind::Recurrence(RecurrenceStep { shape, .. }) => {
                kernels.recurrence_scratch_bytes(*shape, binding.width)
            }
            Kind::Candidates { head: None, .. }
            | Kind::Embed { .. }
            | Kind::EmbedMapped { .. }
            | Kind::RmsNorm { .. }
            | Kind::Gate { .. }
            | Kind::Rope { .. }
            | Kind::AppendKv { .. }
            | Kind::Attention(_)
            | Kind::ShortConv { .. }
            | Kind::Route { .. }
            | Kind::Add { .. }
            | Kind::AddInto { .. }
            | Kind::Scale { .. }
            | Kind::Softcap { .. }
            | Kind::SelectRows { .. }
            | Kind::GivenRows { .. } => 0,
        }
    }

    /// Does this worker's share of the step, with this tuning if it is a linear. One exhaustive match over the kinds of
    /// steps.
    #[expect(clippy::too_many_lines, reason = "one exhaustive match over the kinds of steps")]
    pub(super) fn run(&self, forward: &Forward<'_>, tuning: Tuning, worker: Worker<'_>) {
        let Forward { kernels, weights, inputs, .. } = *forward;
        let norm = |norm: FusedNorm| Norm { weight: weights.vector(norm.gain), eps: norm.eps };
        let rope = |id: RopeId| -> Rope<'_> { forward.rope(id) };
        match &self.kind {
            Kind::Embed { weight, out } => {
                let rows = worker.share(out.rows);
                kernels.embed(weights.matrix(*weight), inputs.tokens(), rows, forward.write(out));
            }
            Kind::EmbedMapped { weight, out } => {
                let table = weights.mapped(*weight).expect("looked up when the step was resolved");
                let rows = worker.share(out.rows);
                kernels.embed_stored(&table.matrix(), inputs.tokens(), rows, forward.write(out));
            }
            Kind::RmsNorm { norm: fused, x, out } => {
                kernels.rms_norm(forward.read(x), norm(*fused), worker.share(x.rows), forward.write(out));
            }
            Kind::Linear(Linear { weight, bias, norm: fused, x, epilogue, out }) => {
                let matrix = weights.matrix(*weight);
                let tiles = worker.share(matrix.tiles());
                if !tiles.is_empty() {
                    let scratch = forward.scratch(worker);
                    // Each worker prepares all rows for itself, which needs no barrier.
                    let (norm, x) = (fused.map(norm), forward.read(x));
                    let x = kernels.prepare_tuned(matrix.format(), x, norm, tuning, scratch);
                    kernels.linear(matrix, &x, tiles.clone(), *epilogue, forward.write(out));
                    if let Some(bias) = bias {
                        let columns = TILE * tiles.start..matrix.outputs().min(TILE * tiles.end);
                        kernels.add_bias(weights.vector(*bias), columns, forward.write(out));
                    }
                }
            }
            Kind::GatedLinear { function, weight, norm: fused, x, out } => {
                let matrix = weights.matrix(*weight);
                let tiles = worker.share(matrix.tiles());
                if !tiles.is_empty() {
                    let scratch = forward.scratch(worker);
                    let (norm, x) = (fused.map(norm), forward.read(x));
                    let x = kernels.prepare_tuned(matrix.format(), x, norm, tuning, scratch);
                    kernels.linear_gated(*function, matrix, &x, tiles, forward.write(out));
                }
            }
            Kind::Gate { function, gate, up, out } => {
                let rows = worker.share(out.rows);
                kernels.gate(*function, forward.read(gate), forward.read(up), rows, forward.write(out));
            }
            Kind::Rope { rope: id, x, out } => {
                let head = forward.head_dim(*id);
                let rows = worker.share(out.rows);
                kernels.rope(forward.read(x), head, inputs.positions(), rope(*id), rows, forward.write(out));
            }
            Kind::AppendKv { layer, rope: id, k, v } => {
                let append = AppendKv {
                    keys: forward.read(k),
                    values: forward.read(v),
                    positions: inputs.positions(),
                    slots: inputs.slots(),
                    rope: id.map(rope),
                    kv: forward.layer(*layer),
                };
                kernels.append_kv(&append, worker.share(append.units()));
            }
            Kind::Attention(Attending { layer, heads, scoring, rope: id, sinks, q, out }) => {
                let attention = Attention {
                    queries: forward.read(q),
                    rope: id.map(rope),
                    kv: forward.layer(*layer),
                    tails: crate::backend::tails(inputs),
                    heads: *heads,
                    scoring: *scoring,
                    sinks: sinks.map(|sinks| weights.vector(sinks)),
                };
                let units = worker.share(attention.units());
                let scratch = forward.scratch(worker);
                if attention.is_in_halves(worker.threads) {
                    let items = worker.share(attention.items());
                    let partials = forward.write_partials(&attention);
                    kernels.attention_partials(&attention, items, scratch, partials);
                    worker.wait();
                    let partials = forward.partials(&attention);
                    kernels.attention_join(&attention, units, partials, forward.write(out));
                } else {
                    kernels.attention(&attention, units, scratch, forward.write(out));
                }
            }
            Kind::ShortConv { layer, taps, x, out } => {
                let conv = ShortConv {
                    x: forward.read(x),
                    taps: weights.vector(*taps),
                    slots: inputs.slots(),
                    tails: crate::backend::tails(inputs),
                    memory: forward.conv(*layer),
                };
                kernels.short_conv(&conv, worker.share(conv.units()), forward.write(out));
            }
            Kind::Recurrence(RecurrenceStep {
                layer,
                shape: _,
                form,
                vectors,
                scan,
                x,
                steps,
                rates,
                out,
            }) => {
                let [taps, decays, biases] = vectors.map(|id| weights.vector(id));
                let scan = scan.map(|vectors| vectors.map(|id| weights.vector(id)));
                let scan = scan.map(|[channels, skips]| ScanWeights { channels, skips });
                let rule = Recurrence {
                    x: forward.read(x),
                    steps: forward.read(steps),
                    rates: rates.as_ref().map(|rates| forward.read(rates)),
                    weights: StateWeights { taps, decays, biases, scan },
                    form: *form,
                    slots: inputs.slots(),
                    tails: crate::backend::tails(inputs),
                    memory: forward.recurrence(*layer),
                };
                let units = worker.share(rule.units());
                if !units.is_empty() {
                    kernels.recurrence(&rule, units, forward.scratch(worker), forward.write(out));
                }
            }
            Kind::Route { routing, vector, scores, out } => {
                let vector = vector.map(|vector| vector.map(|id| weights.vector(id)));
                kernels.route(
                    forward.read(scores),
                    vector,
                    routing,
                    worker.share(out.rows),
                    forward.write(out),
                );
            }
            Kind::RoutedGated { function, products: Routed { matrices, pool, biases, x, routes, out } } => {
                let called = forward.called(*pool);
                let matrix = |number: usize| match &called {
                    Some(called) => called.matrix(number),
                    None => weights.matrix(matrices[number]),
                };
                let product = RoutedGated {
                    x: forward.read(x),
                    routes: Routes::new(forward.read(routes)),
                    function: *function,
                    biases: biases.map(|biases| weights.vector(biases)),
                };
                let (tiles, scratch) = (worker.share(matrix(0).tiles()), forward.scratch(worker));
                let (experts, out) = (matrices.len() / 2, forward.write(out));
                kernels.routed_gated(product, experts, matrix, tiles, scratch, out);
            }
            Kind::RoutedLinear(Routed { matrices, pool, biases, x, routes, out }) => {
                let called = forward.called(*pool);
                let matrix = |number: usize| match &called {
                    Some(called) => called.matrix(number),
                    None => weights.matrix(matrices[number]),
                };
                let product = RoutedLinear {
                    x: forward.read(x),
                    routes: Routes::new(forward.read(routes)),
                    biases: biases.map(|biases| weights.vector(biases)),
                };
                let (tiles, scratch) = (worker.share(matrix(0).tiles()), forward.scratch(worker));
                kernels.routed_linear(product, matrices.len(), matrix, tiles, scratch, forward.write(out));
            }
            Kind::Add { a, b, out } => {
                let rows = worker.share(out.rows);
                kernels.add(forward.read(a), forward.read(b), rows, forward.write(out));
            }
            Kind::AddInto { a, out } => {
                kernels.add_into(forward.read(a), worker.share(out.rows), forward.write(out));
            }
            Kind::Scale { factor, x, out } => {
                let rows = worker.share(out.rows);
                let same = forward.first_rows(out.rows);
                kernels.select_rows(forward.read(x), same, rows.clone(), forward.write(out));
                kernels.scale(*factor, rows, forward.write(out));
            }
            Kind::Softcap { cap, x, out } => {
                let rows = worker.share(out.rows);
                let same = forward.first_rows(out.rows);
                kernels.select_rows(forward.read(x), same, rows.clone(), forward.write(out));
                kernels.softcap(*cap, rows, forward.write(out));
            }
            Kind::SelectRows { x, out } => {
                let rows = worker.share(out.rows);
                kernels.select_rows(forward.read(x), inputs.output_rows(), rows, forward.write(out));
            }
            Kind::GivenRows { columns, out } => {
                let rows = worker.share(out.rows);
                let (given, same) = (Rows::new(inputs.given(), *columns), forward.first_rows(out.rows));
                kernels.select_rows(given, same, rows, forward.write(out));
            }
            Kind::Candidates { head, most: _, tokens, x, out } => {
                let layout = self.found_layout(weights, worker.threads).expect("it finds candidates");
                let noise = inputs.row_noise(tokens.as_ref().map(HeadTokens::as_slice));
                let choice = (inputs.choice(), noise);
                let part = layout.part(forward.found_part(worker, &layout));
                match head {
                    None => {
                        let ranges = worker.share(ranges(x.columns));
                        kernels.candidates(forward.read(x), ranges, choice, part);
                    }
                    Some(Head { weight, norm: fused }) => {
                        let matrix = weights.matrix(*weight);
                        let ranges = worker.share(ranges(matrix.outputs()));
                        if !ranges.is_empty() {
                            let scratch = forward.scratch(worker);
                            let bytes = prepared_bytes(kernels, matrix, x.rows);
                            let (scratch, block) = scratch.split_at_mut(bytes);
                            let x = forward.read(x);
                            let x =
                                kernels.prepare_tuned(matrix.format(), x, fused.map(norm), tuning, scratch);
                            kernels.head_candidates(matrix, &x, ranges, choice, block, part);
                        }
                    }
                }
                worker.wait();
                let rows = worker.share(out.rows);
                let found = forward.found(&layout);
                kernels.merge_candidates(&layout, found, rows.clone(), inputs.choice(), forward.write(out));
                if let Some(tokens) = tokens {
                    rows.for_each(|row| tokens.name_candidates(forward.own_row(out, row)));
                }
            }
        }
    }
}

/// Bytes of prepared activations, up to where a block of logits can follow.
fn prepared_bytes(kernels: Kernels, matrix: &PackedLinear, rows: usize) -> usize {
    kernels.linear_scratch_bytes(matrix.format(), rows, matrix.columns()).next_multiple_of(64)
}
