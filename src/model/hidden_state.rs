//! Opens a drafter of one layer over its verifier's hidden rows: a hidden-state drafter, which shares embedding and
//! head with its verifier, an EAGLE-3 head as others publish it, or the layer in the verifier's own files that predicts
//! a further token.

use std::{borrow::Cow, path::Path, sync::Arc};

use super::{
    BlockHead, Eagle3, Identity, LentWeight, MarkovTables, ModelConfig, ModelError, ModelFingerprint,
    TensorTable,
    family::{FurtherLayer, HiddenStateGraph},
    gguf, lend, pieces, safetensors,
};
use crate::{
    ir::{Graph, SharedBytes, WeightId, WeightSource, WeightSpec},
    storage::MappedFile,
};

/// What a drafter is, and what its files say in addition to sizes.
#[derive(Debug)]
pub(super) enum Layout {
    /// A hidden-state drafter.
    HiddenState,
    /// An EAGLE-3 head.
    Eagle3(Eagle3),
    /// A block drafter.
    Block(BlockHead),
    /// A layer in the verifier's own files.
    Further(Box<FurtherLayer>),
}

impl Layout {
    /// Elements of the verifier's rows where these may differ from the drafter's own.
    pub(super) fn target_width(&self) -> Option<usize> {
        match self {
            Layout::HiddenState | Layout::Further(_) => None,
            Layout::Eagle3(head) => head.target_width,
            Layout::Block(head) => head.target_width,
        }
    }
}

/// The description of a drafter over hidden rows, made from bytes alone.
#[derive(Debug)]
pub(super) struct HiddenStateParts {
    pub(super) config: ModelConfig,
    pub(super) verifier: String,
    pub(super) layout: Layout,
    pub(super) identity: Identity,
    pub(super) tensors: TensorTable,
}

impl HiddenStateParts {
    /// The graph over the model that `verifier` is the graph of.
    ///
    /// # Errors
    /// As [`HiddenStateModel::over`].
    pub(super) fn graph(&self, verifier: &Graph) -> Result<HiddenStateGraph, ModelError> {
        match &self.layout {
            Layout::HiddenState => HiddenStateGraph::new(&self.config, &self.tensors, verifier),
            Layout::Eagle3(head) => HiddenStateGraph::eagle3(&self.config, head, &self.tensors, verifier),
            Layout::Block(head) => HiddenStateGraph::block(&self.config, head, &self.tensors, verifier),
            Layout::Further(layer) => HiddenStateGraph::further(&self.config, layer, &self.tensors, verifier),
        }
    }

    /// Those of a layer in a model's own files.
    pub(super) fn further(
        layer: FurtherLayer,
        model: &ModelConfig,
        tensors: &TensorTable,
        identity: &Identity,
    ) -> Self {
        Self {
            config: ModelConfig { layers: 1, ..model.clone() },
            verifier: model.name.clone(),
            tensors: layer.own(tensors),
            layout: Layout::Further(Box::new(layer)),
            identity: identity.clone(),
        }
    }
}

/// One decoder layer that drafts from the hidden rows of the verifier that it was trained for.
///
/// The input of the row at position `p`, from 1 on, is the embedding of the token there and the verifier's hidden row
/// at `p - 1`; its logits are for the token at `p + 1`. A hidden-state drafter reads the verifier's residual stream
/// before the final norm, projects both rows, each normalised, by `eh_proj.weight`, and has the verifier's head; a layer
/// of the verifier's own files reads the stream after that norm. An EAGLE-3 head reads rows of several layers, joined by
/// `fc.weight`, and has a head of its own.
#[derive(Debug)]
pub struct HiddenStateModel {
    parts: HiddenStateParts,
    files: Vec<MappedFile>,
}

impl HiddenStateModel {
    /// That of a layer in a model's own `files`.
    pub(super) fn further(parts: HiddenStateParts, files: Vec<MappedFile>) -> Self {
        Self { parts, files }
    }

    /// Whether it is a layer in its verifier's own files.
    pub fn is_further(&self) -> bool {
        matches!(self.parts.layout, Layout::Further(_))
    }

    /// The drafter in the folder or the GGUF file at `path`; `None` if what is there says that it is something else.
    ///
    /// # Errors
    /// [`ModelError`], which names the file and what is wrong in it.
    pub fn open(path: &Path) -> Result<Option<Self>, ModelError> {
        let opened = if path.is_file() {
            gguf::open_hidden_state(path)?
        } else {
            safetensors::open_hidden_state(path)?
        };
        Ok(opened.map(|(parts, files)| Self { parts, files }))
    }

    /// Its configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.parts.config
    }

    /// Whether a tensor of this name is one of its own.
    pub fn has(&self, name: &str) -> bool {
        self.parts.tensors.contains_key(name)
    }

    /// The name of the verifier that it was trained for; empty if its files name none.
    pub fn verifier(&self) -> &str {
        &self.parts.verifier
    }

    /// The longest text that it drafts after, with a verifier that was made for `context` tokens. The files of EAGLE-3
    /// heads and block drafters say how long its training texts were; other programs let it draft as far as the
    /// verifier goes.
    pub fn context(&self, context: usize) -> usize {
        let own = self.parts.config.context;
        match self.parts.layout {
            Layout::HiddenState | Layout::Further(_) => own,
            Layout::Eagle3(_) | Layout::Block(_) => own.max(context),
        }
    }

    /// Whether it is a block drafter: one forward proposes several tokens.
    pub fn is_block(&self) -> bool {
        matches!(self.parts.layout, Layout::Block(_))
    }

    /// The tables of its Markov head, if it is a block drafter that has one and whose [graph](Self::over) was made.
    ///
    /// # Errors
    /// [`ModelError`] for tables that do not fit.
    pub fn markov_tables(&self) -> Result<Option<MarkovTables>, ModelError> {
        let HiddenStateParts { config, layout, tensors, .. } = &self.parts;
        let Layout::Block(head) = layout else { return Ok(None) };
        head.expect_markov(config.vocabulary, tensors)?;
        MarkovTables::read(head, config.vocabulary, tensors, |info| lend(&self.files, info))
    }

    /// What binds a plan to this drafter.
    pub fn fingerprint(&self) -> ModelFingerprint {
        self.parts.identity.finish(&self.parts.tensors, |info| pieces(&self.files, info))
    }

    /// Its graph over the model that `verifier` is the graph of, with whose weights it begins, and the source of all of
    /// them: `weights` are the verifier's. The graph says [which of the verifier's rows](Graph::layers_read) it reads.
    ///
    /// # Errors
    /// [`ModelError`] for a verifier that it was not made for, and for tensors that are missing or have another shape.
    pub fn over(
        &self,
        verifier: &Graph,
        weights: Arc<dyn WeightSource>,
    ) -> Result<(Graph, Arc<dyn WeightSource>), ModelError> {
        let HiddenStateGraph { graph, mut orders, first } = self.parts.graph(verifier)?;
        let tensors = &self.parts.tensors;
        let first = first.0 as usize;
        let place = |(number, spec): (usize, &WeightSpec)| {
            let id = WeightId(u32::try_from(number).expect("few weights"));
            LentWeight::of(spec, tensors, orders.remove(&id))
        };
        let places = graph.weights().iter().enumerate().skip(first).map(place).collect();
        Ok((graph, Arc::new(BothWeights { verifier: weights, first, places, files: self.files.clone() })))
    }
}

/// The verifier's weights, and the drafter's own after them.
struct BothWeights {
    verifier: Arc<dyn WeightSource>,
    first: usize,
    places: Vec<LentWeight>,
    files: Vec<MappedFile>,
}

impl WeightSource for BothWeights {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        let Some(own) = (weight.0 as usize).checked_sub(self.first) else {
            return self.verifier.bytes(weight);
        };
        self.places[own].bytes(&self.files)
    }

    fn shared(&self, weight: WeightId) -> SharedBytes {
        match (weight.0 as usize) < self.first {
            true => self.verifier.shared(weight),
            false => SharedBytes(Arc::new(self.bytes(weight).into_owned())),
        }
    }
}
