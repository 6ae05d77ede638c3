//! Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU, untied or tied head, no biases.

use super::{
    Family, Source,
    frame::{Frame, decoder, linear},
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, GroupId, Op, ValueId, WeightId},
    model::{
        Container, ModelConfig, ModelError,
        config::{Fields, equal, only},
    },
};
use ygg_kernels::RopePairing;

/// Llama 2 and 3, SmolLM 2, TinyLlama; Mistral 7B v0.3 in GGUF files.
pub(in crate::model) static LLAMA: Family = Family {
    name: "llama",
    classes: &[("llama", "LlamaForCausalLM")],
    pairing: |container| match container {
        Container::Gguf => RopePairing::Adjacent,
        Container::Folder => RopePairing::Halves,
    },
    accept,
    graph,
};

/// Refuses models that compute something else than the graph.
fn accept(fields: &dyn Fields, config: &ModelConfig) -> Result<(), ModelError> {
    match fields.container() {
        Container::Gguf => {
            only("llama.expert_count", fields.count("llama.expert_count")?, 0, "no mixture of experts")?;
            for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
                equal(key, fields.count(key)?, config.head_dim, "the head size")?;
            }
        }
        Container::Folder => {
            for key in ["attention_bias", "mlp_bias"] {
                only(key, fields.flag(key)?, false, "no biases")?;
            }
            only("hidden_act", fields.text("hidden_act")?, "silu", "SwiGLU")?;
            let key = "partial_rotary_factor";
            only(key, fields.float(key)?, 1.0, "rotation of whole heads")?;
        }
    }
    Ok(())
}

fn graph(source: &Source<'_>) -> Result<Graph, ModelError> {
    if let Some(bias) = source.tensors.keys().find(|name| name.ends_with(".bias")) {
        return Err(ModelError::unsupported(
            format_args!("tensor `{bias}`"),
            "a bias",
            "llama models without biases",
        ));
    }
    decoder(source, |list, naming, index| LayerWeights::find(list, naming, index, source.config), layer)
}

/// The weights of one layer.
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

impl LayerWeights {
    pub(super) fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        index: usize,
        config: &ModelConfig,
    ) -> Result<Self, ModelError> {
        let (d, f) = (config.hidden_size, config.feed_forward);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let name = |gguf, folder| naming.layer_weight(index, gguf, folder);
        Ok(Self {
            attention_norm: list.gain(name("attn_norm", "input_layernorm"), d)?,
            query: list.find(name("attn_q", "self_attn.q_proj"), &[queries, d])?,
            key: list.find(name("attn_k", "self_attn.k_proj"), &[keys, d])?,
            value: list.find(name("attn_v", "self_attn.v_proj"), &[keys, d])?,
            attention_output: list.find(name("attn_output", "self_attn.o_proj"), &[d, queries])?,
            mlp_norm: list.gain(name("ffn_norm", "post_attention_layernorm"), d)?,
            gate: list.find(name("ffn_gate", "mlp.gate_proj"), &[f, d])?,
            up: list.find(name("ffn_up", "mlp.up_proj"), &[f, d])?,
            down: list.find(name("ffn_down", "mlp.down_proj"), &[d, f])?,
        })
    }
}

/// Adds one layer, attention and then MLP, to the residual stream `x`; returns the stream behind it.
pub(super) fn layer(
    frame: &Frame<'_>,
    graph: &mut Graph,
    layer: usize,
    weights: &LayerWeights,
    x: ValueId,
) -> Result<ValueId, ModelError> {
    let Frame { config, rope, positions, slots, tails, .. } = *frame;
    let score_scale = (1.0 / (config.head_dim as f64).sqrt()) as f32;
    let number = u32::try_from(2 * layer).expect("layers are limited");
    let (attention, mlp) = (Some(GroupId(number)), Some(GroupId(number + 1)));

    let n = graph.add(frame.norm(weights.attention_norm), &[x], attention)?;
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

    let n = graph.add(frame.norm(weights.mlp_norm), &[x], mlp)?;
    let gate = graph.add(linear(weights.gate), &[n], mlp)?;
    let up = graph.add(linear(weights.up), &[n], mlp)?;
    let gated = graph.add(Op::Swiglu, &[gate, up], mlp)?;
    let out = graph.add(linear(weights.down), &[gated], mlp)?;
    Ok(graph.add(Op::Add, &[x, out], mlp)?)
}
