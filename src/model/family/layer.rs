//! One layer of a decoder, attention or what it has instead and then MLP or experts, as a recipe has it: its weights in a
//! file, and its part of the graph.

use std::ops::Range;

use super::{
    experts::{ExpertWeights, Experts},
    frame::{Frame, biased, linear},
    layer_inputs::LayerInputWeights,
    mlp::Mlp,
    recipe::{
        Attending, AttentionWeights, Beside, Biases, HeadNorms, Instead, Keys, LayerWeights, MlpWeights,
        Norms, ParallelExperts, Recipe, SubLayerWeights, inverse_root,
    },
    recurrence::RecurrenceWeights,
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, GroupId, Op, ValueId, WeightId},
    model::{ModelConfig, ModelError},
};
use ygg_kernels::{Nonlinearity, Scoring};

impl LayerWeights {
    /// Looks up the weights of a layer.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape.
    pub(super) fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        index: usize,
        config: &ModelConfig,
        recipe: &Recipe,
    ) -> Result<Self, ModelError> {
        let (d, f) = (config.hidden_size, recipe.layers[index].feed_forward);
        let [_, e] = recipe.heads(config, index);
        let name = |gguf, folder| naming.layer_weight(index, gguf, folder);
        let is_before = recipe.norms != Norms::After;
        let is_after = recipe.norms != Norms::Before;
        let gain = |list: &mut WeightList<'_>, is_there: bool, gguf, folder, len| {
            let found = is_there.then(|| list.gain(name(gguf, folder), len, recipe.gain_offset));
            found.transpose()
        };
        let before_attention = gain(list, is_before, "attn_norm", "input_layernorm", d)?;
        let mut output_bias = None;
        let (sub_layer, attention_output) = match recipe.layers[index].instead {
            None => {
                let attention = AttentionWeights::find(list, naming, index, config, recipe)?;
                let output = list.find(name("attn_output", "self_attn.o_proj"), &[d, config.heads * e])?;
                if recipe.biases == Biases::Attention {
                    let name = naming.layer_bias(index, "attn_output", "self_attn.o_proj");
                    output_bias = Some(list.vector(name, d, "a bias")?);
                }
                (SubLayerWeights::Attention(attention), Some(output))
            }
            Some(Instead::ShortConv { taps }) => {
                let input = list.find(name("shortconv.in_proj", "conv.in_proj"), &[3 * d, d])?;
                let taps = list.taps(naming, name("shortconv.conv", "conv.conv"), [d, taps])?;
                let output = list.find(name("shortconv.out_proj", "conv.out_proj"), &[d, d])?;
                (SubLayerWeights::ShortConv { input, taps }, Some(output))
            }
            Some(Instead::Recurrence) => {
                let rule = recipe.recurrence.expect("a recipe with such a layer says of what shape");
                let weights = RecurrenceWeights::find(list, naming, index, d, rule)?;
                (SubLayerWeights::Recurrence(weights), None)
            }
        };
        let after_attention = gain(list, is_after, "post_attention_norm", "post_attention_layernorm", d)?;
        let mlp_norm = match recipe.norms {
            Norms::Before => "post_attention_layernorm",
            Norms::Both | Norms::After => "pre_feedforward_layernorm",
        };
        let before_mlp = gain(list, is_before, "ffn_norm", mlp_norm, d)?;
        let experts = recipe.experts.as_ref().filter(|_| recipe.layers[index].is_routed);
        let mlp = match experts {
            None => MlpWeights::Dense(Mlp::find(list, naming, index, [f, d], recipe.has_fused_gates)?),
            Some(experts) if experts.is_parallel => MlpWeights::Both {
                mlp: Mlp::find(list, naming, index, [f, d], recipe.has_fused_gates)?,
                experts: ParallelExperts::find(list, naming, index, d, experts)?,
            },
            Some(experts) => {
                let weights = ExpertWeights::find(list, naming, index, d, experts)?;
                MlpWeights::Experts { weights, routing: experts.routing }
            }
        };
        let after_mlp = gain(list, is_after, "post_ffw_norm", "post_feedforward_layernorm", d)?;
        let input = match &recipe.layer_inputs {
            Some(inputs) => Some(LayerInputWeights::find(list, naming, index, config, inputs)?),
            None => None,
        };
        Ok(Self {
            before_attention,
            sub_layer,
            attention_output,
            output_bias,
            after_attention,
            before_mlp,
            mlp,
            after_mlp,
            input,
        })
    }
}

impl ParallelExperts {
    /// Looks up experts and norms, by the names of Gemma 4.
    fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        index: usize,
        d: usize,
        experts: &Experts,
    ) -> Result<Self, ModelError> {
        let weights = ExpertWeights::find(list, naming, index, d, experts)?;
        let routed = naming.layer_vector(index, "ffn_gate_inp.scale", "router.scale");
        let name = |gguf, folder| naming.layer_weight(index, gguf, folder);
        let norms = [
            routed,
            name("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
            name("post_ffw_norm_1", "post_feedforward_layernorm_1"),
            name("post_ffw_norm_2", "post_feedforward_layernorm_2"),
        ];
        let mut gains = [WeightId(0); 4];
        for (gain, name) in gains.iter_mut().zip(norms) {
            *gain = list.gain(name, d, 0.0)?;
        }
        Ok(Self { weights, routing: experts.routing, norms: gains })
    }

    /// Adds the experts of the residual stream `x` to what the MLP gives.
    fn add(
        &self,
        frame: &Frame<'_>,
        graph: &mut Graph,
        function: Nonlinearity,
        [x, mlp]: [ValueId; 2],
        group: Option<GroupId>,
    ) -> Result<ValueId, ModelError> {
        let [routed, before, after_mlp, after] = self.norms;
        let normed = |graph: &mut Graph, gain, x| graph.add(frame.norm(gain), &[x], group);
        let routed = normed(graph, routed, x)?;
        let factor = inverse_root(frame.config.hidden_size as f64);
        let routed = graph.add(Op::Scale { factor }, &[routed], group)?;
        let n = normed(graph, before, x)?;
        let out = self.weights.add(graph, self.routing, function, [routed, n], group)?;
        let out = normed(graph, after, out)?;
        let mlp = normed(graph, after_mlp, mlp)?;
        Ok(graph.add(Op::Add, &[mlp, out], group)?)
    }
}

impl AttentionWeights {
    /// Looks up the weights that make queries, keys and values.
    fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        index: usize,
        config: &ModelConfig,
        recipe: &Recipe,
    ) -> Result<Self, ModelError> {
        let d = config.hidden_size;
        let [kv_heads, e] = recipe.heads(config, index);
        let (queries, keys) = (config.heads * e, kv_heads * e);
        let rule = recipe.layers[index];
        let name = |gguf, folder| naming.layer_weight(index, gguf, folder);
        let mut gate = Vec::new();
        let (query, of_keys) = if recipe.has_fused_queries {
            let name = name("attn_qkv", "self_attn.qkv_proj");
            let all = list.parts(name, &[queries + 2 * keys, d], &[queries, keys, keys])?;
            (vec![all[0]], Some([all[1], all[2]]))
        } else {
            let of_queries = name("attn_q", "self_attn.q_proj");
            let query = if recipe.has_gates {
                let both = list.parts(of_queries, &[2 * queries, d], &vec![e; 2 * config.heads])?;
                gate = both.iter().skip(1).step_by(2).copied().collect();
                both.into_iter().step_by(2).collect()
            } else {
                vec![list.find(of_queries, &[queries, d])?]
            };
            let mut find = |gguf, folder| list.find(name(gguf, folder), &[keys, d]);
            let of_keys = match rule.keys {
                Keys::Own => Some([find("attn_k", "self_attn.k_proj")?, find("attn_v", "self_attn.v_proj")?]),
                Keys::OwnOfOneMatrix => Some([find("attn_k", "self_attn.k_proj")?; 2]),
                Keys::Of(_) => None,
            };
            (query, of_keys)
        };
        let bias = |list: &mut WeightList<'_>, gguf, folder, len| {
            list.vector(naming.layer_bias(index, gguf, folder), len, "a bias")
        };
        let biases = match recipe.biases {
            Biases::Inputs | Biases::Attention => Some([
                bias(list, "attn_q", "self_attn.q_proj", queries)?,
                bias(list, "attn_k", "self_attn.k_proj", keys)?,
                bias(list, "attn_v", "self_attn.v_proj", keys)?,
            ]),
            Biases::None => None,
        };
        let of_heads = match recipe.head_norms {
            HeadNorms::None => None,
            HeadNorms::EachHead => Some([e, e]),
            HeadNorms::AllHeads => Some([queries, keys]),
        };
        let mut head_norms = [None; 3];
        if let Some([of_query, of_key]) = of_heads {
            let mut gain = |name, len| list.gain(name, len, recipe.gain_offset).map(Some);
            head_norms[0] = gain(name("attn_q_norm", "self_attn.q_norm"), of_query)?;
            if of_keys.is_some() {
                head_norms[1] = gain(name("attn_k_norm", "self_attn.k_norm"), of_key)?;
            }
        }
        if recipe.has_value_norms && of_keys.is_some() {
            head_norms[2] = Some(list.ones(e));
        }
        let sinks = match recipe.has_sinks {
            true => {
                let name = naming.layer_vector(index, "attn_sinks.weight", "self_attn.sinks");
                Some(list.vector(name, config.heads, "sinks")?)
            }
            false => None,
        };
        Ok(Self { query, gate, keys: of_keys, biases, head_norms, sinks, beside: None })
    }
}

/// Adds one layer to the residual stream `x`; returns the stream after it.
pub(super) fn layer(
    frame: &Frame<'_>,
    graph: &mut Graph,
    layer: usize,
    weights: &LayerWeights,
    recipe: &Recipe,
    x: ValueId,
) -> Result<ValueId, ModelError> {
    let number = u32::try_from(2 * layer).expect("layers are limited");
    let (attention, mlp) = (Some(GroupId(number)), Some(GroupId(number + 1)));

    let n = frame.maybe_norm(graph, weights.before_attention, x, attention)?;
    let out = match &weights.sub_layer {
        SubLayerWeights::Attention(weights) => attend(frame, graph, layer, weights, recipe, n)?,
        SubLayerWeights::ShortConv { input, taps } => {
            let gated = graph.add(linear(*input), &[n], attention)?;
            let conv = Op::ShortConv { layer: recipe.cache_layer(layer), taps: *taps };
            graph.add(conv, &[gated, frame.slots, frame.tails], attention)?
        }
        SubLayerWeights::Recurrence(weights) => weights.add(frame, graph, layer, recipe, n)?,
    };
    let out = match weights.attention_output {
        Some(output) => graph.add(biased(output, weights.output_bias), &[out], attention)?,
        None => out,
    };
    let out = frame.maybe_norm(graph, weights.after_attention, out, attention)?;
    let x = add(graph, recipe, x, out, attention)?;

    let n = frame.maybe_norm(graph, weights.before_mlp, x, mlp)?;
    let out = match &weights.mlp {
        MlpWeights::Dense(weights) => weights.add(graph, recipe.function, n, mlp)?,
        MlpWeights::Experts { weights, routing } => {
            weights.add(graph, *routing, recipe.function, [n, n], mlp)?
        }
        MlpWeights::Both { mlp: weights, experts } => {
            let out = weights.add(graph, recipe.function, n, mlp)?;
            experts.add(frame, graph, recipe.function, [x, out], mlp)?
        }
    };
    let out = frame.maybe_norm(graph, weights.after_mlp, out, mlp)?;
    let mut x = add(graph, recipe, x, out, mlp)?;
    if let Some(input) = &weights.input {
        x = input.add(frame, graph, layer, recipe.function, x)?;
    }
    if let Some(factor) = recipe.layer_scales.get(layer).copied() {
        x = graph.add(Op::Scale { factor }, &[x], None)?;
    }
    Ok(x)
}

/// Heads of attention over the rows `n`.
fn attend(
    frame: &Frame<'_>,
    graph: &mut Graph,
    layer: usize,
    weights: &AttentionWeights,
    recipe: &Recipe,
    n: ValueId,
) -> Result<ValueId, ModelError> {
    let Frame { config, positions, slots, tails, .. } = *frame;
    let Attending { rope, window } = frame.attending(recipe, layer);
    let group = Some(GroupId(u32::try_from(2 * layer).expect("layers are limited")));
    let (q, keys) = match &weights.beside {
        None => products(graph, weights, n, group)?,
        Some(beside) => products_of_both(graph, weights, beside, n, group)?,
    };
    let [of_query, of_key, of_value] = weights.head_norms;
    let q = frame.maybe_norm(graph, of_query, q, group)?;
    let turned = |graph: &mut Graph, value| match rope {
        Some(rope) => graph.add(Op::Rope(rope), &[value, positions], group),
        None => Ok(value),
    };
    let layer = recipe.cache_layer(layer);
    let (q, appended) = match keys {
        Some([k, v]) => {
            let k = frame.maybe_norm(graph, of_key, k, group)?;
            let v = frame.maybe_norm(graph, of_value, v, group)?;
            let q = turned(graph, q)?;
            let k = turned(graph, k)?;
            let append = Op::AppendKv { layer, rope: None };
            (q, graph.add(append, &[k, v, slots, positions], group)?)
        }
        None => (turned(graph, q)?, appended_before(graph, layer)),
    };
    let q = graph.add(Op::Scale { factor: recipe.score_scale }, &[q], group)?;
    let scoring = Scoring { scale: 1.0, softcap: recipe.score_softcap, window };
    let attention = Op::Attention { layer, heads: config.heads, scoring, rope: None, sinks: weights.sinks };
    let out = graph.add(attention, &[q, appended, tails, positions], group)?;
    if weights.gate.is_empty() {
        return Ok(out);
    }
    let gates = Op::Linear { weights: weights.gate.clone(), biases: Vec::new(), norm: None, residual: false };
    let gate = graph.add(gates, &[n], group)?;
    Ok(graph.add(Op::Gate(Nonlinearity::Sigmoid), &[gate, out], group)?)
}

/// What an earlier layer has appended to a cache.
fn appended_before(graph: &Graph, cache: usize) -> ValueId {
    let appends =
        |value: &ValueId| matches!(graph.node(*value).op, Op::AppendKv { layer, .. } if layer == cache);
    graph.topological().into_iter().find(appends).expect("a layer attends to keys of an earlier one")
}

/// Queries of the rows `n`, and keys and values if the layer has its own.
type Products = (ValueId, Option<[ValueId; 2]>);

/// Queries, keys and values of the rows `n`.
fn products(
    graph: &mut Graph,
    weights: &AttentionWeights,
    n: ValueId,
    group: Option<GroupId>,
) -> Result<Products, ModelError> {
    let AttentionWeights { query, keys, biases, .. } = weights;
    let biases: [Option<WeightId>; 3] = biases.map_or([None; 3], |biases| biases.map(Some));
    let mut product = |weights: Vec<WeightId>, bias: Option<WeightId>| {
        let biases = bias.into_iter().collect();
        graph.add(Op::Linear { weights, biases, norm: None, residual: false }, &[n], group)
    };
    let q = product(query.clone(), biases[0])?;
    let Some([key, value]) = *keys else { return Ok((q, None)) };
    let k = product(vec![key], biases[1])?;
    let v = if value == key { k } else { product(vec![value], biases[2])? };
    Ok((q, Some([k, v])))
}

/// Queries, keys and values of the rows `n` and others together: sums of two products, each of all three where their
/// matrices are in one format.
fn products_of_both(
    graph: &mut Graph,
    weights: &AttentionWeights,
    beside: &Beside,
    n: ValueId,
    group: Option<GroupId>,
) -> Result<Products, ModelError> {
    let [key, value] = weights.keys.expect("a layer with rows of two kinds has its own keys");
    let own = [weights.query[0], key, value];
    let sum = |graph: &mut Graph, of: Range<usize>| -> Result<ValueId, ModelError> {
        let product = |weights: &[WeightId; 3], biases: Vec<WeightId>| Op::Linear {
            weights: weights[of.clone()].to_vec(),
            biases,
            norm: None,
            residual: false,
        };
        let biases = weights.biases.map_or(Vec::new(), |biases| biases[of.clone()].to_vec());
        let a = graph.add(product(&beside.weights, biases), &[beside.rows], group)?;
        let b = graph.add(product(&own, Vec::new()), &[n], group)?;
        Ok(graph.add(Op::Add, &[a, b], group)?)
    };
    let format = |weight: &WeightId| graph.weight(*weight).format;
    if own.iter().chain(&beside.weights).any(|weight| format(weight) != format(&own[0])) {
        return Ok((sum(graph, 0..1)?, Some([sum(graph, 1..2)?, sum(graph, 2..3)?])));
    }
    let all = sum(graph, 0..3)?;
    let mut start = 0;
    let mut slices = [all; 3];
    for (slice, weight) in slices.iter_mut().zip(own) {
        let len = graph.weight(weight).rows;
        *slice = graph.add(Op::Slice { start, len }, &[all], group)?;
        start += len;
    }
    let [q, k, v] = slices;
    Ok((q, Some([k, v])))
}

/// The residual stream `x` with what a sub-layer adds to it.
fn add(
    graph: &mut Graph,
    recipe: &Recipe,
    x: ValueId,
    out: ValueId,
    group: Option<GroupId>,
) -> Result<ValueId, ModelError> {
    let factor = recipe.residual_scale;
    let out = if factor == 1.0 { out } else { graph.add(Op::Scale { factor }, &[out], group)? };
    Ok(graph.add(Op::Add, &[x, out], group)?)
}
