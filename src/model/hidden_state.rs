//! Opens a hidden-state drafter: a folder like a model's, without embedding and head, which it shares with its
//! verifier.

use std::{borrow::Cow, path::Path, sync::Arc};

use super::{
    Identity, ModelConfig, ModelError, ModelFingerprint, TensorInfo, TensorTable,
    family::{EH_PROJ, HiddenStateGraph},
    lend,
    open::place_of,
    safetensors,
};
use crate::{
    ir::{Graph, WeightId, WeightSource},
    storage::MappedFile,
};

/// A hidden-state drafter's description, made from bytes alone.
#[derive(Debug)]
pub(super) struct HiddenStateParts {
    pub(super) config: ModelConfig,
    pub(super) verifier: String,
    pub(super) identity: Identity,
    pub(super) tensors: TensorTable,
}

/// One decoder layer that drafts from the hidden rows of the verifier that it was trained for.
///
/// The input of the row at position `p`, from 1 on, is the embedding of the token there and the verifier's hidden row
/// (its residual stream before the final norm) at `p - 1`, each normalised, projected together by `eh_proj.weight`; its
/// logits, by the verifier's head, are for the token at `p + 1`.
#[derive(Debug)]
pub struct HiddenStateModel {
    config: ModelConfig,
    verifier: String,
    tensors: TensorTable,
    files: Vec<MappedFile>,
    identity: Identity,
}

impl HiddenStateModel {
    /// The drafter in the folder at `path`; `None` if what is there says that it is something else.
    ///
    /// # Errors
    /// [`ModelError`], which names the file and what is wrong in it.
    pub fn open(path: &Path) -> Result<Option<Self>, ModelError> {
        let Some((parts, files)) = safetensors::open_hidden_state(path)? else { return Ok(None) };
        let HiddenStateParts { config, verifier, identity, tensors } = parts;
        Ok(Some(Self { config, verifier, tensors, files, identity }))
    }

    /// Its configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The name of the verifier that it was trained for.
    pub fn verifier(&self) -> &str {
        &self.verifier
    }

    /// What binds a plan to this drafter.
    pub fn fingerprint(&self) -> ModelFingerprint {
        self.identity.finish(&self.tensors, |info| lend(&self.files, info))
    }

    /// Its graph over the model that `verifier` is the graph of, with whose weights it begins, and the source of all of
    /// them: `weights` are the verifier's.
    ///
    /// # Errors
    /// [`ModelError`] for a verifier that it was not made for, and for tensors that are missing or have another shape.
    pub fn over(
        &self,
        verifier: &Graph,
        weights: Arc<dyn WeightSource>,
    ) -> Result<(Graph, Arc<dyn WeightSource>), ModelError> {
        let made = HiddenStateGraph::new(&self.config, &self.tensors, verifier)?;
        let HiddenStateGraph { graph, halves, first } = made;
        let (first, count) = (first.0 as usize, graph.weights().len());
        let places = (first..count).map(|id| {
            let weight = &graph.weights()[id];
            match halves.iter().position(|half| half.0 as usize == id) {
                Some(half) => Place::Gathered(self.half(half)),
                None => Place::Mapped(place_of(weight, &self.tensors)),
            }
        });
        let places = places.collect();
        Ok((graph, Arc::new(BothWeights { verifier: weights, first, places, files: self.files.clone() })))
    }

    /// The columns of the projection that are the token's (0) or the hidden row's (1), row by row.
    fn half(&self, half: usize) -> Vec<u8> {
        let info = &self.tensors[EH_PROJ];
        let row_bytes = info.bytes.len() / info.shape[0];
        let rows = lend(&self.files, info).chunks_exact(row_bytes);
        rows.flat_map(|row| &row[half * (row_bytes / 2)..][..row_bytes / 2]).copied().collect()
    }
}

/// Where a weight of the drafter's own lies.
enum Place {
    Mapped(TensorInfo),
    Gathered(Vec<u8>),
}

/// The verifier's weights, and the drafter's own after them.
struct BothWeights {
    verifier: Arc<dyn WeightSource>,
    first: usize,
    places: Vec<Place>,
    files: Vec<MappedFile>,
}

impl WeightSource for BothWeights {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        let Some(own) = (weight.0 as usize).checked_sub(self.first) else {
            return self.verifier.bytes(weight);
        };
        Cow::Borrowed(match &self.places[own] {
            Place::Mapped(info) => lend(&self.files, info),
            Place::Gathered(bytes) => bytes,
        })
    }
}
