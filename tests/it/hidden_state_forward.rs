//! A hidden-state drafter's forward against plain loops over its file: no graph, no kernel, no cache.

use std::{collections::BTreeMap, fs, sync::Arc};

use ygg_kernels::{KvFormat, Tier, WeightFormat};
use yggc::{
    model::{
        HiddenStateModel, Model,
        safetensors::parse,
        synthetic::{HiddenStateSpec, SyntheticSpec},
    },
    runtime::{ExecutableSet, SetOptions},
};

use crate::tiny_model::{Dice, is_cuda, session};

const CONTEXT: usize = 64;
/// Of a logit, relative to the largest: the engine rounds nothing to less than single precision here.
const TOLERANCE: f32 = 2e-4;

/// Weights by their names in the drafter's file, and the verifier's table of tokens, which is its head too.
struct Weights {
    own: BTreeMap<String, Vec<f32>>,
    table: Vec<f32>,
    spec: SyntheticSpec,
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    numbers.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

impl Weights {
    fn normed(&self, x: &[f32], gain: &str) -> Vec<f32> {
        let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
        let scale = 1.0 / (mean + 1e-5).sqrt();
        x.iter().zip(&self.own[gain]).map(|(x, gain)| x * scale * gain).collect()
    }

    fn product(&self, name: &str, x: &[f32]) -> Vec<f32> {
        product(&self.own[name], x)
    }

    /// Rotated by halves, as Hugging Face pairs them.
    fn rotated(&self, heads: &[f32], position: usize) -> Vec<f32> {
        let width = self.spec.head_dim;
        let rotate = |head: &[f32]| -> Vec<f32> {
            let half = width / 2;
            let angle = |i: usize| position as f64 * self.spec.rope.base.powf(-2.0 * i as f64 / width as f64);
            let turned = |i: usize| {
                let (sin, cos) = (angle(i % half).sin() as f32, angle(i % half).cos() as f32);
                let other = if i < half { -head[i + half] } else { head[i - half] };
                head[i] * cos + other * sin
            };
            (0..width).map(turned).collect()
        };
        heads.chunks(width).flat_map(rotate).collect()
    }

    /// Logits for the token after each of `tokens[1..]`, where `hidden[p]` is the verifier's hidden row at `p`, and the
    /// drafter's own last hidden rows.
    fn forward(&self, tokens: &[u32], hidden: &[Vec<f32>]) -> Vec<(Vec<f32>, Vec<f32>)> {
        let layer = |part: &str| format!("layers.0.{part}.weight");
        let SyntheticSpec { width, heads, kv_heads, head_dim, .. } = self.spec;
        let (mut keys, mut values, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for position in 1..tokens.len() {
            let embedding = &self.table[tokens[position] as usize * width..][..width];
            let token = self.normed(embedding, "enorm.weight");
            let before = self.normed(&hidden[position - 1], "hnorm.weight");
            let mut x = self.product("eh_proj.weight", &[token, before].concat());

            let n = self.normed(&x, &layer("input_layernorm"));
            let q = self.rotated(&self.product(&layer("self_attn.q_proj"), &n), position);
            keys.push(self.rotated(&self.product(&layer("self_attn.k_proj"), &n), position));
            values.push(self.product(&layer("self_attn.v_proj"), &n));
            let mut attended = vec![0.0; heads * head_dim];
            for head in 0..heads {
                let shared = head * kv_heads / heads * head_dim;
                let q = &q[head * head_dim..][..head_dim];
                let score = |k: &Vec<f32>| {
                    let dot: f32 = q.iter().zip(&k[shared..][..head_dim]).map(|(a, b)| a * b).sum();
                    dot / (head_dim as f32).sqrt()
                };
                let scores: Vec<f32> = keys.iter().map(score).collect();
                let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let weights: Vec<f32> = scores.iter().map(|s| (s - most).exp()).collect();
                let sum: f32 = weights.iter().sum();
                for (weight, v) in weights.iter().zip(&values) {
                    for (to, v) in attended[head * head_dim..][..head_dim].iter_mut().zip(&v[shared..]) {
                        *to += weight / sum * v;
                    }
                }
            }
            add(&mut x, &self.product(&layer("self_attn.o_proj"), &attended));
            let n = self.normed(&x, &layer("post_attention_layernorm"));
            let gate = self.product(&layer("mlp.gate_proj"), &n);
            let up = self.product(&layer("mlp.up_proj"), &n);
            let gated: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(&mut x, &self.product(&layer("mlp.down_proj"), &gated));
            rows.push((product(&self.table, &self.normed(&x, "norm.weight")), x));
        }
        rows
    }
}

fn product(matrix: &[f32], x: &[f32]) -> Vec<f32> {
    matrix.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

#[track_caller]
fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= TOLERANCE * largest, "{what}: off by {worst} where the largest is {largest}");
    assert!(largest > 0.1, "{what}: nothing to compare");
}

#[test]
fn a_forward_is_what_its_file_says() {
    let verifier = SyntheticSpec { layers: 2, vocabulary: 300, context: CONTEXT, ..SyntheticSpec::default() };
    let mut drafter = HiddenStateSpec::for_verifier(&verifier);
    // Fewer heads and another width of the MLP than the verifier's.
    let smaller = SyntheticSpec {
        format: WeightFormat::F32,
        heads: 3,
        kv_heads: 1,
        head_dim: 8,
        feed_forward: 56,
        ..drafter.shape.clone()
    };
    drafter.shape = smaller.clone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    verifier.write_folder(&folder.path().join("verifier")).expect("written");
    drafter.write_folder(folder.path()).expect("written");
    let model = Model::open(&folder.path().join("verifier")).expect("a generated model opens");
    let hidden_state = HiddenStateModel::open(folder.path()).expect("opens").expect("says what it is");

    let options = SetOptions {
        tier: if is_cuda() { Tier::Cuda } else { Tier::Portable },
        kv_format: KvFormat::F32,
        activations: ygg_kernels::Activations::Native,
        widths: vec![4, 32],
        model_context: CONTEXT,
        threads: 1,
        resident: None,
    };
    let set = ExecutableSet::build(&model.graph, model.weights.as_ref(), &options).expect("loads");
    let set = Arc::new(set.with_kept_hidden(model.weights.as_ref()).expect("loads"));
    let (graph, weights) = hidden_state.over(set.graph(), Arc::clone(&model.weights)).expect("its verifier");
    let draft = Arc::new(set.beside(&graph, weights.as_ref(), CONTEXT).expect("loads"));

    let bytes = fs::read(folder.path().join("model.safetensors")).expect("written");
    let own = parse(&bytes).expect("a whole file").tensors.into_iter();
    let own = own.map(|(name, info)| (name, floats(&bytes[info.bytes])));
    let bytes = fs::read(folder.path().join("verifier/model.safetensors")).expect("written");
    let table = &parse(&bytes).expect("a whole file").tensors["model.embed_tokens.weight"];
    let reference = Weights { own: own.collect(), table: floats(&bytes[table.bytes.clone()]), spec: smaller };

    let tokens = Dice::new(3).tokens(27, 300);
    let mut verifying = session(&set, CONTEXT, 4, 1);
    verifying.keep_hidden().expect("made for that");
    // Some by a prefill, some by a forward: all are kept.
    verifying.prefill(&tokens[..20]).expect("it fits");
    verifying.score(&tokens[20..], |_, _| ()).expect("it fits");
    let hidden: Vec<Vec<f32>> = (0..tokens.len())
        .map(|place| verifying.committed_hidden(place).expect("committed").to_vec())
        .collect();
    assert!(verifying.committed_hidden(tokens.len()).is_none());
    let expected = reference.forward(&tokens, &hidden);

    let mut drafting = session(&draft, CONTEXT, 4, 1);
    let prefilled = 9;
    let given = |index: usize, row: &mut [f32]| row.copy_from_slice(&hidden[index]);
    let logits = drafting.prefill_with(&tokens[1..=prefilled], given).expect("it fits");
    close(logits, &expected[prefilled - 1].0, "a prefill");
    let rest = &tokens[prefilled + 1..];
    let mut forward = drafting.forward(rest.len()).expect("a planned width");
    for (row, token) in rest.iter().enumerate() {
        forward.push_behind(*token);
        forward.give(row, &hidden[prefilled + row]);
    }
    let logits = forward.run(None);
    for (row, (expected, _)) in expected[prefilled..].iter().enumerate() {
        close(logits.row(row), expected, "a forward");
    }
    for (row, (_, expected)) in expected[prefilled..].iter().enumerate() {
        close(drafting.hidden(row).expect("it ran"), expected, "its hidden rows");
    }
}
