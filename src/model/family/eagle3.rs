//! The graph of an EAGLE-3 head: one layer over the next token and a row that is joined of several of the verifier's.
//!
//! As Li et al. have it (<https://arxiv.org/abs/2503.01840>) and heads are published: queries, keys and values are
//! products of the token's embedding and the given row together, each normalised; the residual stream begins with the
//! given row. The head may be for some tokens of the verifier's vocabulary only.

use super::{
    Family,
    accepted::{activation, adjacent_in_gguf, whole_heads_turn},
    frame::{Frame, linear},
    hidden_state::{HiddenStateGraph, embedding, expect_verifier},
    layer::layer,
    mlp::Mlp,
    recipe::{AttentionWeights, Beside, HeadNorms, LayerWeights, MlpWeights, Recipe, SubLayerWeights},
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, Joining, KvSpec, Norm, Op, ReducedHead, TextGraph, TextRows, WeightId, verify},
    model::{
        Container, Eagle3, ModelConfig, ModelError, TensorTable,
        config::{Fields, only},
        eagle3::JoiningNorms,
    },
};

/// What sizes of a head are checked by; models of this name there are none.
pub(in crate::model) static EAGLE3: Family = Family {
    name: "eagle3",
    models: "EAGLE-3 heads",
    beside_llama: "one layer, of twice as wide an input",
    tried: &[],
    classes: &[],
    pairing: adjacent_in_gguf,
    is_tied_by_default: false,
    accept,
    recipe: |_| Err(ModelError::unsupported("an EAGLE-3 head", "as a model", "a drafter model")),
};

/// Refuses what no head computes; biases of queries, keys and values are there if their tensors are.
fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    if fields.container() == Container::Folder {
        only("mlp_bias", fields.flag("mlp_bias")?, false, "no biases")?;
        for kind in fields.texts("layer_types")?.iter().flatten() {
            only("layer_types", Some(kind.as_str()), "full_attention", "attention to the whole text")?;
        }
    }
    if config.layers != 1 {
        return Err(ModelError::unsupported("the number of layers", config.layers, "1"));
    }
    activation(fields, &["hidden_act"], "silu")?;
    whole_heads_turn(fields, config)
}

/// Looks up a head's weights.
struct Weights<'a, 't> {
    list: WeightList<'t>,
    naming: Naming,
    config: &'a ModelConfig,
}

impl Weights<'_, '_> {
    fn has(&self, name: &str) -> bool {
        self.list.tensors.contains_key(name)
    }

    /// A matrix of the layer.
    fn matrix(&mut self, gguf: &str, folder: &str, shape: [usize; 2]) -> Result<WeightId, ModelError> {
        self.list.find(self.naming.layer_weight(0, gguf, folder), &shape)
    }

    /// A gain of the layer.
    fn gain(&mut self, gguf: &str, folder: &str, len: usize) -> Result<WeightId, ModelError> {
        self.list.gain(self.naming.layer_weight(0, gguf, folder), len, 0.0)
    }

    /// The parts of a projection that multiply the token's row and the given one, with its bias if there is one.
    fn halves(
        &mut self,
        gguf: &str,
        folder: &str,
        rows: usize,
    ) -> Result<([WeightId; 2], Option<WeightId>), ModelError> {
        let width = self.config.hidden_size;
        let name = self.naming.layer_weight(0, gguf, folder);
        let halves = self.list.columns(&name, rows, &[width, width])?;
        let bias = self.naming.layer_bias(0, gguf, folder);
        let bias = if self.has(&bias) { Some(self.list.vector(bias, rows, "a bias")?) } else { None };
        Ok(([halves[0], halves[1]], bias))
    }

    /// The parts of the projections, those of the given row as they attend.
    fn attention(&mut self) -> Result<([WeightId; 3], AttentionWeights), ModelError> {
        let ModelConfig { heads, kv_heads, head_dim, .. } = *self.config;
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let (query, of_query) = self.halves("attn_q", "self_attn.q_proj", queries)?;
        let (key, of_key) = self.halves("attn_k", "self_attn.k_proj", keys)?;
        let (value, of_value) = self.halves("attn_v", "self_attn.v_proj", keys)?;
        let biases = match (of_query, of_key, of_value) {
            (Some(query), Some(key), Some(value)) => Some([query, key, value]),
            (None, None, None) => None,
            _ => {
                let found = "biases of some of queries, keys and values";
                return Err(ModelError::unsupported("the head's layer", found, "biases of all or of none"));
            }
        };
        let has_norms = self.has(&self.naming.layer_weight(0, "attn_q_norm", "self_attn.q_norm"));
        let head_norms = if has_norms {
            let of_query = self.gain("attn_q_norm", "self_attn.q_norm", head_dim)?;
            [Some(of_query), Some(self.gain("attn_k_norm", "self_attn.k_norm", head_dim)?), None]
        } else {
            [None; 3]
        };
        let (query, key, value) = ((query[0], query[1]), (key[0], key[1]), (value[0], value[1]));
        let own = AttentionWeights {
            query: vec![query.1],
            gate: Vec::new(),
            keys: Some([key.1, value.1]),
            biases,
            head_norms,
            sinks: None,
            beside: None,
        };
        Ok(([query.0, key.0, value.0], own))
    }

    /// What joins the rows of so many layers, each of `width` elements.
    fn joining(&mut self, head: &Eagle3, layers: usize, width: usize) -> Result<Joining, ModelError> {
        let (rows, eps) = (self.config.hidden_size, self.config.rms_eps);
        let gains = match head.norms {
            JoiningNorms::None => Vec::new(),
            JoiningNorms::Whole => {
                vec![self.list.gain("input_norm.weight".to_owned(), layers * width, 0.0)?]
            }
            JoiningNorms::Each => {
                let gain = |layer| self.list.gain(format!("fc_norm.{layer}.weight"), width, 0.0);
                (0..layers).map(gain).collect::<Result<_, _>>()?
            }
        };
        let name = "fc.weight";
        let weights = match head.norms {
            JoiningNorms::None | JoiningNorms::Whole => {
                vec![self.list.find(name.to_owned(), &[rows, layers * width])?]
            }
            JoiningNorms::Each => self.list.columns(name, rows, &vec![width; layers])?,
        };
        let bias = "fc.bias";
        let bias =
            if self.has(bias) { Some(self.list.vector(bias.to_owned(), rows, "a bias")?) } else { None };
        let norms = gains.into_iter().map(|weight| Norm { weight, eps }).collect();
        Ok(Joining { weights, bias, norms })
    }
}

impl HiddenStateGraph {
    /// The graph of an EAGLE-3 head with these tensors, for the model that `verifier` is the graph of.
    ///
    /// # Errors
    /// [`ModelError`] for a tensor that is missing, has another shape or is one that the graph does not compute, and
    /// for a verifier of another width, another vocabulary or fewer layers.
    pub(in crate::model) fn eagle3(
        config: &ModelConfig,
        head: &Eagle3,
        tensors: &TensorTable,
        verifier: &Graph,
    ) -> Result<Self, ModelError> {
        let (shared, width) = (embedding(verifier)?, config.hidden_size);
        let target_width = head.target_width.unwrap_or(width);
        expect_verifier(verifier, shared, [config.vocabulary, target_width])?;
        let layers = head.layers_of(verifier.layers())?;
        let naming = head.naming;
        let list = WeightList::after(tensors, verifier.weights().to_vec());
        let first = list.next();
        let mut own = Weights { list, naming, config };

        let embedding = naming.weight("token_embd", "embed_tokens");
        let embedding = if own.has(&embedding) || width != target_width {
            own.list.find(embedding, &[config.vocabulary, width])?
        } else {
            shared
        };
        let joining = own.joining(head, layers.len(), target_width)?;
        let token_norm = own.gain("attn_norm", "input_layernorm", width)?;
        let hidden_norm = own.gain("attn_norm_2", "hidden_norm", width)?;
        let (of_token, attention) = own.attention()?;
        let attended = config.heads * config.head_dim;
        let attention_output = own.matrix("attn_output", "self_attn.o_proj", [width, attended])?;
        let before_mlp = own.gain("ffn_norm", "post_attention_layernorm", width)?;
        let gate = own.matrix("ffn_gate", "mlp.gate_proj", [config.feed_forward, width])?;
        let up = own.matrix("ffn_up", "mlp.up_proj", [config.feed_forward, width])?;
        let down = own.matrix("ffn_down", "mlp.down_proj", [width, config.feed_forward])?;
        let norm = own.list.gain(naming.weight("output_norm", "norm"), width, 0.0)?;
        let made = own.list.draft_head(naming, &head.vocabulary, [config.vocabulary, width])?;
        let list = own.list;
        list.refuse_others(&head.read_tensors)?;

        let kv =
            KvSpec { layers: 1, kv_heads: config.kv_heads, head_dim: config.head_dim, ..KvSpec::default() };
        let head_norms =
            if attention.head_norms[0].is_some() { HeadNorms::EachHead } else { HeadNorms::None };
        let recipe = Recipe { head_norms, ..Recipe::llama(config) };
        let mut graph = Graph::new(&config.name, list.specs, kv);
        let frame = Frame::begin(&mut graph, config, (config.family.pairing)(naming.container), &recipe)?;
        let token = graph.add(Op::Embed { weight: embedding }, &[frame.tokens], None)?;
        let token = graph.add(frame.norm(token_norm), &[token], None)?;
        let given = graph.add(Op::GivenRows { columns: width }, &[], None)?;
        let (x, before_attention) = if head.norm_before_residual {
            (graph.add(frame.norm(hidden_norm), &[given], None)?, None)
        } else {
            (given, Some(hidden_norm))
        };
        let beside = Some(Beside { rows: token, weights: of_token });
        let weights = LayerWeights {
            before_attention,
            sub_layer: SubLayerWeights::Attention(AttentionWeights { beside, ..attention }),
            attention_output: Some(attention_output),
            output_bias: None,
            after_attention: None,
            before_mlp: Some(before_mlp),
            mlp: MlpWeights::Dense(Mlp { gate, up, down }),
            after_mlp: None,
            input: None,
        };
        let x = layer(&frame, &mut graph, 0, &weights, &recipe, x)?;
        let rows = graph.add(Op::SelectRows, &[x, frame.output_rows], None)?;
        let normed = graph.add(frame.norm(norm), &[rows], None)?;
        graph.set_hidden(if head.gives_normed { normed } else { rows });
        let (matrix, tokens) = match made {
            Some(made) => made,
            None => (verifier.head()?, None),
        };
        let logits = graph.add(linear(matrix), &[normed], None)?;
        graph.set_logits(logits);
        if let Some(tokens) = tokens {
            graph.set_reduced_head(ReducedHead { tokens, vocabulary: config.vocabulary });
        }
        graph.set_text_rows(TextRows { layers, graph: TextGraph::Joined(joining) });
        verify::verify(&graph)?;
        if let Some(of_text) = graph.of_text()? {
            verify::verify(&of_text)?;
        }
        Ok(Self { graph, first, orders: list.orders })
    }
}
