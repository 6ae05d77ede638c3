//! The graphs of a block drafter: of the rows that it drafts together, and of the text before them.
//!
//! As Chen et al. have it in DFlash (<https://arxiv.org/abs/2602.06036>) and its authors' program
//! (<https://github.com/z-lab/dflash>): the layers are those of Qwen 3. A block is the text's last token and mask
//! tokens, whose rows all see one another and the text. Of the text the layers have keys and values alone, products of
//! one row of each token, which `fc` and `hidden_norm` make of several of the verifier's. Embedding and head are the
//! verifier's unless files have some.

use super::{
    Family,
    accepted::{activation, common, whole_heads_turn},
    frame::{Frame, linear},
    hidden_state::{HiddenStateGraph, embedding, expect_verifier},
    layer::layer,
    recipe::{AttentionWeights, HeadNorms, LayerWeights, Recipe, SubLayerWeights},
    weights::WeightList,
};
use crate::{
    ir::{Graph, KvSpec, Op, ReducedHead, TextGraph, TextRows, WeightId, WeightSpec, verify},
    model::{
        BlockHead, Container, ModelConfig, ModelError, TensorTable,
        config::{Fields, only},
    },
};
use ygg_kernels::RopePairing;

/// What sizes of a block drafter are checked by; models of this name there are none.
pub(in crate::model) static BLOCK: Family = Family {
    name: "block",
    models: "block drafters",
    beside_llama: "rows that see one another, and a text of keys and values",
    tried: &[],
    classes: &[],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept,
    recipe: |_| Err(ModelError::unsupported("a block drafter", "as a model", "a drafter model")),
};

/// Refuses what no block drafter that is read here computes.
fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    common(fields, config)?;
    if fields.container() == Container::Folder {
        // A window ends at a row's own place, and rows see those after theirs.
        for kind in fields.texts("layer_types")?.iter().flatten() {
            only("layer_types", Some(kind.as_str()), "full_attention", "attention to the whole text")?;
        }
    }
    activation(fields, &["hidden_act"], "silu")?;
    whole_heads_turn(fields, config)
}

/// The graph of a text: what its rows leave in the cache.
fn text_graph(
    config: &ModelConfig,
    weights: Vec<WeightSpec>,
    kv: KvSpec,
    recipe: &Recipe,
    [fc, hidden_norm]: [WeightId; 2],
    layers: &[LayerWeights],
) -> Result<Graph, ModelError> {
    let columns = weights[fc.0 as usize].columns;
    let mut graph = Graph::new(&config.name, weights, kv);
    let frame = Frame::begin(&mut graph, config, RopePairing::Halves, recipe)?;
    let given = graph.add(Op::GivenRows { columns }, &[], None)?;
    let joined = graph.add(linear(fc), &[given], None)?;
    let context = graph.add(frame.norm(hidden_norm), &[joined], None)?;
    for (layer, weights) in layers.iter().enumerate() {
        let SubLayerWeights::Attention(AttentionWeights { keys: Some([key, value]), head_norms, .. }) =
            &weights.sub_layer
        else {
            continue;
        };
        let k = graph.add(linear(*key), &[context], None)?;
        let v = graph.add(linear(*value), &[context], None)?;
        let k = frame.maybe_norm(&mut graph, head_norms[1], k, None)?;
        let k = match frame.attending(recipe, layer).rope {
            Some(rope) => graph.add(Op::Rope(rope), &[k, frame.positions], None)?,
            None => k,
        };
        let append = Op::AppendKv { layer, rope: None };
        graph.add(append, &[k, v, frame.slots, frame.positions], None)?;
    }
    // A graph shows something; nothing reads this.
    let shown = graph.add(Op::SelectRows, &[context, frame.output_rows], None)?;
    graph.set_logits(shown);
    verify::verify(&graph)?;
    Ok(graph)
}

impl HiddenStateGraph {
    /// The graph of a block drafter with these tensors, for the model that `verifier` is the graph of.
    ///
    /// # Errors
    /// [`ModelError`] for a tensor that is missing, has another shape or is one that the graph does not compute, and
    /// for a verifier of another width, another vocabulary or fewer layers.
    pub(in crate::model) fn block(
        config: &ModelConfig,
        head: &BlockHead,
        tensors: &TensorTable,
        verifier: &Graph,
    ) -> Result<Self, ModelError> {
        let (shared, width) = (embedding(verifier)?, config.hidden_size);
        let target_width = head.target_width.unwrap_or(width);
        expect_verifier(verifier, shared, [config.vocabulary, target_width])?;
        head.expect_layers(verifier.layers())?;
        head.expect_markov(config.vocabulary, tensors)?;
        let naming = head.naming;
        let mut list = WeightList::after(tensors, verifier.weights().to_vec());
        let first = list.next();

        let embedding = naming.weight("token_embd", "embed_tokens");
        let embedding = if tensors.contains_key(&embedding) || width != target_width {
            list.find(embedding, &[config.vocabulary, width])?
        } else {
            shared
        };
        let fc = list.find("fc.weight".to_owned(), &[width, head.layers.len() * target_width])?;
        let hidden_norm = list.gain("hidden_norm.weight".to_owned(), width, 0.0)?;
        let recipe = Recipe {
            head_norms: HeadNorms::EachHead,
            logit_scale: head.logit_scale,
            logit_softcap: head.logit_softcap,
            ..Recipe::llama(config)
        };
        let layers = (0..config.layers)
            .map(|index| LayerWeights::find(&mut list, naming, index, config, &recipe))
            .collect::<Result<Vec<_>, _>>()?;
        let norm = list.gain(naming.weight("output_norm", "norm"), width, 0.0)?;
        let made = list.draft_head(naming, &head.vocabulary, [config.vocabulary, width])?;
        list.refuse_others(&head.read_tensors())?;

        let kv = KvSpec {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            ..KvSpec::default()
        };
        let text = text_graph(config, list.specs.clone(), kv, &recipe, [fc, hidden_norm], &layers)?;
        let mut graph = Graph::new(&config.name, list.specs, kv);
        let frame = Frame::begin(&mut graph, config, RopePairing::Halves, &recipe)?;
        let mut x = graph.add(Op::Embed { weight: embedding }, &[frame.tokens], None)?;
        if head.embedding_scale != 1.0 {
            x = graph.add(Op::Scale { factor: head.embedding_scale }, &[x], None)?;
        }
        for (index, weights) in layers.iter().enumerate() {
            x = layer(&frame, &mut graph, index, weights, &recipe, x)?;
        }
        let (matrix, tokens) = match made {
            Some(made) => made,
            None => (verifier.head()?, None),
        };
        frame.end(&mut graph, &recipe, x, norm, matrix)?;
        if let Some(tokens) = tokens {
            graph.set_reduced_head(ReducedHead { tokens, vocabulary: config.vocabulary });
        }
        graph.set_text_rows(TextRows { layers: head.layers.clone(), graph: TextGraph::Own(Box::new(text)) });
        graph.set_block_rows(head.rows);
        verify::verify(&graph)?;
        Ok(Self { graph, first, orders: list.orders })
    }
}
