//! The graph of a hidden-state drafter: one Llama layer over the next token and the verifier's hidden row before it.
//!
//! As EAGLE has it (<https://arxiv.org/abs/2401.15077>), over rows that each have a norm of their own. Embedding and
//! head are the verifier's, so the graph's weights begin with those of the verifier's graph.

use super::{
    frame::{Frame, linear},
    layer::layer,
    recipe::{LayerWeights, Recipe},
    weights::{Naming, WeightList},
};
use crate::{
    ir::{ConvSpec, Graph, KvSpec, Op, TextRows, WeightId, WeightSpec, verify},
    model::{Container, ModelConfig, ModelError, TensorTable},
};

/// The projection `[D, 2 D]` of the two rows; its columns are the token's, then the hidden row's.
pub(in crate::model) const EH_PROJ: &str = "eh_proj.weight";

/// A hidden-state drafter's graph over a verifier's.
#[derive(Debug)]
pub(in crate::model) struct HiddenStateGraph {
    /// The verified graph.
    pub(in crate::model) graph: Graph,
    /// The halves `[D, D]` of the projection, for the token and for the hidden row.
    pub(in crate::model) halves: [WeightId; 2],
    /// The first of its own weights.
    pub(in crate::model) first: WeightId,
}

/// The embedding matrix of a graph.
fn embedding(verifier: &Graph) -> Result<WeightId, ModelError> {
    let embeds = |value| if let Op::Embed { weight } = verifier.node(value).op { Some(weight) } else { None };
    let found = verifier.topological().into_iter().find_map(embeds);
    found.ok_or_else(|| ModelError::invalid("the verifier's graph", "an embedding of tokens", "none"))
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
        let WeightSpec { rows, columns, .. } = verifier.weight(embedding);
        if (*rows, *columns) != (vocabulary, width) {
            return Err(ModelError::invalid(
                format_args!("the verifier `{}`", verifier.name()),
                format_args!(
                    "a vocabulary of {vocabulary} and rows of {width}, which the drafter was trained for"
                ),
                format_args!("{rows} and {columns}; give a drafter of this verifier"),
            ));
        }
        let head = verifier.head()?;
        let specs = verifier.weights().to_vec();
        let first = WeightId(u32::try_from(specs.len()).expect("few weights"));
        let mut list = WeightList { tensors, specs };
        let token_norm = list.gain("enorm.weight".to_owned(), width, 0.0)?;
        let hidden_norm = list.gain("hnorm.weight".to_owned(), width, 0.0)?;
        let whole = list.find(EH_PROJ.to_owned(), &[width, 2 * width])?;
        let half = |which: &str, list: &mut WeightList<'_>| {
            let spec = &list.specs[whole.0 as usize];
            let spec = WeightSpec { name: format!("{EH_PROJ} of {which}"), columns: width, ..spec.clone() };
            list.specs.push(spec);
            WeightId(u32::try_from(list.specs.len() - 1).expect("few weights"))
        };
        let halves = [half("tokens", &mut list), half("hidden rows", &mut list)];
        let naming = Naming { layers: "layers.", ..Naming::of(Container::Folder) };
        let recipe = Recipe::llama(config);
        let weights = LayerWeights::find(&mut list, naming, 0, config, &recipe)?;
        let norm = list.gain("norm.weight".to_owned(), width, 0.0)?;

        let kv = KvSpec {
            layers: 1,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            conv: ConvSpec::default(),
        };
        let mut graph = Graph::new(&config.name, list.specs, kv);
        let frame = Frame::begin(&mut graph, config, (config.family.pairing)(naming.container), &recipe)?;
        let token = graph.add(Op::Embed { weight: embedding }, &[frame.tokens], None)?;
        let token = graph.add(frame.norm(token_norm), &[token], None)?;
        let token = graph.add(linear(halves[0]), &[token], None)?;
        let hidden = graph.add(Op::GivenRows { columns: width }, &[], None)?;
        let hidden = graph.add(frame.norm(hidden_norm), &[hidden], None)?;
        let hidden = graph.add(linear(halves[1]), &[hidden], None)?;
        let x = graph.add(Op::Add, &[token, hidden], None)?;
        let x = layer(&frame, &mut graph, 0, &weights, &recipe, x)?;
        frame.end(&mut graph, &recipe, x, norm, head)?;
        graph.set_text_rows(TextRows { layers: vec![verifier.layers()], joining: None });
        verify::verify(&graph)?;
        Ok(Self { graph, halves, first })
    }
}
