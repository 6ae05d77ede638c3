//! Opens models: configuration, verified graph, and weights borrowed from the mapped files.

use std::{
    borrow::Cow,
    fmt, fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    HiddenStateModel, HiddenStateParts, Identity, LentWeight, ModelConfig, ModelError, ModelFingerprint,
    TensorTable, VocabularySource, gguf,
    load_progress::{Watch, counting},
    pieces, safetensors,
};
use crate::{
    ir::{Graph, SharedBytes, WeightId, WeightSource},
    packed::{KeptModel, KeptPlace, KeptWeights, PackedNote},
    storage::{FileStamp, MappedFile, StorageError},
};

/// A model without its weights, as read from bytes. [`Model`] adds the owner of the weights.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) config: ModelConfig,
    pub(super) graph: Graph,
    /// The layer that predicts a further token.
    pub(super) further: Option<HiddenStateParts>,
    pub(super) vocabulary: VocabularySource,
    pub(super) chat_template: Option<String>,
    pub(super) stop_tokens: Vec<u32>,
    pub(super) identity: Identity,
    /// Tensors that were read into the configuration or into the graph.
    pub(super) read_tensors: Vec<String>,
    pub(super) tensors: TensorTable,
}

/// Which kind of files a model is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// One GGUF file, or all parts of a model that is split into several.
    Gguf,
    /// A Hugging Face folder.
    Folder,
}

/// An opened model. Its graph is verified and every weight of the graph has its bytes.
///
/// ```no_run
/// # use yggc::model::Model;
/// let model = Model::open("SmolLM2-135M-Instruct.Q4_1.gguf".as_ref())?;
/// println!("{} has {} layers; {}", model.config.name, model.config.layers, model.fingerprint());
/// # Ok::<(), yggc::model::ModelError>(())
/// ```
pub struct Model {
    /// The path it was opened by.
    pub path: PathBuf,
    /// Which kind of files it is in.
    pub container: Container,
    /// Its configuration.
    pub config: ModelConfig,
    /// Its graph, symbolic in width; weights are numbered by [`Graph::weights`].
    pub graph: Graph,
    /// Lends the bytes of the graph's weights from the mapped files.
    pub weights: Arc<dyn WeightSource>,
    /// The layer that predicts a further token, if its files have one: a drafter for it.
    pub further: Option<Arc<HiddenStateModel>>,
    /// Where packed copies of its weights are kept, if it was [said](Self::kept_in).
    pub kept: Option<KeptWeights>,
    /// Told of every weight that is loaded; does nothing unless it is [watched](Self::watched).
    pub watch: Watch,
    /// Where its tokenizer comes from.
    pub vocabulary: VocabularySource,
    /// Its chat template in Jinja, if it has one.
    pub chat_template: Option<String>,
    /// Tokens that end a generation, all below the vocabulary size; may be empty.
    pub stop_tokens: Vec<u32>,
    /// Every tensor in its files.
    pub tensors: TensorTable,
    /// Names of the tensors nothing reads.
    pub unused_tensors: Vec<String>,
    files: Vec<MappedFile>,
    identity: Identity,
}

struct MappedWeights {
    files: Vec<MappedFile>,
    places: Vec<LentWeight>,
}

impl WeightSource for MappedWeights {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        self.places[weight.0 as usize].bytes(&self.files)
    }

    fn shared(&self, weight: WeightId) -> SharedBytes {
        let place = &self.places[weight.0 as usize];
        match place.place() {
            Some((file, bytes)) => {
                SharedBytes(Arc::new(MappedPart { file: self.files[file].clone(), bytes }))
            }
            None => SharedBytes(Arc::new(place.bytes(&self.files).into_owned())),
        }
    }
}

/// A part of a mapped file.
struct MappedPart {
    file: MappedFile,
    bytes: Range<usize>,
}

impl AsRef<[u8]> for MappedPart {
    fn as_ref(&self) -> &[u8] {
        &self.file.bytes()[self.bytes.clone()]
    }
}

impl Model {
    /// Opens a GGUF file, or the model that it is a part of, or a Hugging Face folder. Weights are mapped, not read:
    /// see [`crate::storage`] for what must not happen to the files meanwhile.
    ///
    /// # Errors
    /// [`ModelError`], which names the file and what is wrong in it.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let kind = fs::metadata(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
        if kind.is_dir() {
            let (parts, files) = safetensors::open(path)?;
            return Ok(Self::assemble(path, Container::Folder, parts, files));
        }
        let file = match MappedFile::open(path) {
            Err(StorageError::Empty { .. }) => {
                let found = "an empty file".to_owned();
                return Err(ModelError::NotAModel { path: path.to_owned(), found });
            }
            other => other?,
        };
        if !file.bytes().starts_with(gguf::MAGIC) {
            let found = appearance(path, file.bytes()).to_owned();
            return Err(ModelError::NotAModel { path: path.to_owned(), found });
        }
        let (parts, files) = gguf::open(path, file)?;
        Ok(Self::assemble(path, Container::Gguf, parts, files))
    }

    fn assemble(path: &Path, container: Container, parts: Parts, files: Vec<MappedFile>) -> Self {
        let Parts { config, graph, vocabulary, chat_template, stop_tokens, identity, .. } = parts;
        let Parts { further, read_tensors, tensors, .. } = parts;
        let places = graph.weights().iter().map(|weight| LentWeight::of(weight, &tensors, None)).collect();
        let unused_tensors = unused(&graph, &tensors, &read_tensors);
        Self {
            path: path.to_owned(),
            container,
            config,
            graph,
            weights: Arc::new(MappedWeights { files: files.clone(), places }),
            further: further.map(|parts| Arc::new(HiddenStateModel::further(parts, files.clone()))),
            kept: None,
            watch: Box::new(|_| ()),
            vocabulary,
            chat_template,
            stop_tokens,
            tensors,
            unused_tensors,
            files,
            identity,
        }
    }

    /// The same model, with a cache of packed weights: loading reads them from `place` if they are there and current,
    /// else it packs the weights and stores them. `report` is called with the outcome. On systems without
    /// [`FileStamp`](crate::storage::FileStamp)s nothing is stored.
    ///
    /// # Errors
    /// [`ModelError::Storage`] if the system does not say how old the files are.
    pub fn kept_in(
        mut self,
        place: KeptPlace,
        report: impl Fn(PackedNote) + Send + Sync + 'static,
    ) -> Result<Self, ModelError> {
        let Some(stamps) = FileStamp::of_all(&self.files)? else { return Ok(self) };
        let path = fs::canonicalize(&self.path)
            .map_err(|source| ModelError::Read { path: self.path.clone(), source })?;
        let (fingerprint, files) = (*self.fingerprint().as_bytes(), self.files.clone());
        let model = KeptModel { path, fingerprint, files, stamps };
        self.kept = Some(KeptWeights::new(place, model, report));
        Ok(self)
    }

    pub(super) fn files(&self) -> &[MappedFile] {
        &self.files
    }

    /// The same model, which reports the progress of loading: `report(loaded, total)` in bytes of weights. Calls never
    /// overlap, `loaded` grows with each, and the last call has `loaded == total`.
    #[must_use]
    pub fn watched(mut self, report: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.watch = counting(&self.graph, &*self.weights, report);
        self
    }

    /// Gives back the memory of what was read of its files.
    pub(crate) fn let_pages_go(&self) {
        self.files.iter().for_each(MappedFile::let_pages_go);
    }

    /// Checks that its files have not changed since they were opened. Call it after all weights have been read.
    ///
    /// # Errors
    /// [`ModelError::Storage`] with the file that was written into.
    pub fn check_unchanged(&self) -> Result<(), ModelError> {
        Ok(self.files.iter().try_for_each(MappedFile::check_unchanged)?)
    }

    /// What binds a plan to this model. Reads at most 3 KiB of each tensor.
    pub fn fingerprint(&self) -> ModelFingerprint {
        self.identity.finish(&self.tensors, |info| pieces(&self.files, info))
    }
}

fn unused(graph: &Graph, tensors: &TensorTable, read: &[String]) -> Vec<String> {
    let used: std::collections::BTreeSet<&str> =
        graph.weights().iter().map(|w| w.name.as_str()).chain(read.iter().map(String::as_str)).collect();
    tensors.keys().filter(|name| !used.contains(name.as_str())).cloned().collect()
}

/// What a file that is no GGUF looks like, for the error.
fn appearance(path: &Path, bytes: &[u8]) -> &'static str {
    let start = &bytes[..bytes.len().min(256)];
    if path.extension().is_some_and(|e| e == "safetensors") {
        "a single safetensors file: give the folder it is in"
    } else if start.starts_with(b"PK") {
        "a zip archive"
    } else if start.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
        "text"
    } else {
        "a file that does not begin with `GGUF`"
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("path", &self.path)
            .field("container", &self.container)
            .field("config", &self.config)
            .field("weights", &self.graph.weights().len())
            .field("stop_tokens", &self.stop_tokens)
            .field("unused_tensors", &self.unused_tensors)
            .finish_non_exhaustive()
    }
}
