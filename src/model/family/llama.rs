//! Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU, untied or tied head, no biases.
//!
//! What it begins with, its layers and its end are other graphs' too: [`Frame`].

use ygg_kernels::RopePairing;

use super::Names;
use crate::{
    ir::{Graph, GroupId, Input, KvSpec, Norm, Op, RopeId, RopeSpec, ValueId, WeightId, WeightSpec},
    model::{ModelConfig, ModelError, TensorTable},
};

/// What a container calls the tensors of this family; layer tensors are `{layer}{index}.{name}.weight`.
pub(super) struct TensorNames {
    embedding: &'static str,
    final_norm: &'static str,
    head: &'static str,
    pub(super) layer: &'static str,
    attention_norm: &'static str,
    query: &'static str,
    key: &'static str,
    value: &'static str,
    attention_output: &'static str,
    mlp_norm: &'static str,
    gate: &'static str,
    up: &'static str,
    down: &'static str,
    pub(super) pairing: RopePairing,
}

const GGUF: TensorNames = TensorNames {
    embedding: "token_embd.weight",
    final_norm: "output_norm.weight",
    head: "output.weight",
    layer: "blk.",
    attention_norm: "attn_norm",
    query: "attn_q",
    key: "attn_k",
    value: "attn_v",
    attention_output: "attn_output",
    mlp_norm: "ffn_norm",
    gate: "ffn_gate",
    up: "ffn_up",
    down: "ffn_down",
    pairing: RopePairing::Adjacent,
};

pub(super) const HUGGING_FACE: TensorNames = TensorNames {
    embedding: "model.embed_tokens.weight",
    final_norm: "model.norm.weight",
    head: "lm_head.weight",
    layer: "model.layers.",
    attention_norm: "input_layernorm",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    attention_output: "self_attn.o_proj",
    mlp_norm: "post_attention_layernorm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    pairing: RopePairing::Halves,
};

impl TensorNames {
    /// The same with layers under another name.
    pub(super) fn within(&self, layer: &'static str) -> Self {
        Self { layer, ..*self }
    }
}

pub(super) struct LayerWeights {
    attention_norm: WeightId,
    query: WeightId,
    key: WeightId,
    value: WeightId,
    attention_output: WeightId,
    mlp_norm: WeightId,
    gate: WeightId,
    up: WeightId,
    down: WeightId,
}

/// Finds tensors and checks their shapes, in the order the graph reads them.
pub(super) struct WeightList<'a> {
    pub(super) tensors: &'a TensorTable,
    pub(super) specs: Vec<WeightSpec>,
}

impl WeightList<'_> {
    pub(super) fn find(&mut self, name: String, shape: &[usize]) -> Result<WeightId, ModelError> {
        let Some(info) = self.tensors.get(&name) else {
            return Err(ModelError::MissingTensor { name, shape: shape.to_vec() });
        };
        if info.shape != shape {
            return Err(ModelError::invalid(
                format_args!("tensor `{name}`"),
                format_args!("shape {shape:?}"),
                format_args!("{:?}", info.shape),
            ));
        }
        let id = WeightId(u32::try_from(self.specs.len()).expect("layers are limited"));
        let (columns, rows) = (shape[shape.len() - 1], if shape.len() == 2 { shape[0] } else { 1 });
        self.specs.push(WeightSpec { name, rows, columns, format: info.format });
        Ok(id)
    }

    pub(super) fn gain(&mut self, name: String, len: usize) -> Result<WeightId, ModelError> {
        let id = self.find(name, &[len])?;
        let spec = &self.specs[id.0 as usize];
        if spec.format.is_dense() {
            return Ok(id);
        }
        Err(ModelError::unsupported(
            format_args!("tensor `{}`", spec.name),
            format_args!("a norm gain in {:?}", spec.format),
            "F32, F16, BF16",
        ))
    }

    pub(super) fn layer(
        &mut self,
        index: usize,
        config: &ModelConfig,
        names: &TensorNames,
    ) -> Result<LayerWeights, ModelError> {
        let (d, f) = (config.width, config.feed_forward);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let name = |part: &str| format!("{}{index}.{part}.weight", names.layer);
        Ok(LayerWeights {
            attention_norm: self.gain(name(names.attention_norm), d)?,
            query: self.find(name(names.query), &[queries, d])?,
            key: self.find(name(names.key), &[keys, d])?,
            value: self.find(name(names.value), &[keys, d])?,
            attention_output: self.find(name(names.attention_output), &[d, queries])?,
            mlp_norm: self.gain(name(names.mlp_norm), d)?,
            gate: self.find(name(names.gate), &[f, d])?,
            up: self.find(name(names.up), &[f, d])?,
            down: self.find(name(names.down), &[d, f])?,
        })
    }
}

pub(super) fn linear(weight: WeightId) -> Op {
    Op::Linear { weights: vec![weight], norm: None, residual: false }
}

/// The graph of a Llama model.
pub(super) fn graph(config: &ModelConfig, names: Names, tensors: &TensorTable) -> Result<Graph, ModelError> {
    let names = match names {
        Names::Gguf => &GGUF,
        Names::HuggingFace => &HUGGING_FACE,
    };
    if let Some(bias) = tensors.keys().find(|name| name.ends_with(".bias")) {
        return Err(ModelError::unsupported(
            format_args!("tensor `{bias}`"),
            "a bias",
            "llama models without biases",
        ));
    }
    let mut list = WeightList { tensors, specs: Vec::new() };
    let table = [config.vocabulary, config.width];
    let embedding = list.find(names.embedding.to_owned(), &table)?;
    let layers = (0..config.layers).map(|l| list.layer(l, config, names)).collect::<Result<Vec<_>, _>>()?;
    let final_norm = list.gain(names.final_norm.to_owned(), config.width)?;
    let head = if config.tied_head { embedding } else { list.find(names.head.to_owned(), &table)? };

    let kv = KvSpec { layers: config.layers, kv_heads: config.kv_heads, head_dim: config.head_dim };
    let mut graph = Graph::new(&config.name, list.specs, kv);
    let frame = Frame::begin(&mut graph, config, names.pairing)?;
    let mut x: ValueId = graph.add(Op::Embed { weight: embedding }, &[frame.tokens], None)?;
    for (layer, weights) in layers.iter().enumerate() {
        x = frame.layer(&mut graph, layer, weights, x)?;
    }
    frame.end(&mut graph, x, final_norm, head)?;
    Ok(graph)
}

/// What a graph has around what differs: its inputs, the layers that read them, and the head.
pub(super) struct Frame<'a> {
    config: &'a ModelConfig,
    rope: RopeId,
    pub(super) tokens: ValueId,
    positions: ValueId,
    slots: ValueId,
    tails: ValueId,
    output_rows: ValueId,
}

impl<'a> Frame<'a> {
    pub(super) fn begin(
        graph: &mut Graph,
        config: &'a ModelConfig,
        pairing: RopePairing,
    ) -> Result<Self, ModelError> {
        let inv_freq = config.rope.inv_freq(config.head_dim);
        let rope = graph.add_rope(RopeSpec { head_dim: config.head_dim, pairing, inv_freq });
        let mut input = |input| graph.add(Op::Input(input), &[], None);
        Ok(Self {
            config,
            rope,
            tokens: input(Input::Tokens)?,
            positions: input(Input::Positions)?,
            slots: input(Input::Slots)?,
            tails: input(Input::Tails)?,
            output_rows: input(Input::OutputRows)?,
        })
    }

    /// The root mean square norm with this gain.
    pub(super) fn norm(&self, weight: WeightId) -> Op {
        Op::RmsNorm(Norm { weight, eps: self.config.rms_eps })
    }

    /// The logits of the residual stream's rows that are asked for.
    pub(super) fn end(
        &self,
        graph: &mut Graph,
        x: ValueId,
        final_norm: WeightId,
        head: WeightId,
    ) -> Result<(), ModelError> {
        let rows = graph.add(Op::SelectRows, &[x, self.output_rows], None)?;
        graph.set_hidden(rows);
        let last = graph.add(self.norm(final_norm), &[rows], None)?;
        let logits = graph.add(linear(head), &[last], None)?;
        graph.set_logits(logits);
        Ok(())
    }

    /// The residual stream behind one layer, attention and then MLP, over the stream `x` before it.
    pub(super) fn layer(
        &self,
        graph: &mut Graph,
        layer: usize,
        weights: &LayerWeights,
        x: ValueId,
    ) -> Result<ValueId, ModelError> {
        let Self { config, rope, positions, slots, tails, .. } = *self;
        let score_scale = (1.0 / (config.head_dim as f64).sqrt()) as f32;
        let number = u32::try_from(2 * layer).expect("layers are limited");
        let (attention, mlp) = (Some(GroupId(number)), Some(GroupId(number + 1)));

        let n = graph.add(self.norm(weights.attention_norm), &[x], attention)?;
        let q = graph.add(linear(weights.query), &[n], attention)?;
        let k = graph.add(linear(weights.key), &[n], attention)?;
        let v = graph.add(linear(weights.value), &[n], attention)?;
        let q = graph.add(Op::Rope(rope), &[q, positions], attention)?;
        let k = graph.add(Op::Rope(rope), &[k, positions], attention)?;
        let append = Op::AppendKv { layer, rope: None };
        let appended = graph.add(append, &[k, v, slots, positions], attention)?;
        let q = graph.add(Op::Scale { factor: score_scale }, &[q], attention)?;
        let attend = Op::Attention { layer, heads: config.heads, scale: 1.0, rope: None };
        let heads = graph.add(attend, &[q, appended, tails, positions], attention)?;
        let out = graph.add(linear(weights.attention_output), &[heads], attention)?;
        let x = graph.add(Op::Add, &[x, out], attention)?;

        let n = graph.add(self.norm(weights.mlp_norm), &[x], mlp)?;
        let gate = graph.add(linear(weights.gate), &[n], mlp)?;
        let up = graph.add(linear(weights.up), &[n], mlp)?;
        let gated = graph.add(Op::Swiglu, &[gate, up], mlp)?;
        let out = graph.add(linear(weights.down), &[gated], mlp)?;
        Ok(graph.add(Op::Add, &[x, out], mlp)?)
    }
}
