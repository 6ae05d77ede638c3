//! Backends agree: logits of every tier against the reference backend, for models of every format and for a graph of
//! ops that no pass can fuse.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
};

use ygg_kernels::{Activations, KvFormat, Nonlinearity, RopePairing, Scoring, Tier, WeightFormat};
use yggc::{
    backend::Pinning,
    ir::{Graph, GroupId, Input, KvSpec, Norm, Op, RopeSpec, ValueId, WeightId, WeightSource, WeightSpec},
    model::{Model, synthetic::SyntheticSpec},
    runtime::{ExecutableSet, SessionOptions, SetOptions},
    sample::argmax,
    verify::logit_tolerance,
};

use crate::tiny_model::{Class, Dice, bits, everything, is_slow, loading, models, session, tested_tiers};

/// Logits after every token of a text.
pub(crate) fn logits(set: &Arc<ExecutableSet>, text: &[u32], threads: usize) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    let mut session = session(set, text.len().max(2), 1, threads);
    session.score(text, |_, logits| rows.push(logits.to_vec())).expect("it fits");
    rows
}

/// Compares with the reference: values everywhere, argmax wherever no tolerated difference could change it.
fn compare(expected: &[Vec<f32>], found: &[Vec<f32>], tolerance: f32, what: &str) {
    let spread = spread(expected, what);
    let tolerance = tolerance * spread;
    let mut clear = 0;
    for (row, (expected, found)) in expected.iter().zip(found).enumerate() {
        let worst = expected.iter().zip(found).map(|(e, f)| (e - f).abs()).fold(0.0, f32::max);
        assert!(
            worst <= tolerance && found.iter().all(|x| x.is_finite()),
            "{what}: row {row} is off by {worst}"
        );
        let best = argmax(expected);
        let top = expected[best as usize];
        let others = expected.iter().enumerate().filter(|(id, _)| *id != best as usize);
        if others.map(|(_, x)| top - x).fold(f32::INFINITY, f32::min) > 2.0 * tolerance {
            assert_eq!(argmax(found), best, "{what}: argmax of row {row}");
            clear += 1;
        }
    }
    assert!(
        4 * clear >= expected.len(),
        "{what}: only {clear} rows of {} have a clear argmax",
        expected.len()
    );
}

fn tolerance(tier: Tier, format: WeightFormat, cache: KvFormat, layers: usize, expected: &[Vec<f32>]) -> f32 {
    logit_tolerance(tier, [format].into_iter(), cache, layers, expected.iter().map(Vec::len).sum())
}

/// The root of the mean square of all logits.
fn spread(logits: &[Vec<f32>], what: &str) -> f32 {
    let count = logits.iter().map(Vec::len).sum::<usize>() as f32;
    let spread = (logits.iter().flatten().map(|x| x * x).sum::<f32>() / count).sqrt();
    assert!(spread > 1.5, "{what}: logits that hardly differ show nothing");
    spread
}

/// Compares on the whole where activations are int8 or the cache is q8. Where a difference before the rounding makes
/// another code, a 127th of the largest value of its block, some logit moves far.
pub(crate) fn compare_on_the_whole(expected: &[Vec<f32>], found: &[Vec<f32>], what: &str) {
    let spread = spread(expected, what);
    let squares: f32 =
        expected.iter().flatten().zip(found.iter().flatten()).map(|(e, f)| (e - f).powi(2)).sum();
    let usual = (squares / (expected.len() * expected[0].len()) as f32).sqrt();
    assert!(usual <= 0.05 * spread, "{what}: off by {usual} on the whole, of {spread}");
}

/// The class of the scalar tier for either kind of activations, with the classes it judges.
fn judges(classes: Vec<Class>) -> impl Iterator<Item = (Class, Vec<Class>)> {
    let (judges, others): (Vec<_>, Vec<Class>) =
        classes.into_iter().partition(|class| class.tier == Tier::Reference);
    judges.into_iter().map(move |judge| {
        let same = others.iter().filter(|class| class.activations == judge.activations);
        (judge, same.copied().collect())
    })
}

fn fast_tiers() -> impl Iterator<Item = Tier> {
    tested_tiers().into_iter().filter(|tier| *tier != Tier::Reference)
}

#[test]
fn every_tier_follows_the_reference_on_every_format() {
    for model in models() {
        let format = model.format;
        let text = Dice::new(8).tokens(45, model.model.config.vocabulary);
        for kv_format in [KvFormat::F16, KvFormat::F32, KvFormat::Q8] {
            let build = |class| model.build(class, kv_format, vec![1, 8, 32]);
            for (judge, others) in judges(model.classes()) {
                let expected = logits(&build(judge), &text, 1);
                for class in others {
                    if class.tier == Tier::Cuda && kv_format == KvFormat::Q8 {
                        continue;
                    }
                    let what = format!("{} on {class}, {} cache", model.name, kv_format.name());
                    let found = logits(&build(class), &text, 2);
                    match class.activations {
                        Activations::Native if kv_format == KvFormat::Q8 => {
                            compare_on_the_whole(&expected, &found, &what);
                        }
                        Activations::Native => {
                            compare(
                                &expected,
                                &found,
                                tolerance(
                                    class.tier,
                                    format,
                                    kv_format,
                                    model.model.config.layers,
                                    &expected,
                                ),
                                &what,
                            );
                        }
                        Activations::Int8 => {
                            compare_on_the_whole(&expected, &found, &what);
                            let native = logits(&build(Class::native(class.tier)), &text, 2);
                            assert!(native != found, "{what}: the bits of native activations");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn memory_grows_with_the_context_by_the_format_of_the_cache() {
    let model = &models()[0];
    let grown = |kv_format| {
        let set = model.build(Class::native(Tier::Portable), kv_format, vec![1]);
        let bytes = |context| {
            let options = SessionOptions { context, tree_nodes: 1, threads: 1, pinning: Pinning::Floating };
            set.memory(&options).session_bytes
        };
        bytes(96) - bytes(32)
    };
    let [q8, f16, f32] = [KvFormat::Q8, KvFormat::F16, KvFormat::F32].map(grown);
    assert!(0 < q8 && q8 < f16 && f16 < f32, "{q8}, {f16}, {f32} bytes");
}

/// Weights made up in memory.
struct Weights {
    specs: Vec<WeightSpec>,
    bytes: Vec<Vec<u8>>,
}

impl WeightSource for Weights {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes[weight.0 as usize])
    }
}

impl Weights {
    fn add(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
        format: WeightFormat,
        dice: &mut Dice,
    ) -> WeightId {
        let mut bytes = Vec::new();
        for _ in 0..rows {
            let uniform = |dice: &mut Dice| dice.below(2001) as f32 / 1000.0 - 1.0;
            let row: Vec<f32> = match rows {
                1 => (0..columns).map(|_| 1.0 + uniform(dice) / 4.0).collect(),
                _ => (0..columns).map(|_| 2.0 * uniform(dice) / (columns as f32).sqrt()).collect(),
            };
            format.quantise_row(&row, &mut bytes);
        }
        self.specs.push(WeightSpec::new(name, rows, columns, format));
        self.bytes.push(bytes);
        WeightId(self.specs.len() as u32 - 1)
    }
}

const HEADS: usize = 4;
const VOCABULARY: usize = 130;

/// One layer in which every op stands alone: whatever a pass would fuse has a second reader. Gives its logits times
/// 3, so that a scale runs on output rows too.
fn unfusable(format: WeightFormat) -> (Graph, Weights) {
    let mut dice = Dice::new(1);
    let mut weights = Weights { specs: Vec::new(), bytes: Vec::new() };
    let mut matrix = |name, rows, columns| weights.add(name, rows, columns, format, &mut dice);
    let [d, f] = [64, 96].map(|columns: usize| columns.next_multiple_of(format.block_len()));
    let kv = KvSpec { layers: 1, kv_heads: 2, head_dim: d / HEADS, ..KvSpec::default() };
    let keys = kv.kv_heads * kv.head_dim;
    let embedding = matrix("embedding", VOCABULARY, d);
    let [q, k, v] = [matrix("q", d, d), matrix("k", keys, d), matrix("v", keys, d)];
    let attention_output = matrix("attention_output", d, d);
    let [gate, up, down] = [matrix("gate", f, d), matrix("up", f, d), matrix("down", d, f)];
    let mut gain = |name| weights.add(name, 1, d, WeightFormat::F32, &mut dice);
    let [attention_norm, mlp_norm, final_norm] =
        [gain("attention_norm"), gain("mlp_norm"), gain("final_norm")];

    let mut graph = Graph::new("unfusable", weights.specs.clone(), kv);
    let inv_freq = (0..kv.head_dim / 2).map(|i| 0.5f32.powi(i as i32)).collect();
    let rope = graph.add_rope(RopeSpec::new(kv.head_dim, RopePairing::Halves, inv_freq));
    let mut add = |op: Op, operands: &[ValueId], group: Option<u32>| {
        graph.add(op, operands, group.map(GroupId)).expect("a lawful op")
    };
    let norm = |weight| Op::RmsNorm(Norm { weight, eps: 1e-5 });
    let linear = |weight| Op::Linear { weights: vec![weight], biases: vec![], norm: None, residual: false };
    let [tokens, positions, slots, tails, output_rows] =
        [Input::Tokens, Input::Positions, Input::Slots, Input::Tails, Input::OutputRows]
            .map(|input| add(Op::Input(input), &[], None));

    let x = add(Op::Embed { weight: embedding }, &[tokens], None);
    let x = add(Op::Scale { factor: 1.5 }, &[x], None);
    let n = add(norm(attention_norm), &[x], Some(0));
    let [q, k, v] = [q, k, v].map(|w| add(linear(w), &[n], Some(0)));
    let [q, k] = [q, k].map(|value| add(Op::Rope(rope), &[value, positions], Some(0)));
    let k = add(Op::Add, &[k, k], Some(0));
    let append = add(Op::AppendKv { layer: 0, rope: None }, &[k, v, slots, positions], Some(0));
    let half = add(Op::Scale { factor: 0.5 }, &[q], Some(0));
    let q = add(Op::Add, &[q, half], Some(0));
    let attend =
        Op::Attention { layer: 0, heads: HEADS, scoring: Scoring::scaled(0.25), rope: None, sinks: None };
    let heads = add(attend, &[q, append, tails, positions], Some(0));
    let out = add(linear(attention_output), &[heads], Some(0));
    let out = add(Op::Add, &[out, n], Some(0));
    let x = add(Op::Add, &[x, out], Some(0));

    let n = add(norm(mlp_norm), &[x], Some(1));
    let [gate, up] = [gate, up].map(|w| add(linear(w), &[n], Some(1)));
    let gated = add(Op::Gate(Nonlinearity::Silu), &[gate, up], Some(1));
    let gated = add(Op::Add, &[gated, up], Some(1));
    let out = add(linear(down), &[gated], Some(1));
    let out = add(Op::Add, &[out, n], Some(1));
    let x = add(Op::Add, &[x, out], Some(1));

    let rows = add(Op::SelectRows, &[x, output_rows], None);
    let n = add(norm(final_norm), &[rows], None);
    let sum = add(Op::Add, &[n, rows], None);
    let logits = add(linear(embedding), &[sum], None);
    let logits = add(Op::Scale { factor: 3.0 }, &[logits], None);
    graph.set_logits(logits);
    (graph, weights)
}

#[test]
fn ops_that_no_pass_fuses_follow_the_reference_too() {
    const CACHES: [KvFormat; 3] = [KvFormat::F16, KvFormat::F32, KvFormat::Q8];
    for (i, format) in WeightFormat::ALL.into_iter().enumerate() {
        let (graph, weights) = unfusable(format);
        let build = |tier, kv_format| {
            let widths = vec![1, 5, 8];
            let activations = Activations::Native;
            let options = SetOptions {
                tier,
                kv_format,
                activations,
                widths,
                model_context: 64,
                threads: 1,
                resident: None,
            };
            Arc::new(ExecutableSet::build(&graph, &weights, &options).expect("it compiles and loads"))
        };
        let text = Dice::new(2).tokens(40, VOCABULARY);
        // Caches know nothing of formats of weights: the first format meets all of them, the others one each.
        for kv_format in if i == 0 { &CACHES[..] } else { &CACHES[i % 3..][..1] }.iter().copied() {
            let expected = logits(&build(Tier::Reference, kv_format), &text, 1);
            for tier in fast_tiers() {
                if tier == Tier::Cuda && kv_format == KvFormat::Q8 {
                    continue;
                }
                let what = format!("{format} on {tier}, {} cache", kv_format.name());
                let set = build(tier, kv_format);
                let found = logits(&set, &text, 3);
                if kv_format == KvFormat::Q8 {
                    compare_on_the_whole(&expected, &found, &what);
                } else {
                    compare(&expected, &found, tolerance(tier, format, kv_format, 1, &expected), &what);
                }

                let mut session = session(&set, 64, 1, 2);
                let rows = if is_slow(tier) && !everything() { text.len() / 2 } else { text.len() };
                for (i, token) in text[..rows].iter().enumerate() {
                    let one = bits(session.prefill(&[*token]).expect("it fits"));
                    assert!(one == bits(&found[i]), "{what}: one row at a time, row {i}");
                }
            }
        }
    }
}

#[test]
fn the_unfusable_graph_stays_unfused() {
    let (graph, _) = unfusable(WeightFormat::F32);
    let device = yggc::ir::DeviceSpec::cpu(Tier::Portable, KvFormat::F16);
    let binding = yggc::ir::Binding { width: 4, outputs: 2 };
    let program = yggc::compile::compile(&graph, binding, &device).expect("it compiles");
    let count = |name| program.steps.iter().filter(|step| step.op.name() == name).count();
    let ops = ["rms_norm", "rope", "gate", "add", "scale", "gated_linear"];
    assert_eq!(ops.map(count), [3, 2, 1, 8, 3, 0]);
}

#[test]
fn loading_is_told_of_to_its_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for tied in [true, false] {
        let path = folder.path().join(format!("{tied}.gguf"));
        SyntheticSpec { tied, ..SyntheticSpec::default() }.write_gguf(&path).expect("the model is written");
        for tier in tested_tiers() {
            let told = Arc::new(Mutex::new(Vec::new()));
            let listener = Arc::clone(&told);
            let model = Model::open(&path).expect("a generated model opens");
            let model = model.watched(move |loaded, total| {
                listener.lock().expect("no listener panics").push((loaded, total));
            });
            let options = SetOptions {
                tier,
                kv_format: KvFormat::F16,
                activations: Activations::Native,
                widths: vec![1, 4],
                model_context: model.config.context,
                threads: 2,
                resident: None,
            };
            ExecutableSet::load(&model.graph, &loading(&model), &options).expect("it loads");
            let told = told.lock().expect("no listener panicked");
            let all = model
                .graph
                .weights()
                .iter()
                .zip(0..)
                .map(|(_, id)| model.weights.bytes(WeightId(id)).len() as u64);
            let total = all.sum::<u64>();
            assert_eq!(told.len(), model.graph.weights().len(), "{tier}: each weight is told of once");
            assert!(told.iter().all(|(_, of)| *of == total), "{tier}: {told:?}");
            assert!(told.is_sorted(), "{tier}: {told:?}");
            assert_eq!(told.last(), Some(&(total, total)), "{tier}");
        }
    }
}
