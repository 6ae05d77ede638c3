//! The tensors of a synthetic model and their elements.

use std::ops::Range;

use ygg_kernels::{RopePairing, WeightFormat};

use super::{SyntheticExperts, SyntheticSpec, numbers::Stream};
use crate::model::Container;

/// What is in a tensor.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// Norm gains around 1, multiples of 1/64: exact in every float format.
    Gain,
    /// Normal numbers of this standard deviation.
    Matrix { deviation: f32 },
    /// Normal numbers of this standard deviation, and 1 more where the column is the row's from `first` on.
    HandsOn { deviation: f32, first: usize },
    /// A matrix whose rows are heads of this size, rotated in pairs.
    Heads { deviation: f32, head_dim: usize },
}

/// One tensor of a synthetic model under both its names.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) gguf_name: String,
    pub(super) folder_name: String,
    /// `[rows, columns]`, or `[columns]` for gains, or `[experts, rows, columns]`.
    pub(super) shape: Vec<usize>,
    pub(super) format: WeightFormat,
    content: Content,
    numbers: Stream,
    distinct_rows: usize,
}

/// Stream of the numbers of the router of layer 0, those of other layers after it: one that no other tensor has, so
/// that all others are the same with and without experts.
const ROUTERS: u64 = 1 << 32;

impl Tensor {
    pub(super) fn rows(&self) -> usize {
        self.shape[..self.shape.len() - 1].iter().product()
    }

    pub(super) fn columns(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// Rows after which the rows of a GGUF file come again, if they do.
    pub(super) fn period(&self) -> Option<usize> {
        let heads = match self.content {
            Content::Heads { head_dim, .. } => head_dim,
            Content::Gain | Content::Matrix { .. } | Content::HandsOn { .. } => 1,
        };
        // Rows of a head change places within it.
        let is_whole =
            self.distinct_rows.is_multiple_of(heads) || heads.is_multiple_of(self.distinct_rows.max(1));
        (self.distinct_rows < self.rows() && is_whole).then(|| self.distinct_rows.max(heads))
    }

    /// The bytes of a row in the order of a GGUF file, where a head's pairs are adjacent.
    pub(super) fn gguf_row(&self, row: usize, out: &mut Vec<u8>) {
        let row = match self.content {
            Content::Heads { head_dim, .. } => {
                let (head, element) = (row / head_dim, row % head_dim);
                head * head_dim + element / 2 + element % 2 * (head_dim / 2)
            }
            Content::Gain | Content::Matrix { .. } | Content::HandsOn { .. } => row,
        };
        self.format.quantise_row(&self.values(row), out);
    }

    /// The tensors of a folder that it is: their names and rows. One, or one for each expert.
    pub(super) fn folder_parts(&self) -> Vec<(String, Range<usize>)> {
        let [count, rows, _] = self.shape[..] else {
            return vec![(self.folder_name.clone(), 0..self.rows())];
        };
        let part = |number: usize| {
            (self.folder_name.replace(EXPERT, &number.to_string()), number * rows..(number + 1) * rows)
        };
        (0..count).map(part).collect()
    }

    /// The bytes of rows of the tensor in a folder, quantised formats as the F32 they stand for.
    pub(super) fn folder_bytes(&self, rows: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in rows {
            let mut stored = Vec::new();
            self.format.quantise_row(&self.values(row), &mut stored);
            if self.folder_format() != self.format {
                let mut values = vec![0.0; self.columns()];
                self.format.dequantise_row(&stored, &mut values);
                stored.clear();
                self.folder_format().quantise_row(&values, &mut stored);
            }
            bytes.append(&mut stored);
        }
        bytes
    }

    pub(super) fn folder_format(&self) -> WeightFormat {
        if self.format.is_dense() { self.format } else { WeightFormat::F32 }
    }

    fn values(&self, row: usize) -> Vec<f32> {
        let start = (row % self.distinct_rows.max(1) * self.columns()) as u64;
        let indices = start..start + self.columns() as u64;
        match self.content {
            Content::Gain => {
                indices.map(|i| 1.0 + ((self.numbers.bits(i) % 33) as f32 - 16.0) / 64.0).collect()
            }
            Content::Matrix { deviation } | Content::Heads { deviation, .. } => {
                indices.map(|i| deviation * self.numbers.normal(i)).collect()
            }
            Content::HandsOn { deviation, first } => {
                let mut values: Vec<f32> = indices.map(|i| deviation * self.numbers.normal(i)).collect();
                values[first + row] += 1.0;
                values
            }
        }
    }
}

/// What stands for the number of an expert in the name of a folder's tensor.
const EXPERT: &str = "EXPERT";

/// Standard deviation of the logits of a normalised row.
const LOGIT_DEVIATION: f32 = 3.0;

/// All tensors in the order of the files.
pub(super) fn tensors(spec: &SyntheticSpec) -> Vec<Tensor> {
    let mut list =
        List { seed: spec.seed, distinct_rows: spec.distinct_rows, streams: 0, tensors: Vec::new() };
    let (d, f, v) = (spec.width, spec.feed_forward, spec.vocabulary);
    let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let per_row = |gain: f32, columns: usize| gain / (columns as f32).sqrt();
    let table_format = match spec.format {
        WeightFormat::Q8_0 | WeightFormat::Q6_K => spec.format,
        dense if dense.is_dense() => dense,
        wide if wide.block_len() == 256 => WeightFormat::Q6_K,
        _ => WeightFormat::Q8_0,
    };
    let head = Content::Matrix { deviation: per_row(LOGIT_DEVIATION, d) };
    let embedding = if spec.tied { head } else { Content::Matrix { deviation: 1.0 } };
    list.add("token_embd", "model.embed_tokens", &[v, d], table_format, embedding);
    for layer in 0..spec.layers {
        let format_of = |gguf: &str| match spec.format {
            WeightFormat::Q4_K if layer % 2 == 0 && ["attn_v", "ffn_down"].contains(&gguf) => {
                WeightFormat::Q6_K
            }
            format => format,
        };
        let mut add = |gguf: &str, folder: &str, shape: &[usize], content| {
            let format = if shape.len() == 1 { WeightFormat::F32 } else { format_of(gguf) };
            let names = (format!("blk.{layer}.{gguf}"), format!("model.layers.{layer}.{folder}"));
            list.add(&names.0, &names.1, shape, format, content);
        };
        let into = |gain: f32, columns: usize| Content::Matrix { deviation: per_row(gain, columns) };
        let heads = match (spec.family.pairing)(Container::Gguf) {
            RopePairing::Adjacent => Content::Heads { deviation: per_row(1.5, d), head_dim: spec.head_dim },
            RopePairing::Halves => into(1.5, d),
        };
        let fading = 1.0 / (layer + 1) as f32;
        add("attn_norm", "input_layernorm", &[d], Content::Gain);
        add("attn_q", "self_attn.q_proj", &[queries, d], heads);
        add("attn_k", "self_attn.k_proj", &[keys, d], heads);
        add("attn_v", "self_attn.v_proj", &[keys, d], into(1.0, d));
        add("attn_output", "self_attn.o_proj", &[d, queries], into(2.5 * fading, queries));
        add("ffn_norm", "post_attention_layernorm", &[d], Content::Gain);
        let [gate, up, down] = [into(1.0, d), into(1.0, d), into(3.5 * fading, f)];
        let Some(SyntheticExperts { count, are_copies, .. }) = spec.experts else {
            add("ffn_gate", "mlp.gate_proj", &[f, d], gate);
            add("ffn_up", "mlp.up_proj", &[f, d], up);
            add("ffn_down", "mlp.down_proj", &[d, f], down);
            continue;
        };
        let first = list.tensors.len();
        let mut add = |gguf: &str, part: &str, rows: usize, columns: usize, format, content| {
            let folder = format!("model.layers.{layer}.block_sparse_moe.experts.{EXPERT}.{part}");
            list.add(&format!("blk.{layer}.{gguf}"), &folder, &[count, rows, columns], format, content);
        };
        add("ffn_gate_exps", "w1", f, d, spec.format, gate);
        add("ffn_up_exps", "w3", f, d, spec.format, up);
        add("ffn_down_exps", "w2", d, f, format_of("ffn_down"), down);
        for tensor in &mut list.tensors[first..] {
            tensor.distinct_rows = if are_copies { tensor.shape[1] } else { tensor.distinct_rows };
        }
        let [gguf, folder] =
            [format!("blk.{layer}.ffn_gate_inp"), format!("model.layers.{layer}.block_sparse_moe.gate")];
        list.add(&gguf, &folder, &[count, d], WeightFormat::F32, into(2.0, d));
        let router = list.tensors.last_mut().expect("it was added");
        router.numbers = Stream::new(spec.seed, ROUTERS + layer as u64);
        list.streams -= 1;
    }
    list.add("output_norm", "model.norm", &[d], WeightFormat::F32, Content::Gain);
    if !spec.tied {
        list.add("output", "lm_head", &[v, d], table_format, head);
    }
    list.tensors
}

/// All tensors of a hidden-state drafter of this shape.
pub(super) fn hidden_state_tensors(spec: &SyntheticSpec) -> Vec<Tensor> {
    let mut list =
        List { seed: spec.seed, distinct_rows: spec.distinct_rows, streams: 0, tensors: Vec::new() };
    let (d, f) = (spec.width, spec.feed_forward);
    let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let into = |gain: f32, columns: usize| Content::Matrix { deviation: gain / (columns as f32).sqrt() };
    let heads = Content::Heads { deviation: 1.5 / (d as f32).sqrt(), head_dim: spec.head_dim };
    let mut add = |name: &str, shape: &[usize], content| {
        let format = if shape.len() == 1 { WeightFormat::F32 } else { spec.format };
        list.add(name, name, shape, format, content);
    };
    add("enorm", &[d], Content::Gain);
    add("hnorm", &[d], Content::Gain);
    add("eh_proj", &[d, 2 * d], Content::HandsOn { deviation: 0.3 / (d as f32).sqrt(), first: d });
    add("layers.0.input_layernorm", &[d], Content::Gain);
    add("layers.0.self_attn.q_proj", &[queries, d], heads);
    add("layers.0.self_attn.k_proj", &[keys, d], heads);
    add("layers.0.self_attn.v_proj", &[keys, d], into(0.5, d));
    add("layers.0.self_attn.o_proj", &[d, queries], into(0.3, queries));
    add("layers.0.post_attention_layernorm", &[d], Content::Gain);
    add("layers.0.mlp.gate_proj", &[f, d], into(1.0, d));
    add("layers.0.mlp.up_proj", &[f, d], into(1.0, d));
    add("layers.0.mlp.down_proj", &[d, f], into(0.5, f));
    add("norm", &[d], Content::Gain);
    list.tensors
}

/// All tensors of an EAGLE-3 head of this shape over so many rows, with a head of its own of so many tokens if it has
/// one.
pub(super) fn eagle3_tensors(
    spec: &SyntheticSpec,
    rows: usize,
    draft_vocabulary: Option<usize>,
    is_speculators: bool,
) -> Vec<Tensor> {
    let mut list =
        List { seed: spec.seed, distinct_rows: spec.distinct_rows, streams: 0, tensors: Vec::new() };
    let (d, f) = (spec.width, spec.feed_forward);
    let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let into = |gain: f32, columns: usize| Content::Matrix { deviation: gain / (columns as f32).sqrt() };
    let heads = Content::Heads { deviation: 1.5 / (2.0 * d as f32).sqrt(), head_dim: spec.head_dim };
    let layer = if is_speculators { "layers.0." } else { "midlayer." };
    let mut add = |layer: &str, name: &str, shape: &[usize], content| {
        let format = if shape.len() == 1 { WeightFormat::F32 } else { spec.format };
        let name = format!("{layer}{name}");
        list.add(&name, &name, shape, format, content);
    };
    let fc = Content::HandsOn { deviation: 0.1 / (d as f32).sqrt(), first: (rows - 1) * d };
    add("", "fc", &[d, rows * d], fc);
    add(layer, "input_layernorm", &[d], Content::Gain);
    add(layer, "hidden_norm", &[d], Content::Gain);
    add(layer, "self_attn.q_proj", &[queries, 2 * d], heads);
    add(layer, "self_attn.k_proj", &[keys, 2 * d], heads);
    add(layer, "self_attn.v_proj", &[keys, 2 * d], into(0.5, d));
    add(layer, "self_attn.o_proj", &[d, queries], into(0.3, queries));
    add(layer, "post_attention_layernorm", &[d], Content::Gain);
    add(layer, "mlp.gate_proj", &[f, d], into(1.0, d));
    add(layer, "mlp.up_proj", &[f, d], into(1.0, d));
    add(layer, "mlp.down_proj", &[d, f], into(0.5, f));
    add("", "norm", &[d], Content::Gain);
    if let Some(tokens) = draft_vocabulary {
        add("", "lm_head", &[tokens, d], into(LOGIT_DEVIATION, d));
    }
    list.tensors
}

/// All tensors of a block drafter of this shape over so many rows, with a Markov head of this rank, and a head of its
/// own of so many tokens, if it has them.
pub(super) fn block_tensors(
    spec: &SyntheticSpec,
    rows: usize,
    markov_rank: Option<usize>,
    draft_vocabulary: Option<usize>,
) -> Vec<Tensor> {
    let mut list =
        List { seed: spec.seed, distinct_rows: spec.distinct_rows, streams: 0, tensors: Vec::new() };
    let (d, f, v) = (spec.width, spec.feed_forward, spec.vocabulary);
    let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let into = |gain: f32, columns: usize| Content::Matrix { deviation: gain / (columns as f32).sqrt() };
    let heads = Content::Heads { deviation: 1.5 / (d as f32).sqrt(), head_dim: spec.head_dim };
    let mut add = |name: &str, shape: &[usize], content| {
        let format = if shape.len() == 1 { WeightFormat::F32 } else { spec.format };
        list.add(name, name, shape, format, content);
    };
    add("fc", &[d, rows * d], into(1.0, rows * d));
    add("hidden_norm", &[d], Content::Gain);
    for layer in 0..spec.layers {
        let mut add = |name: &str, shape: &[usize], content| {
            add(&format!("layers.{layer}.{name}"), shape, content);
        };
        add("input_layernorm", &[d], Content::Gain);
        add("self_attn.q_proj", &[queries, d], heads);
        add("self_attn.k_proj", &[keys, d], heads);
        add("self_attn.v_proj", &[keys, d], into(1.0, d));
        add("self_attn.o_proj", &[d, queries], into(1.0, queries));
        add("self_attn.q_norm", &[spec.head_dim], Content::Gain);
        add("self_attn.k_norm", &[spec.head_dim], Content::Gain);
        add("post_attention_layernorm", &[d], Content::Gain);
        add("mlp.gate_proj", &[f, d], into(1.0, d));
        add("mlp.up_proj", &[f, d], into(1.0, d));
        add("mlp.down_proj", &[d, f], into(1.0, f));
    }
    add("norm", &[d], Content::Gain);
    if let Some(tokens) = draft_vocabulary {
        add("lm_head", &[tokens, d], into(LOGIT_DEVIATION, d));
    }
    if let Some(rank) = markov_rank {
        add("markov_head.markov_w1", &[v, rank], into(LOGIT_DEVIATION, rank));
        add("markov_head.markov_w2", &[draft_vocabulary.unwrap_or(v), rank], into(1.0, 1));
    }
    list.tensors
}

struct List {
    seed: u64,
    distinct_rows: usize,
    /// Streams of numbers that tensors have.
    streams: u64,
    tensors: Vec<Tensor>,
}

impl List {
    fn add(&mut self, gguf: &str, folder: &str, shape: &[usize], format: WeightFormat, content: Content) {
        self.tensors.push(Tensor {
            gguf_name: format!("{gguf}.weight"),
            folder_name: format!("{folder}.weight"),
            shape: shape.to_vec(),
            format,
            content,
            numbers: Stream::new(self.seed, self.streams),
            distinct_rows: self.distinct_rows,
        });
        self.streams += 1;
    }
}
