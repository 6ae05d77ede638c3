//! The dumb judge: every op in f64, evaluated on a graph, or on a program's arena; weights are random by number.

use std::collections::BTreeMap;

use ygg_kernels::{
    Gating, Nonlinearity, RopePairing, RouteVector, Routing, Scoring, StateForm, StateRule, StateShape,
    reference::{capped, gated},
};

use crate::ir::{
    Graph, Head, HeadTokens, Input, KvSpec, Norm, Op, Operand, Program, Region, RopeId, RopeSpec, ValueId,
    WeightId, WeightSpec, verify::residual_operand,
};

/// `[rows, columns]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    columns: usize,
    data: Vec<f64>,
}

impl Matrix {
    /// Equal up to `1e-9` of the largest element; not-a-number is never equal.
    pub(super) fn is_close_to(&self, other: &Self) -> bool {
        let largest = self.data.iter().chain(&other.data).fold(0.0, |m: f64, x| m.max(x.abs()));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * largest;
        self.columns == other.columns
            && self.data.len() == other.data.len()
            && self.data.iter().zip(&other.data).all(near)
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks(self.columns)
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.data[row * self.columns..(row + 1) * self.columns]
    }

    fn map_rows(&self, f: impl Fn(usize, &[f64]) -> Vec<f64>) -> Self {
        let rows: Vec<_> = self.rows().enumerate().map(|(i, row)| f(i, row)).collect();
        Self { columns: rows[0].len(), data: rows.concat() }
    }

    fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let data = self.data.iter().zip(&other.data).map(|(a, b)| f(*a, *b)).collect();
        Self { columns: self.columns, data }
    }
}

/// A value while it is interpreted.
#[derive(Clone, Debug)]
enum Tensor {
    Rows(Matrix),
    Input,
    Cache { k: Matrix, v: Matrix },
}

impl Tensor {
    fn rows(&self) -> &Matrix {
        let Tensor::Rows(matrix) = self else { panic!("expected rows, found {self:?}") };
        matrix
    }
}

/// A forward over a tree of rows, nothing committed before it: row `i` attends to its ancestors and itself.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    tokens: Vec<usize>,
    paths: Vec<Vec<usize>>,
    output_rows: Vec<usize>,
    seed: u64,
}

/// What a forward leaves: what it shows, the hidden and inner rows, and keys and values per layer that ran.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) shown: Matrix,
    pub(super) hidden: Option<Matrix>,
    pub(super) inner: Vec<Matrix>,
    pub(super) cache: BTreeMap<usize, (Matrix, Matrix)>,
}

impl Outcome {
    pub(super) fn is_finite(&self) -> bool {
        let cached = self.cache.values().flat_map(|(k, v)| [k, v]);
        let all = [&self.shown].into_iter().chain(&self.hidden).chain(&self.inner).chain(cached);
        all.into_iter().all(|matrix| matrix.data.iter().all(|x| x.is_finite()))
    }

    /// Equal matrix by matrix.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let close = Matrix::is_close_to;
        let pairs = self.cache.iter().zip(&other.cache);
        let hidden = match (&self.hidden, &other.hidden) {
            (Some(a), Some(b)) => close(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        close(&self.shown, &other.shown)
            && hidden
            && self.inner.len() == other.inner.len()
            && self.inner.iter().zip(&other.inner).all(|(a, b)| close(a, b))
            && self.cache.len() == other.cache.len()
            && pairs.into_iter().all(|((i, a), (j, b))| i == j && close(&a.0, &b.0) && close(&a.1, &b.1))
    }
}

/// A number in `-1..1` that depends on all three.
fn random(seed: u64, stream: u64, index: usize) -> f64 {
    let mut x = seed
        ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (index as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
    for _ in 0..3 {
        x = (x ^ (x >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

impl Forward {
    /// Random tokens below `vocab` in a random tree of `width` rows, random rows of which get logits.
    pub(super) fn random(width: usize, outputs: usize, vocab: usize, seed: u64) -> Self {
        let below = |stream, i, n: usize| ((random(seed, stream, i) + 1.0) / 2.0 * n as f64) as usize % n;
        let mut paths: Vec<Vec<usize>> = Vec::new();
        for row in 0..width {
            let mut path = if row == 0 { Vec::new() } else { paths[below(u64::MAX, row, row)].clone() };
            path.push(row);
            paths.push(path);
        }
        let tokens = (0..width).map(|i| below(u64::MAX - 1, i, vocab)).collect();
        let output_rows = (0..outputs).map(|i| below(u64::MAX - 2, i, width)).collect();
        Self { tokens, paths, output_rows, seed }
    }

    /// Evaluates a graph, skipping the groups marked.
    pub(super) fn run_graph(&self, graph: &Graph, skipped: &[bool]) -> Outcome {
        let model = Model { forward: self, weights: graph.weights(), ropes: graph.ropes(), kv: graph.kv() };
        let mut values: BTreeMap<ValueId, Tensor> = BTreeMap::new();
        let mut cache = BTreeMap::new();
        for value in graph.topological() {
            let node = graph.node(value);
            if node.group.is_some_and(|group| skipped[group.0 as usize]) {
                if let Some(residual) = residual_operand(graph, value).and_then(|r| values.get(&r)) {
                    values.insert(value, residual.clone());
                }
                continue;
            }
            let operands = graph.operands(value);
            let operands: Vec<_> = operands.iter().map(|operand| &values[operand]).collect();
            let result = model.evaluate(&node.op, &operands);
            if let (Op::AppendKv { layer, .. }, Tensor::Cache { k, v }) = (&node.op, &result) {
                cache.insert(*layer, (k.clone(), v.clone()));
            }
            values.insert(value, result);
        }
        let rows = |value: ValueId| values[&value].rows().clone();
        let inner = graph.inner().iter().copied().map(rows).collect();
        Outcome { shown: rows(graph.shown().unwrap()), hidden: graph.hidden().map(rows), inner, cache }
    }

    /// Evaluates a program over an arena that starts as not-a-number, skipping the groups marked.
    pub(super) fn run_program(&self, program: &Program, skipped: &[bool]) -> Outcome {
        let model = Model { forward: self, weights: &program.weights, ropes: &program.ropes, kv: program.kv };
        let mut arena = vec![f64::NAN; program.arena_bytes / 4];
        let mut cache = BTreeMap::new();
        for step in &program.steps {
            if step.group.is_some_and(|group| skipped[group.0 as usize]) {
                continue;
            }
            let operands: Vec<_> = step
                .operands
                .iter()
                .map(|operand| match (operand, &step.op) {
                    (Operand::Arena(region), _) => Tensor::Rows(load(&arena, region)),
                    (Operand::Effect, Op::Attention { layer, .. }) => {
                        let (k, v): &(Matrix, Matrix) = &cache[layer];
                        Tensor::Cache { k: k.clone(), v: v.clone() }
                    }
                    (Operand::Input(_) | Operand::Effect, _) => Tensor::Input,
                })
                .collect();
            match model.evaluate(&step.op, &operands.iter().collect::<Vec<_>>()) {
                Tensor::Rows(rows) => store(&mut arena, &step.result.region().unwrap(), &rows),
                Tensor::Cache { k, v } => {
                    let Op::AppendKv { layer, .. } = step.op else { panic!("only appends give a cache") };
                    cache.insert(layer, (k, v));
                }
                Tensor::Input => panic!("inputs are no steps"),
            }
        }
        let hidden = program.hidden.map(|region| load(&arena, &region));
        let inner = program.inner.iter().map(|region| load(&arena, region)).collect();
        Outcome { shown: load(&arena, &program.shown), hidden, inner, cache }
    }
}

fn words(region: &Region) -> impl Iterator<Item = usize> {
    let Region { offset_bytes, row_stride, rows, columns, .. } = *region;
    (0..rows)
        .flat_map(move |row| (0..columns).map(move |column| offset_bytes / 4 + row * row_stride + column))
}

fn load(arena: &[f64], region: &Region) -> Matrix {
    Matrix { columns: region.columns, data: words(region).map(|word| arena[word]).collect() }
}

fn store(arena: &mut [f64], region: &Region, rows: &Matrix) {
    words(region).zip(&rows.data).for_each(|(word, element)| arena[word] = *element);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A row of candidates: how many, their tokens, their logits.
fn best(logits: &[f64], tokens: Option<&HeadTokens>, most: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    order.truncate(most);
    let mut row = vec![0.0; 1 + 2 * most];
    row[0] = order.len() as f64;
    for (place, id) in order.into_iter().enumerate() {
        let token = tokens.map_or(id as f64, |tokens| f64::from(tokens.token(id)));
        (row[1 + place], row[1 + most + place]) = (token, logits[id]);
    }
    row
}

struct Model<'a> {
    forward: &'a Forward,
    weights: &'a [WeightSpec],
    ropes: &'a [RopeSpec],
    kv: KvSpec,
}

impl Model<'_> {
    fn weight_row(&self, weight: WeightId, row: usize) -> Vec<f64> {
        let columns = self.weights[weight.0 as usize].columns;
        let size = 2.0 / (columns as f64).sqrt();
        let element = |i| size * random(self.forward.seed, u64::from(weight.0), row * columns + i);
        (0..columns).map(element).collect()
    }

    fn product(&self, x: &Matrix, weights: &[WeightId]) -> Matrix {
        let rows = |weight: &WeightId| 0..self.weights[weight.0 as usize].rows;
        let all: Vec<_> = weights.iter().flat_map(|w| rows(w).map(|row| self.weight_row(*w, row))).collect();
        x.map_rows(|_, x| all.iter().map(|row| dot(x, row)).collect())
    }

    fn normed(&self, x: &Matrix, norm: &Norm) -> Matrix {
        let gain = self.weight_row(norm.weight, 0);
        let normed = |x: &[f64]| -> Vec<f64> {
            let mean = dot(x, x) / x.len() as f64;
            let factor = 1.0 / (mean + f64::from(norm.eps)).sqrt();
            x.iter().zip(&gain).map(|(x, gain)| x * factor * gain).collect()
        };
        x.map_rows(|_, x| x.chunks(gain.len()).flat_map(normed).collect())
    }

    fn maybe_normed(&self, x: &Matrix, norm: &Option<Norm>) -> Matrix {
        norm.as_ref().map_or_else(|| x.clone(), |norm| self.normed(x, norm))
    }

    fn rotated(&self, x: &Matrix, rope: RopeId) -> Matrix {
        let RopeSpec { head_dim, pairing, inv_freq, magnitude, long: _ } = &self.ropes[rope.0 as usize];
        x.map_rows(|row, x| {
            let position = (self.forward.paths[row].len() - 1) as f64;
            let mut out = x.to_vec();
            for head in (0..x.len()).step_by(*head_dim) {
                for (i, freq) in inv_freq.iter().enumerate() {
                    let (a, b) = match pairing {
                        RopePairing::Adjacent => (head + 2 * i, head + 2 * i + 1),
                        RopePairing::Halves => (head + i, head + i + inv_freq.len()),
                    };
                    let (sin, cos) = (position * f64::from(*freq)).sin_cos();
                    let (sin, cos) = (sin * f64::from(*magnitude), cos * f64::from(*magnitude));
                    (out[a], out[b]) = (x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos);
                }
            }
            out
        })
    }

    fn maybe_rotated(&self, x: &Matrix, rope: Option<RopeId>) -> Matrix {
        rope.map_or_else(|| x.clone(), |rope| self.rotated(x, rope))
    }

    fn attended(
        &self,
        q: &Matrix,
        cache: (&Matrix, &Matrix),
        heads: usize,
        (scoring, sinks): (Scoring, Option<WeightId>),
    ) -> Matrix {
        let sinks = sinks.map(|sinks| self.weight_row(sinks, 0));
        let (k, v) = cache;
        let width = self.kv.head_dim;
        q.map_rows(|row, q| {
            let mut out = Vec::new();
            for head in 0..heads {
                let shared = head * self.kv.kv_heads / heads * width;
                let q = &q[head * width..(head + 1) * width];
                let path = &self.forward.paths[row];
                let window = scoring.window.map_or(path.len(), |window| path.len().min(window as usize));
                let path = &path[path.len() - window..];
                let score = |at: &usize| {
                    let score = f64::from(scoring.scale) * dot(q, &k.row(*at)[shared..shared + width]);
                    scoring.softcap.map_or(score, |cap| capped(f64::from(cap), score))
                };
                let scores: Vec<_> = path.iter().map(score).collect();
                let sink = sinks.as_ref().map_or(f64::NEG_INFINITY, |sinks| sinks[head]);
                let largest = scores.iter().copied().fold(sink, f64::max);
                let scores: Vec<_> = scores.iter().map(|score| (score - largest).exp()).collect();
                let total = scores.iter().sum::<f64>() + (sink - largest).exp();
                out.extend((0..width).map(|i| {
                    path.iter().zip(&scores).map(|(at, s)| s / total * v.row(*at)[shared + i]).sum::<f64>()
                }));
            }
            out
        })
    }

    /// Of every row the numbers of the experts of the largest values, ascending, and their weights.
    fn routes(&self, scores: &Matrix, routing: &Routing, vector: Option<RouteVector<WeightId>>) -> Matrix {
        let row = |id: &WeightId| self.weight_row(*id, 0);
        let bias = vector.as_ref().filter(|v| matches!(v, RouteVector::Bias(_))).map(|v| row(v.place()));
        let factors =
            vector.as_ref().filter(|v| matches!(v, RouteVector::Factors(_))).map(|v| row(v.place()));
        let routed = |_: usize, scores: &[f64]| {
            // Random graphs make scores whose exponentials no number holds.
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mass: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
            let weight = |expert: usize| match routing.gating {
                Gating::Softmax => (scores[expert] - largest).exp() / mass,
                Gating::Sigmoid => 1.0 / (1.0 + (-scores[expert]).exp()),
            };
            let value =
                |expert: usize| bias.as_ref().map_or(scores[expert], |bias| weight(expert) + bias[expert]);
            let mut experts: Vec<usize> = (0..scores.len()).collect();
            experts.sort_by(|a, b| value(*b).total_cmp(&value(*a)));
            experts.truncate(routing.used);
            experts.sort_unstable();
            let sum: f64 = experts.iter().map(|expert| weight(*expert)).sum();
            let divisor = routing.normalised.map_or(1.0, |least| sum + f64::from(least));
            let factor = |expert: usize| factors.as_ref().map_or(1.0, |factors| factors[expert]);
            let scale = f64::from(routing.scale);
            let weights = experts.iter().map(|expert| weight(*expert) / divisor * scale * factor(*expert));
            experts.iter().map(|expert| *expert as f64).chain(weights).collect()
        };
        scores.map_rows(routed)
    }

    /// The product of a row with a matrix of several, plus its bias if there are some.
    fn of_expert(&self, x: &[f64], matrices: &[WeightId], biases: &[WeightId], number: usize) -> Vec<f64> {
        let bias = biases.get(number).map(|bias| self.weight_row(*bias, 0));
        let product =
            |n| dot(x, &self.weight_row(matrices[number], n)) + bias.as_ref().map_or(0.0, |bias| bias[n]);
        (0..self.weights[matrices[number].0 as usize].rows).map(product).collect()
    }

    /// Gated products with the matrices of the experts of each row.
    fn routed_gated(
        &self,
        [x, routes]: [&Matrix; 2],
        function: Nonlinearity,
        matrices: &[WeightId],
        biases: &[WeightId],
    ) -> Matrix {
        x.map_rows(|row, x| {
            let numbers = &routes.row(row)[..routes.columns / 2];
            let of = |number: f64| {
                let numbers = [number as usize, number as usize + matrices.len() / 2];
                let [gates, ups] = numbers.map(|number| self.of_expert(x, matrices, biases, number));
                gates.into_iter().zip(ups).map(move |(gate, up)| gated(function, gate, up))
            };
            numbers.iter().flat_map(|number| of(*number)).collect()
        })
    }

    /// Sums of the products of the parts of each row with the matrices of its experts.
    fn routed_linear(&self, [x, routes]: [&Matrix; 2], matrices: &[WeightId], biases: &[WeightId]) -> Matrix {
        x.map_rows(|row, x| {
            let (numbers, weights) = routes.row(row).split_at(routes.columns / 2);
            let parts = x.chunks(x.len() / numbers.len()).zip(numbers).zip(weights);
            let products: Vec<Vec<f64>> = parts
                .map(|((x, number), weight)| {
                    let product = self.of_expert(x, matrices, biases, *number as usize);
                    product.into_iter().map(|x| weight * x).collect()
                })
                .collect();
            (0..products[0].len()).map(|n| products.iter().map(|product| product[n]).sum()).collect()
        })
    }

    /// Heads of a recurrence whose value heads lie together and whose decays are stored as logarithms, each row's from
    /// the first of its path; `given` are channels, what rows say of steps and, by a delta rule, of rates.
    fn followed(&self, given: &[&Matrix], vectors: &[WeightId], form: StateForm) -> Matrix {
        let StateShape { rule, key_heads, value_heads, key_dim, value_dim, taps: count } =
            self.kv.states.shape;
        let [x, steps] = [given[0], given[1]];
        let vectors: Vec<Vec<f64>> = vectors.iter().map(|id| self.weight_row(*id, 0)).collect();
        let [taps, stored, biases] = [&vectors[0], &vectors[1], &vectors[2]];
        let of_scan = |number: usize, at: usize| vectors.get(number).map_or(0.0, |vector| vector[at]);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let convolved = |path: &[usize]| -> Vec<f64> {
            let of_channel = |c: usize| {
                let back = path.iter().rev().zip((0..count).rev());
                let sum: f64 = back.map(|(row, tap)| taps[c * count + tap] * x.row(*row)[c]).sum();
                let sum = sum + of_scan(3, c);
                sum * sigmoid(sum)
            };
            (0..x.columns).map(of_channel).collect()
        };
        let divided = |x: &[f64], by: usize| -> Vec<f64> {
            let divisor = ((dot(x, x) + f64::from(1e-6f32)) * by as f64).sqrt();
            x.iter().map(|x| x / divisor).collect()
        };
        let [of_keys, of_values] = [key_heads * key_dim, value_heads * value_dim];
        x.map_rows(|row, _| {
            let path = &self.forward.paths[row];
            let of_head = |head: usize| -> Vec<f64> {
                let key_head = head / (value_heads / key_heads);
                let mut state = vec![vec![0.0; value_dim]; key_dim];
                let mut result = Vec::new();
                for end in 1..=path.len() {
                    let (own, all) = (path[end - 1], convolved(&path[..end]));
                    let part = |start: usize, number: usize, len: usize| &all[start + number * len..][..len];
                    let [mut query, mut key] = match rule {
                        StateRule::Delta => [0, of_keys],
                        StateRule::Scan => [of_values + of_keys, of_values],
                    }
                    .map(|start| part(start, key_head, key_dim).to_vec());
                    if rule == StateRule::Delta {
                        (query, key) = (divided(&query, key_dim), divided(&key, 1));
                    }
                    let start = if rule == StateRule::Delta { 2 * of_keys } else { 0 };
                    let values = part(start, head, value_dim);
                    let [shortest, longest] = form.steps.map(f64::from);
                    let step = (steps.row(own)[head] + biases[head]).exp().ln_1p().clamp(shortest, longest);
                    let decay = (-stored[head].exp() * step).exp();
                    for (column, value) in values.iter().enumerate() {
                        let known: f64 = (0..key_dim).map(|i| key[i] * decay * state[i][column]).sum();
                        let change = match rule {
                            StateRule::Delta => sigmoid(given[2].row(own)[head]) * (value - known),
                            StateRule::Scan => step * value,
                        };
                        for i in 0..key_dim {
                            state[i][column] = decay * state[i][column] + key[i] * change;
                        }
                    }
                    let product =
                        |column: usize| (0..key_dim).map(|i| query[i] * state[i][column]).sum::<f64>();
                    let skip = of_scan(4, head);
                    result = values.iter().enumerate().map(|(i, x)| product(i) + skip * x).collect();
                }
                result
            };
            (0..value_heads).flat_map(of_head).collect()
        })
    }

    fn evaluate(&self, op: &Op, operands: &[&Tensor]) -> Tensor {
        let x = || operands[0].rows();
        let y = || operands[1].rows();
        Tensor::Rows(match op {
            Op::Input(Input::Tokens | Input::Positions | Input::Slots | Input::Tails | Input::OutputRows) => {
                return Tensor::Input;
            }
            Op::GivenRows { columns } => {
                let given = |row: usize, column| {
                    (row as f64 - 0.5) * f64::from(u8::from(column % 2 == 0)) + column as f64 / 8.0
                };
                let rows = self.forward.tokens.len();
                let data =
                    (0..rows).flat_map(|row| (0..*columns).map(move |column| given(row, column))).collect();
                Matrix { columns: *columns, data }
            }
            Op::Embed { weight } => {
                let rows: Vec<_> = self.forward.tokens.iter().map(|t| self.weight_row(*weight, *t)).collect();
                Matrix { columns: rows[0].len(), data: rows.concat() }
            }
            Op::RmsNorm(norm) => self.normed(x(), norm),
            Op::Linear { weights, biases, norm, residual } => {
                let mut product = self.product(&self.maybe_normed(x(), norm), weights);
                if !biases.is_empty() {
                    let bias: Vec<f64> = biases.iter().flat_map(|bias| self.weight_row(*bias, 0)).collect();
                    product =
                        product.map_rows(|_, x| x.iter().zip(&bias).map(|(x, bias)| x + bias).collect());
                }
                if *residual { product.zip(y(), |a, b| a + b) } else { product }
            }
            Op::GatedLinear { function, gate, up, norm } => {
                let x = self.maybe_normed(x(), norm);
                self.product(&x, &[*gate])
                    .zip(&self.product(&x, &[*up]), |gate, up| gated(*function, gate, up))
            }
            Op::Gate(function) => x().zip(y(), |gate, up| gated(*function, gate, up)),
            Op::Rope(rope) => self.rotated(x(), *rope),
            Op::AppendKv { rope, .. } => {
                return Tensor::Cache { k: self.maybe_rotated(x(), *rope), v: y().clone() };
            }
            Op::Attention { heads, scoring, rope, sinks, .. } => {
                let Tensor::Cache { k, v } = operands[1] else { panic!("attention reads a cache") };
                self.attended(&self.maybe_rotated(x(), *rope), (k, v), *heads, (*scoring, *sinks))
            }
            Op::ShortConv { taps, .. } => {
                let (rows, taps, channels) = (x(), self.weight_row(*taps, 0), self.kv.conv.channels);
                let count = taps.len() / channels;
                let kept = rows.map_rows(|_, x| (0..channels).map(|c| x[c] * x[2 * channels + c]).collect());
                rows.map_rows(|row, x| {
                    let of_channel = |c: usize| -> f64 {
                        let back = self.forward.paths[row].iter().rev().zip((0..count).rev());
                        x[channels + c]
                            * back.map(|(at, tap)| taps[c * count + tap] * kept.row(*at)[c]).sum::<f64>()
                    };
                    (0..channels).map(of_channel).collect()
                })
            }
            Op::Recurrence { vectors, form, .. } => {
                let given: Vec<_> = operands[..operands.len() - 2].iter().map(|rows| rows.rows()).collect();
                self.followed(&given, vectors, *form)
            }
            Op::Route { routing, vector } => self.routes(x(), routing, *vector),
            Op::RoutedGated { function, experts, biases } => {
                self.routed_gated([x(), y()], *function, experts, biases)
            }
            Op::RoutedLinear { experts, biases } => self.routed_linear([x(), y()], experts, biases),
            Op::Add => x().zip(y(), |a, b| a + b),
            Op::Scale { factor } => x().map_rows(|_, x| x.iter().map(|x| x * f64::from(*factor)).collect()),
            Op::Softcap { cap } => {
                x().map_rows(|_, x| x.iter().map(|x| capped(f64::from(*cap), *x)).collect())
            }
            Op::Slice { start, len } => x().map_rows(|_, x| x[*start..start + len].to_vec()),
            Op::SelectRows => {
                let rows: Vec<_> = self.forward.output_rows.iter().map(|row| x().row(*row)).collect();
                Matrix { columns: x().columns, data: rows.concat() }
            }
            Op::Candidates { head, most, tokens } => {
                let logits = match head {
                    None => x().clone(),
                    Some(Head { weights, norm }) => self.product(&self.maybe_normed(x(), norm), weights),
                };
                logits.map_rows(|_, logits| best(logits, tokens.as_ref(), *most))
            }
        })
    }
}
