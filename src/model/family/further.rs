//! The layer in a model's own files that predicts a further token (multi-token prediction: Gloeckle et al., 2024,
//! <https://arxiv.org/abs/2404.19737>; one that is fed its own rows: DeepSeek-V3, section 2.2,
//! <https://arxiv.org/abs/2412.19437>), as a drafter over the model's hidden rows.
//!
//! It differs from a hidden-state drafter in what it is given: the model's rows after its final norm, and its own rows
//! after its own norm, which are what its head multiplies.

use super::{
    Source,
    frame::{Frame, cache, linear},
    hidden_state::{HiddenStateGraph, both_rows, embedding, expect_verifier},
    layer::layer,
    recipe::{LayerRule, LayerWeights, Recipe},
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, Norm, Op, TextGraph, TextRows, WeightId, verify},
    model::{Container, ModelConfig, ModelError, TensorInfo, TensorTable},
};

/// What files call such a layer, and what it has that others have not.
#[derive(Clone, Debug)]
pub(super) struct FurtherNames {
    naming: Naming,
    /// The projection `[D, 2 D]` of both rows; its columns are the token's, then the hidden row's.
    projection: String,
    token_norm: String,
    hidden_norm: String,
    norm: String,
    /// What the names of all its tensors begin with.
    begin: String,
}

impl FurtherNames {
    /// Those of Qwen 3.5: one layer, in GGUF files after all others.
    pub(super) fn of(source: &Source<'_>) -> Self {
        let container = source.fields.container();
        match container {
            Container::Folder => Self {
                naming: Naming { layers: "mtp.layers.", ..Naming::of(container) },
                projection: "mtp.fc.weight".to_owned(),
                token_norm: "mtp.pre_fc_norm_embedding.weight".to_owned(),
                hidden_norm: "mtp.pre_fc_norm_hidden.weight".to_owned(),
                norm: "mtp.norm.weight".to_owned(),
                begin: "mtp.".to_owned(),
            },
            Container::Gguf => {
                let first = source.config.layers;
                let own = |name: &str| format!("blk.{first}.nextn.{name}.weight");
                Self {
                    naming: Naming { first, ..Naming::of(container) },
                    projection: own("eh_proj"),
                    token_norm: own("enorm"),
                    hidden_norm: own("hnorm"),
                    norm: own("shared_head_norm"),
                    begin: format!("blk.{first}."),
                }
            }
        }
    }
}

/// A model's layer that predicts a further token.
#[derive(Debug)]
pub(in crate::model) struct FurtherLayer {
    recipe: Recipe,
    names: FurtherNames,
    /// The gain of the model's final norm.
    final_norm: String,
}

impl FurtherLayer {
    /// That of the model that `recipe` is of; `None` if its files have none.
    pub(super) fn of(source: &Source<'_>, recipe: Recipe) -> Option<Self> {
        let mut names = recipe.further.clone()?;
        names.naming.renamed = recipe.names;
        let rule = LayerRule { instead: None, ..recipe.layers[0] };
        let final_norm = names.naming.weight("output_norm", "model.norm");
        let further = Self { recipe: Recipe { layers: vec![rule], ..recipe }, names, final_norm };
        (!further.own(source.tensors).is_empty()).then_some(further)
    }

    /// Its tensors of all that are in the model's files.
    pub(in crate::model) fn own(&self, tensors: &TensorTable) -> TensorTable {
        let is_own = |(name, _): &(&String, &TensorInfo)| name.starts_with(&self.names.begin);
        tensors.iter().filter(is_own).map(|(name, info)| (name.clone(), info.clone())).collect()
    }
}

impl HiddenStateGraph {
    /// The graph of a model's further layer, where `verifier` is the model's.
    ///
    /// # Errors
    /// [`ModelError`] for a tensor that is missing, has another shape or is one that the graph does not compute, and
    /// for the graph of another model.
    pub(in crate::model) fn further(
        config: &ModelConfig,
        further: &FurtherLayer,
        tensors: &TensorTable,
        verifier: &Graph,
    ) -> Result<Self, ModelError> {
        let FurtherLayer { recipe, names, final_norm } = further;
        let width = config.hidden_size;
        let embedding = embedding(verifier)?;
        expect_verifier(verifier, embedding, [config.vocabulary, width])?;
        let head = verifier.head()?;
        let final_norm =
            verifier.weights().iter().position(|spec| spec.name == *final_norm).ok_or_else(|| {
                ModelError::invalid(
                    format_args!("the verifier `{}`", verifier.name()),
                    format_args!("the model whose further layer this is, with `{final_norm}`"),
                    "none",
                )
            })?;
        let final_norm = WeightId(u32::try_from(final_norm).expect("layers are limited"));
        let mut list = WeightList::after(tensors, verifier.weights().to_vec());
        let first = list.next();
        let gain =
            |list: &mut WeightList<'_>, name: &str| list.gain(name.to_owned(), width, recipe.gain_offset);
        let token_norm = gain(&mut list, &names.token_norm)?;
        let hidden_norm = gain(&mut list, &names.hidden_norm)?;
        let halves = list.columns(&names.projection, width, &[width, width])?;
        let weights = LayerWeights::find(&mut list, names.naming, 0, config, recipe)?;
        let norm = gain(&mut list, &names.norm)?;
        list.refuse_others(&[])?;

        let mut graph = Graph::new(&config.name, list.specs, cache(config, recipe));
        let pairing = (config.family.pairing)(names.naming.container);
        let frame = Frame::begin(&mut graph, config, pairing, recipe)?;
        let x = both_rows(&frame, &mut graph, embedding, [token_norm, hidden_norm], &halves)?;
        let x = layer(&frame, &mut graph, 0, &weights, recipe, x)?;
        let rows = graph.add(Op::SelectRows, &[x, frame.output_rows], None)?;
        let normed = graph.add(frame.norm(norm), &[rows], None)?;
        graph.set_hidden(normed);
        let logits = graph.add(linear(head), &[normed], None)?;
        graph.set_logits(logits);
        let of_text = TextGraph::Normed(Norm { weight: final_norm, eps: config.rms_eps });
        graph.set_text_rows(TextRows { layers: vec![verifier.layers()], graph: of_text });
        verify::verify(&graph)?;
        if let Some(of_text) = graph.of_text()? {
            verify::verify(&of_text)?;
        }
        Ok(Self { graph, first, orders: list.orders })
    }
}
