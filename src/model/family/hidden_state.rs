//! The graph of a hidden-state drafter: one Llama layer over the next token and the verifier's hidden row before it.
//!
//! As EAGLE has it (<https://arxiv.org/abs/2401.15077>), over rows that each have a norm of their own. Embedding and
//! head are the verifier's, so the graph's weights begin with those of the verifier's graph.

use std::collections::BTreeMap;

use super::{
    frame::{Frame, linear},
    layer::layer,
    recipe::{LayerWeights, Recipe},
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, KvSpec, Op, TextGraph, TextRows, ValueId, WeightId, WeightSpec, verify},
    model::{Container, ModelConfig, ModelError, TensorTable},
};

/// The projection `[D, 2 D]` of the two rows; its columns are the token's, then the hidden row's.
const EH_PROJ: &str = "eh_proj.weight";

/// A hidden-state drafter's graph over a verifier's.
#[derive(Debug)]
pub(in crate::model) struct HiddenStateGraph {
    /// The verified graph.
    pub(in crate::model) graph: Graph,
    /// The first of its own weights.
    pub(in crate::model) first: WeightId,
    /// Which row of its tensor each row is, of those of its own weights that have another order.
    pub(in crate::model) orders: BTreeMap<WeightId, Vec<u32>>,
}

/// The embedding matrix of a graph.
pub(super) fn embedding(verifier: &Graph) -> Result<WeightId, ModelError> {
    let embeds = |value| if let Op::Embed { weight } = verifier.node(value).op { Some(weight) } else { None };
    let found = verifier.topological().into_iter().find_map(embeds);
    found.ok_or_else(|| ModelError::invalid("the verifier's graph", "an embedding of tokens", "none"))
}

/// Refuses a verifier whose embedding matrix has another shape than a drafter was trained for.
pub(super) fn expect_verifier(
    verifier: &Graph,
    embedding: WeightId,
    [vocabulary, width]: [usize; 2],
) -> Result<(), ModelError> {
    let WeightSpec { rows, columns, .. } = verifier.weight(embedding);
    if (*rows, *columns) == (vocabulary, width) {
        return Ok(());
    }
    Err(ModelError::invalid(
        format_args!("the verifier `{}`", verifier.name()),
        format_args!("a vocabulary of {vocabulary} and rows of {width}, which the drafter was trained for"),
        format_args!("{rows} and {columns}; give a drafter of this verifier"),
    ))
}

/// The sum of two products: of a token's row of `embedding` and of the given row, each normalised.
pub(super) fn both_rows(
    frame: &Frame<'_>,
    graph: &mut Graph,
    embedding: WeightId,
    [token_norm, hidden_norm]: [WeightId; 2],
    halves: &[WeightId],
) -> Result<ValueId, ModelError> {
    let token = graph.add(Op::Embed { weight: embedding }, &[frame.tokens], None)?;
    let token = graph.add(frame.norm(token_norm), &[token], None)?;
    let token = graph.add(linear(halves[0]), &[token], None)?;
    let given = graph.add(Op::GivenRows { columns: frame.config.hidden_size }, &[], None)?;
    let given = graph.add(frame.norm(hidden_norm), &[given], None)?;
    let given = graph.add(linear(halves[1]), &[given], None)?;
    Ok(graph.add(Op::Add, &[token, given], None)?)
}

impl HiddenStateGraph {
    /// The graph of a drafter of one layer with these tensors, for the model that `verifier` is the graph of.
    ///
    /// # Errors
    /// [`ModelError`] for a tensor that is missing or has another shape, and for a verifier of another width.
    pub(in crate::model) fn new(
        config: &ModelConfig,
        tensors: &TensorTable,
        verifier: &Graph,
    ) -> Result<Self, ModelError> {
        let (width, vocabulary) = (config.hidden_size, config.vocabulary);
        let embedding = embedding(verifier)?;
        expect_verifier(verifier, embedding, [vocabulary, width])?;
        let head = verifier.head()?;
        let mut list = WeightList::after(tensors, verifier.weights().to_vec());
        let first = list.next();
        let token_norm = list.gain("enorm.weight".to_owned(), width, 0.0)?;
        let hidden_norm = list.gain("hnorm.weight".to_owned(), width, 0.0)?;
        let halves = list.columns(EH_PROJ, width, &[width, width])?;
        let naming = Naming { layers: "layers.", ..Naming::of(Container::Folder) };
        let recipe = Recipe::llama(config);
        let weights = LayerWeights::find(&mut list, naming, 0, config, &recipe)?;
        let norm = list.gain("norm.weight".to_owned(), width, 0.0)?;

        let kv =
            KvSpec { layers: 1, kv_heads: config.kv_heads, head_dim: config.head_dim, ..KvSpec::default() };
        let mut graph = Graph::new(&config.name, list.specs, kv);
        let frame = Frame::begin(&mut graph, config, (config.family.pairing)(naming.container), &recipe)?;
        let x = both_rows(&frame, &mut graph, embedding, [token_norm, hidden_norm], &halves)?;
        let x = layer(&frame, &mut graph, 0, &weights, &recipe, x)?;
        frame.end(&mut graph, &recipe, x, norm, head)?;
        graph.set_text_rows(TextRows { layers: vec![verifier.layers()], graph: TextGraph::Same });
        verify::verify(&graph)?;
        Ok(Self { graph, first, orders: list.orders })
    }
}
