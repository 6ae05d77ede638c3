//! A llama-like model built by hand, with the variations that passes must notice.

use std::f32::consts::FRAC_1_SQRT_2;

use proptest::prelude::*;
use ygg_kernels::{
    Gating, Nonlinearity, RopePairing, RouteVector, Routing, Scoring, StateForm, StateRule, StateShape,
    WeightFormat,
};

use crate::ir::{
    ConvSpec, Graph, GroupId, Input, KvSpec, Norm, Op, RopeId, RopeSpec, StateSpec, ValueId, WeightId,
    WeightSpec,
};

/// Where the factor on the queries stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Factor {
    BeforeRope,
    AfterRope,
    Twice,
}

/// What the model is.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) layers: usize,
    pub(super) model: usize,
    pub(super) kv_heads: usize,
    pub(super) heads_per_kv: usize,
    pub(super) head_dim: usize,
    pub(super) feed_forward: usize,
    pub(super) vocab: usize,
    pub(super) tied: bool,
    pub(super) norms: bool,
    pub(super) grouped: bool,
    pub(super) factor: Factor,
    pub(super) pairing: RopePairing,
    /// Formats of the matrices, repeated in order of creation.
    pub(super) formats: Vec<WeightFormat>,
}

impl Shape {
    /// Two layers in one format: what the golden dumps show.
    pub(super) fn plain() -> Self {
        Self {
            layers: 2,
            model: 48,
            kv_heads: 2,
            heads_per_kv: 3,
            head_dim: 8,
            feed_forward: 80,
            vocab: 100,
            tied: true,
            norms: true,
            grouped: true,
            factor: Factor::AfterRope,
            pairing: RopePairing::Halves,
            formats: vec![WeightFormat::Q8_0],
        }
    }

    /// Any small model.
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let factor = prop_oneof![Just(Factor::BeforeRope), Just(Factor::AfterRope), Just(Factor::Twice)];
        let pairing = prop_oneof![Just(RopePairing::Adjacent), Just(RopePairing::Halves)];
        let format = prop_oneof![3 => Just(WeightFormat::F32), 1 => Just(WeightFormat::BF16)];
        let sizes = (1usize..3, 1usize..20, 1usize..3, 1usize..4, 1usize..4, 1usize..40, 1usize..40);
        let flags = (any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.8));
        let formats = prop::collection::vec(format, 1..6);
        (sizes, flags, factor, pairing, formats).prop_map(|(sizes, flags, factor, pairing, formats)| {
            let (layers, model, kv_heads, heads_per_kv, pairs, feed_forward, vocab) = sizes;
            let (tied, norms, grouped) = flags;
            let head_dim = 2 * pairs;
            Self {
                layers,
                model,
                kv_heads,
                heads_per_kv,
                head_dim,
                feed_forward,
                vocab,
                tied,
                norms,
                grouped,
                factor,
                pairing,
                formats,
            }
        })
    }

    /// The model's graph, of symbolic width.
    pub(super) fn graph(&self) -> Graph {
        let kv = KvSpec {
            layers: self.layers,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            ..KvSpec::default()
        };
        let weights = self.weights();
        let names = weights.iter().map(|w| w.name.clone()).collect();
        let mut graph = Graph::new("example", weights, kv);
        let inv_freq = (0..self.head_dim / 2).map(|i| 1.0 / 10f32.powi(i32::try_from(i).unwrap())).collect();
        let rope = graph.add_rope(RopeSpec::new(self.head_dim, self.pairing, inv_freq));
        let inputs = [Input::Tokens, Input::Positions, Input::Slots, Input::Tails, Input::OutputRows]
            .map(|input| graph.add(Op::Input(input), &[], None).unwrap());
        let mut builder = Builder { graph, names, shape: self, rope, group: None };
        let logits = builder.model(inputs);
        builder.graph.set_logits(logits);
        builder.graph
    }

    fn weights(&self) -> Vec<WeightSpec> {
        let (queries, keys) =
            (self.kv_heads * self.heads_per_kv * self.head_dim, self.kv_heads * self.head_dim);
        let mut weights = Vec::new();
        let mut formats = self.formats.iter().cycle();
        let mut matrix = |name: String, rows: usize, columns: usize| {
            let format =
                if rows == 1 && name.contains("norm") { WeightFormat::F32 } else { *formats.next().unwrap() };
            weights.push(WeightSpec::new(name, rows, columns, format));
        };
        matrix("embed".into(), self.vocab, self.model);
        for layer in 0..self.layers {
            matrix(format!("{layer}.norm"), 1, self.model);
            matrix(format!("{layer}.q"), queries, self.model);
            matrix(format!("{layer}.k"), keys, self.model);
            matrix(format!("{layer}.v"), keys, self.model);
            matrix(format!("{layer}.o"), self.model, queries);
            matrix(format!("{layer}.mlp_norm"), 1, self.model);
            matrix(format!("{layer}.gate"), self.feed_forward, self.model);
            matrix(format!("{layer}.up"), self.feed_forward, self.model);
            matrix(format!("{layer}.down"), self.model, self.feed_forward);
        }
        matrix("norm".into(), 1, self.model);
        if !self.tied {
            matrix("head".into(), self.vocab, self.model);
        }
        weights
    }
}

struct Builder<'a> {
    graph: Graph,
    names: Vec<String>,
    shape: &'a Shape,
    rope: RopeId,
    group: Option<GroupId>,
}

impl Builder<'_> {
    fn weight(&self, name: &str) -> WeightId {
        let place = self.names.iter().position(|known| known == name).unwrap();
        WeightId(u32::try_from(place).unwrap())
    }

    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.graph.add(op, operands, self.group).unwrap()
    }

    fn enter(&mut self, group: usize) {
        self.group = self.shape.grouped.then(|| GroupId(u32::try_from(group).unwrap()));
    }

    fn norm(&mut self, name: &str, x: ValueId) -> ValueId {
        if !self.shape.norms {
            return x;
        }
        let norm = Norm { weight: self.weight(name), eps: 1e-5 };
        self.add(Op::RmsNorm(norm), &[x])
    }

    fn linear(&mut self, name: &str, x: ValueId) -> ValueId {
        let weights = vec![self.weight(name)];
        self.add(Op::Linear { weights, biases: vec![], norm: None, residual: false }, &[x])
    }

    fn queries(&mut self, q: ValueId, positions: ValueId) -> ValueId {
        let rope = Op::Rope(self.rope);
        match self.shape.factor {
            Factor::AfterRope => {
                let q = self.add(rope, &[q, positions]);
                self.add(Op::Scale { factor: FRAC_1_SQRT_2 }, &[q])
            }
            Factor::BeforeRope => {
                let q = self.add(Op::Scale { factor: FRAC_1_SQRT_2 }, &[q]);
                self.add(rope, &[q, positions])
            }
            Factor::Twice => {
                let q = self.add(Op::Scale { factor: 4.0 }, &[q]);
                let q = self.add(Op::Scale { factor: 1.0 }, &[q]);
                let q = self.add(Op::Scale { factor: 0.125 }, &[q]);
                self.add(rope, &[q, positions])
            }
        }
    }

    fn model(&mut self, inputs: [ValueId; 5]) -> ValueId {
        let [tokens, positions, slots, tails, output_rows] = inputs;
        let embed = self.weight("embed");
        let mut stream = self.add(Op::Embed { weight: embed }, &[tokens]);
        for layer in 0..self.shape.layers {
            self.enter(2 * layer);
            let x = self.norm(&format!("{layer}.norm"), stream);
            let [q, k, v] = ["q", "k", "v"].map(|name| self.linear(&format!("{layer}.{name}"), x));
            let k = self.add(Op::Rope(self.rope), &[k, positions]);
            let appended = self.add(Op::AppendKv { layer, rope: None }, &[k, v, slots, positions]);
            let q = self.queries(q, positions);
            let heads = self.shape.kv_heads * self.shape.heads_per_kv;
            let attention =
                Op::Attention { layer, heads, scoring: Scoring::scaled(1.0), rope: None, sinks: None };
            let attended = self.add(attention, &[q, appended, tails, positions]);
            let o = self.linear(&format!("{layer}.o"), attended);
            stream = self.add(Op::Add, &[stream, o]);

            self.enter(2 * layer + 1);
            let x = self.norm(&format!("{layer}.mlp_norm"), stream);
            let [gate, up] = ["gate", "up"].map(|name| self.linear(&format!("{layer}.{name}"), x));
            let product = self.add(Op::Gate(Nonlinearity::Silu), &[gate, up]);
            let down = self.linear(&format!("{layer}.down"), product);
            stream = self.add(Op::Add, &[stream, down]);
        }
        self.group = None;
        let selected = self.add(Op::SelectRows, &[stream, output_rows]);
        self.graph.set_hidden(selected);
        let x = self.norm("norm", selected);
        self.linear(if self.shape.tied { "embed" } else { "head" }, x)
    }
}

/// A stream `[W, 8]` and the logits `[R, 8]` over what `build` makes of it. Weights: 0 and 1 are square in F32, 2 in
/// BF16, 3 is a gain, 4 a bias, 5 the gain of heads of 4, 6 makes gates and values of 8 channels, 7 holds 3 taps of
/// each, 8 has an element for each of two heads, 9 one for each of 12 channels. Cache: two layers of one head of 4, and
/// many of convolutions and of recurrences of 12 channels with 2 taps. Rotations: 0 of heads of 4, 1 of heads of 2.
pub(super) fn over_stream(build: impl FnOnce(&mut Small) -> ValueId) -> Graph {
    over_stream_by(StateRule::Delta, build)
}

/// The same, with recurrences of a rule.
pub(super) fn over_stream_by(rule: StateRule, build: impl FnOnce(&mut Small) -> ValueId) -> Graph {
    let weights = [
        ("a", 8, WeightFormat::F32),
        ("b", 8, WeightFormat::F32),
        ("c", 8, WeightFormat::BF16),
        ("gain", 1, WeightFormat::F32),
        ("bias", 1, WeightFormat::F32),
    ]
    .map(|(name, rows, format)| WeightSpec::new(name, rows, 8, format));
    let of_heads = WeightSpec::new("gain of heads", 1, 4, WeightFormat::F32);
    let gates = WeightSpec::new("gates", 24, 8, WeightFormat::F32);
    let taps = WeightSpec::new("taps", 1, 24, WeightFormat::F32);
    let two_heads = WeightSpec::new("two heads", 1, 2, WeightFormat::F32);
    let of_channels = WeightSpec::new("twelve channels", 1, 12, WeightFormat::F32);
    let weights = weights.into_iter().chain([of_heads, gates, taps, two_heads, of_channels]).collect();
    let shape = StateShape { rule, key_heads: 1, value_heads: 2, key_dim: 2, value_dim: 4, taps: 2 };
    let mut graph = Graph::new(
        "small",
        weights,
        KvSpec {
            layers: 2,
            kv_heads: 1,
            head_dim: 4,
            conv: ConvSpec { layers: 64, channels: 8 },
            states: StateSpec { layers: 64, shape },
            ..KvSpec::default()
        },
    );
    let ropes = [4, 2].map(|head_dim| {
        let inv_freq = (0..head_dim / 2).map(|i| 1.0 / (i + 1) as f32).collect();
        graph.add_rope(RopeSpec::new(head_dim, RopePairing::Halves, inv_freq))
    });
    let [tokens, positions, slots, tails, rows] =
        [Input::Tokens, Input::Positions, Input::Slots, Input::Tails, Input::OutputRows]
            .map(|input| graph.add(Op::Input(input), &[], None).unwrap());
    let stream = graph.add(Op::Embed { weight: WeightId(0) }, &[tokens], None).unwrap();
    let mut small =
        Small { graph, stream, positions, slots, tails, ropes, group: None, convolutions: 0, rules: 0 };
    let last = build(&mut small);
    let mut graph = small.graph;
    let logits = graph.add(Op::SelectRows, &[last, rows], None).unwrap();
    graph.set_logits(logits);
    graph
}

/// A small graph under construction; `group` is that of the ops to come.
pub(super) struct Small {
    pub(super) graph: Graph,
    pub(super) stream: ValueId,
    pub(super) positions: ValueId,
    pub(super) slots: ValueId,
    pub(super) tails: ValueId,
    pub(super) ropes: [RopeId; 2],
    pub(super) group: Option<GroupId>,
    /// Those that there are.
    convolutions: usize,
    rules: usize,
}

impl Small {
    pub(super) fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.graph.add(op, operands, self.group).unwrap()
    }

    pub(super) fn linear(&mut self, weight: u32, x: ValueId) -> ValueId {
        self.add(
            Op::Linear { weights: vec![WeightId(weight)], biases: vec![], norm: None, residual: false },
            &[x],
        )
    }

    pub(super) fn biased(&mut self, weight: u32, x: ValueId) -> ValueId {
        let (weights, biases) = (vec![WeightId(weight)], vec![WeightId(4)]);
        self.add(Op::Linear { weights, biases, norm: None, residual: false }, &[x])
    }

    /// Every half of `x` normalised by itself.
    pub(super) fn norm_heads(&mut self, x: ValueId) -> ValueId {
        self.add(Op::RmsNorm(Norm { weight: WeightId(5), eps: 1e-5 }), &[x])
    }

    pub(super) fn sum(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.add(Op::Add, &[a, b])
    }

    pub(super) fn scale(&mut self, factor: f32, x: ValueId) -> ValueId {
        self.add(Op::Scale { factor }, &[x])
    }

    pub(super) fn norm(&mut self, x: ValueId) -> ValueId {
        self.add(Op::RmsNorm(Norm { weight: WeightId(3), eps: 1e-5 }), &[x])
    }

    pub(super) fn slice(&mut self, start: usize, len: usize, x: ValueId) -> ValueId {
        self.add(Op::Slice { start, len }, &[x])
    }

    pub(super) fn rope(&mut self, rope: usize, x: ValueId) -> ValueId {
        self.add(Op::Rope(self.ropes[rope]), &[x, self.positions])
    }

    pub(super) fn append(&mut self, k: ValueId, v: ValueId) -> ValueId {
        self.add(Op::AppendKv { layer: 0, rope: None }, &[k, v, self.slots, self.positions])
    }

    /// A convolution over the last three positions, in a layer of its own.
    pub(super) fn short_conv(&mut self, x: ValueId) -> ValueId {
        let gated = self.linear(6, x);
        let op = Op::ShortConv { layer: self.convolutions, taps: WeightId(7) };
        self.convolutions += 1;
        self.add(op, &[gated, self.slots, self.tails])
    }

    /// A recurrence in a layer of its own; what goes in are parts of one product.
    pub(super) fn recurrence(&mut self, x: ValueId) -> ValueId {
        let all = self.linear(6, x);
        let [x, steps, rates] = [(0, 12), (12, 2), (20, 2)].map(|(start, len)| self.slice(start, len, all));
        let form = StateForm { is_grouped: true, is_logarithm: true, steps: [0.125, 2.0] };
        let (vectors, operands): (&[u32], &[ValueId]) = match self.graph.kv().states.shape.rule {
            StateRule::Delta => (&[7, 8, 8], &[x, steps, rates, self.slots, self.tails]),
            StateRule::Scan => (&[7, 8, 8, 9, 8], &[x, steps, self.slots, self.tails]),
        };
        let vectors = vectors.iter().copied().map(WeightId).collect();
        let op = Op::Recurrence { layer: self.rules, vectors, form };
        self.rules += 1;
        self.add(op, operands)
    }

    /// Experts that rows choose two of by the second matrix: the first two matrices in turn, with biases, joined.
    pub(super) fn experts(&mut self, x: ValueId) -> ValueId {
        self.experts_by(x, RouteVector::Bias(WeightId(4)))
    }

    /// The same, whose router has this vector.
    pub(super) fn experts_by(&mut self, x: ValueId, vector: RouteVector<WeightId>) -> ValueId {
        let scores = self.linear(1, x);
        let routing = Routing { used: 2, gating: Gating::Softmax, normalised: Some(0.0), scale: 1.5 };
        let routes = self.add(Op::Route { routing, vector: Some(vector) }, &[scores]);
        let experts: Vec<_> = [0, 1].into_iter().cycle().take(16).map(WeightId).collect();
        let biases = vec![WeightId(4); experts.len()];
        let function = Nonlinearity::ClampedSilu;
        let gated = Op::RoutedGated { function, experts: experts.clone(), biases: biases.clone() };
        let gated = self.add(gated, &[x, routes]);
        let half = experts.len() / 2;
        let joined = Op::RoutedLinear { experts: experts[half..].to_vec(), biases: biases[half..].to_vec() };
        self.add(joined, &[gated, routes])
    }

    /// Attention to the last two positions, of bounded scores, with sinks.
    pub(super) fn windowed(&mut self, q: ValueId, appended: ValueId) -> ValueId {
        let scoring = Scoring { scale: 0.5, softcap: Some(1.5), window: Some(2) };
        let op = Op::Attention { layer: 0, heads: 2, scoring, rope: None, sinks: Some(WeightId(8)) };
        self.add(op, &[q, appended, self.tails, self.positions])
    }

    pub(super) fn attention(&mut self, q: ValueId, appended: ValueId) -> ValueId {
        let op = Op::Attention { layer: 0, heads: 2, scoring: Scoring::scaled(0.5), rope: None, sinks: None };
        self.add(op, &[q, appended, self.tails, self.positions])
    }
}
