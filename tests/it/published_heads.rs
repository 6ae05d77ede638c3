//! What the tests of heads in published layouts share: tiny heads in `tests/data/KIND`, the verifiers that they are
//! for, and how what is computed compares with the reference.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use ygg_kernels::{KvFormat, Tier};
use yggc::{
    model::{HiddenStateModel, ModelError},
    runtime::{ExecutableSet, MarkovHead, Session},
    speculate::{Candidate, TraceObserver},
    tree::NodeId,
};

use crate::{
    families,
    tiny_model::{Class, TinyModel, WIDTHS, is_cuda},
};

/// Distance of logits from which on their order must be the reference's, and the largest difference of an element of a
/// hidden row, relative to the row's largest where that is above 1.
const LIMITS: (f32, f32) = (0.01, 1e-3);
/// The same on a GPU, which rounds activations to 8 bits of mantissa, in every layer and every node that hands its row
/// down.
const LIMITS_OF_BF16: (f32, f32) = (0.5, 0.15);
/// Short enough for the usual rotation of every verifier.
pub(crate) const CONTEXT: usize = 64;
/// Candidates that the reference has of every row.
pub(crate) const CANDIDATES: usize = 8;

/// Rows of the verifier that the head is given for a place.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) place: usize,
    pub(crate) row: Vec<f32>,
}

/// The most probable tokens after a row, with their logits.
#[derive(Debug, Deserialize)]
pub(crate) struct Best {
    pub(crate) candidates: Vec<u32>,
    pub(crate) logits: Vec<f32>,
}

/// The folder of a kind of heads in `tests/data`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads(pub(crate) &'static str);

impl Heads {
    pub(crate) fn data(self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(self.0).join(name)
    }

    /// The reference of a head.
    pub(crate) fn expected<T: DeserializeOwned>(self, name: &str) -> T {
        let bytes = fs::read(self.data(name).join("expected.json")).expect("the reference is there");
        serde_json::from_slice(&bytes).expect("a reference")
    }

    pub(crate) fn head(self, name: &str) -> HiddenStateModel {
        let opened =
            HiddenStateModel::open(&self.data(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        opened.expect("it says what it is")
    }

    pub(crate) fn verifier(self, name: &str) -> &'static TinyModel {
        #[derive(Deserialize)]
        struct Beside {
            verifier: String,
        }
        let Beside { verifier } = self.expected(name);
        let folder = format!("{verifier} as Folder");
        families::models().iter().find(|model| model.name == folder).expect("a family")
    }

    /// Executables of a head's verifier that keep the rows that it reads, and those of the head.
    pub(crate) fn sets(self, name: &str) -> Sets {
        sets(self.verifier(name), &self.head(name))
    }

    /// A head whose configuration is changed.
    pub(crate) fn changed(
        self,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<HiddenStateModel, ModelError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let weights = "model.safetensors";
        fs::copy(self.data(name).join(weights), folder.path().join(weights)).expect("the head is there");
        let config = fs::read(self.data(name).join("config.json")).expect("the configuration is there");
        let mut config: Value = serde_json::from_slice(&config).expect("JSON");
        edit(&mut config);
        fs::write(folder.path().join("config.json"), config.to_string()).expect("the folder can be written");
        HiddenStateModel::open(folder.path()).map(|opened| opened.expect("it says what it is"))
    }

    /// What a verifier's graph makes of a changed head.
    pub(crate) fn over(self, name: &str, edit: impl FnOnce(&mut Value)) -> Result<(), ModelError> {
        let model = &self.verifier(name).model;
        self.changed(name, edit)?.over(&model.graph, Arc::clone(&model.weights)).map(drop)
    }
}

/// Executables of a verifier that keep the rows that a head reads, and those of the head.
pub(crate) fn sets(verifier: &TinyModel, head: &HiddenStateModel) -> Sets {
    let tier = if is_cuda() { Tier::Cuda } else { Tier::Portable };
    let set = verifier.build(Class::native(tier), KvFormat::F32, WIDTHS.to_vec());
    let weights = Arc::clone(&verifier.model.weights);
    let (graph, both) = head.over(set.graph(), Arc::clone(&weights)).expect("its verifier");
    let set = set.with_kept_layers(weights.as_ref(), graph.layers_read()).expect("it compiles");
    let context = head.context(set.model_context());
    let draft = match head.is_block() {
        true => set.block_beside(&graph, both.as_ref(), context).map(|draft| draft.with_markov(markov(head))),
        false => set.beside(&graph, both.as_ref(), context),
    };
    (Arc::new(set), Arc::new(draft.expect("it compiles")))
}

/// The Markov head of a block drafter, if it has one.
pub(crate) fn markov(head: &HiddenStateModel) -> Option<MarkovHead> {
    let tables = head.markov_tables().expect("tables that fit")?;
    Some(MarkovHead::new(tables.rank, tables.previous, tables.next, tables.tokens))
}

/// Executables of a verifier and of its head.
pub(crate) type Sets = (Arc<ExecutableSet>, Arc<ExecutableSet>);

/// The least margin of an order, and the most that rows differ by.
pub(crate) fn limits() -> (f32, f32) {
    if is_cuda() { LIMITS_OF_BF16 } else { LIMITS }
}

/// What a head is given of a place: a part of every layer that it reads.
pub(crate) fn given(verifying: &Session, layers: &[usize], place: usize) -> Vec<f32> {
    let (kept, width) = (verifying.set().kept_layers(), verifying.set().model_width());
    let row = verifying.committed_hidden(place).expect("it is kept");
    let part = |layer: &usize| kept.iter().position(|kept| kept == layer).expect("a kept layer");
    layers.iter().flat_map(|layer| &row[part(layer) * width..][..width]).copied().collect()
}

#[track_caller]
pub(crate) fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let (_, tolerance) = limits();
    assert!(worst <= tolerance * largest, "{what}: off by {worst} where the largest is {largest}");
}

/// Compares candidates wherever margins are clear; gives how many were.
#[track_caller]
pub(crate) fn same_order(found: &[u32], best: &Best, what: &str) -> usize {
    let (least, _) = limits();
    let is_clear = |place: usize| best.logits[place] - best.logits[place + 1] > least;
    let clear: Vec<usize> = (0..best.logits.len() - 1)
        .filter(|place| is_clear(*place) && (*place == 0 || is_clear(place - 1)))
        .collect();
    for place in &clear {
        let (found, all) = (found[*place], &best.candidates);
        assert_eq!(found, all[*place], "{what}, candidate {place} of {all:?}");
    }
    clear.len()
}

/// Candidates of nodes as they are drafted.
#[derive(Debug, Default)]
pub(crate) struct Seen(pub(crate) Vec<(NodeId, Vec<Candidate>)>);

impl TraceObserver for Seen {
    fn expanded(&mut self, node: NodeId, candidates: &[Candidate]) {
        self.0.push((node, candidates.to_vec()));
    }
}
