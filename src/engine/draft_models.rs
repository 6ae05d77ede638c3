//! Drafter models: opened, checked against the verifier, and loaded in addition to its executables.

use std::{
    path::{self, Path, PathBuf},
    sync::Arc,
};

use crate::{
    model::{HiddenStateModel, LowBit, MarkovTables, Model, ModelFingerprint, in_fewer_bits},
    plan::{BlockSettings, DrafterFacts, DrafterFile, DrafterKind, ModelSettings},
    runtime::{ExecutableSet, MarkovHead, Session, SessionOptions, VariantChange},
    text::TokenDifference,
};

use super::{Error, Hint, Loaded, loaded::tokenizer};

/// A model that can draft for a verifier, opened.
#[derive(Debug)]
pub struct DraftModel {
    path: PathBuf,
    files: Files,
}

#[derive(Debug)]
enum Files {
    /// A model by itself.
    Plain(Box<Model>),
    /// Layers over a verifier's hidden rows: a hidden-state drafter, an EAGLE-3 head, a block drafter or a layer of the
    /// verifier's own files.
    HiddenState(Arc<HiddenStateModel>),
}

impl DraftModel {
    /// Opens a model file or folder, or the folder of a drafter over hidden rows.
    ///
    /// # Errors
    /// [`Error`] of kind `Input`, which names the file and what is wrong in it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let files = match HiddenStateModel::open(path)? {
            Some(model) => Files::HiddenState(Arc::new(model)),
            None => Files::Plain(Box::new(Model::open(path)?)),
        };
        Ok(Self { path: path.to_owned(), files })
    }

    /// The layer in a model's own files that predicts a further token, if there is one.
    pub fn further(model: &Model) -> Option<Self> {
        let layer = Arc::clone(model.further.as_ref()?);
        Some(Self { path: model.path.clone(), files: Files::HiddenState(layer) })
    }

    /// What binds a plan to it.
    pub fn fingerprint(&self) -> ModelFingerprint {
        match &self.files {
            Files::Plain(model) => model.fingerprint(),
            Files::HiddenState(model) => model.fingerprint(),
        }
    }

    /// Whether it reads the hidden rows of the verifier that it was trained for.
    pub fn reads_hidden_rows(&self) -> bool {
        matches!(self.files, Files::HiddenState(_))
    }

    /// Whether it is a layer in its verifier's own files.
    pub fn is_further(&self) -> bool {
        matches!(&self.files, Files::HiddenState(model) if model.is_further())
    }

    /// Whether it is a block drafter, which is a kind of its own.
    pub fn is_block(&self) -> bool {
        match &self.files {
            Files::Plain(_) => false,
            Files::HiddenState(model) => model.is_block(),
        }
    }

    /// The drafter that runs it.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn drafter(&self) -> Result<DrafterKind, Error> {
        let model = self.file()?;
        Ok(match self.is_block() {
            true => BlockSettings { model }.into(),
            false => ModelSettings { model, head_tokens: None }.into(),
        })
    }

    /// Its file as profiles and plans name it.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` if its path is not UTF-8 or has no absolute form.
    pub fn file(&self) -> Result<DrafterFile, Error> {
        drafter_file("drafter model", &self.path, self.fingerprint().to_string())
    }

    /// Its executables for the widths of a verifier with these trimmed heads, by those that were `made` before if there
    /// are some. Matrices are read in fewer bits than files have ([`LowBit`]): drafting is reading them, and what is
    /// drafted is verified.
    fn load(
        &self,
        verifier: &Loaded,
        made: Option<&ExecutableSet>,
        heads: &[&[u32]],
    ) -> Result<ExecutableSet, Error> {
        let set = verifier.set();
        match &self.files {
            Files::Plain(model) => {
                self.expect_vocabulary(model, verifier)?;
                let options = verifier.set_options(set.widths().to_vec(), model.config.context);
                let weights = Arc::clone(&model.weights);
                let (graph, weights) =
                    in_fewer_bits(&model.graph, weights, 0, LowBit::Model, verifier.threads());
                let draft = match made {
                    Some(made) => made.clone(),
                    None => ExecutableSet::build(&graph, weights.as_ref(), &options)?,
                };
                let draft = draft.with_heads(weights.as_ref(), heads, |stored| stored)?;
                model.check_unchanged()?;
                Ok(draft)
            }
            Files::HiddenState(model) => {
                let of_verifier = Arc::clone(&verifier.model().weights);
                let (graph, weights) = model.over(set.graph(), of_verifier)?;
                let lent = set.graph().weights().len();
                let (graph, weights) =
                    in_fewer_bits(&graph, weights, lent, LowBit::Layer, verifier.threads());
                let context = model.context(set.model_context());
                let draft = match made {
                    Some(made) => made.clone(),
                    None if model.is_block() => {
                        let markov = model.markov_tables()?.map(|tables| {
                            let MarkovTables { rank, previous, next, tokens } = tables;
                            MarkovHead::new(rank, previous, next, tokens)
                        });
                        set.block_beside(&graph, weights.as_ref(), context)?.with_markov(markov)
                    }
                    None => set.beside(&graph, weights.as_ref(), context)?,
                };
                Ok(draft.with_heads(weights.as_ref(), heads, |stored| LowBit::LayerHead.read_in(stored))?)
            }
        }
    }

    fn expect_vocabulary(&self, model: &Model, verifier: &Loaded) -> Result<(), Error> {
        let (own, _) = tokenizer(model)?;
        let Some(TokenDifference { id, here, there }) = verifier.tokenizer().first_difference(&own) else {
            return Ok(());
        };
        let text = |text: Option<String>| text.map_or("nothing".to_owned(), |text| format!("{text:?}"));
        Err(Error::input(format!(
            "the drafter model `{}` has another vocabulary than the model: expected token {id} to be {}, found {}; give a \
             drafter with the vocabulary of `{}`",
            self.path.display(),
            text(here),
            text(there),
            verifier.model().config.name
        )))
    }
}

/// A file of this digest that a drafter needs, as profiles and plans name it; `what` it is, for people.
///
/// # Errors
/// [`Error`] of kind `Input` if its path is not UTF-8 or has no absolute form.
pub(crate) fn drafter_file(what: &str, path: &Path, digest: String) -> Result<DrafterFile, Error> {
    let shown = path.display();
    let absolute = path::absolute(path)
        .map_err(|error| Error::input(format!("the {what} `{shown}` has no absolute path: {error}")))?;
    let path = absolute.into_os_string().into_string().map_err(|_| {
        Error::input(format!("the path of the {what}, `{shown}`: expected UTF-8, as profiles are; rename it"))
    })?;
    Ok(DrafterFile { path, digest })
}

/// The drafter model of a plan or profile, which must be the one that was profiled. A layer in the files of `verifier`
/// is found there, wherever these were then.
fn open_expecting(file: &DrafterFile, verifier: &Model) -> Result<DraftModel, Error> {
    let is_expected = |model: &DraftModel| model.fingerprint().to_string() == file.digest;
    if let Some(own) = DraftModel::further(verifier).filter(is_expected) {
        return Ok(own);
    }
    let model = DraftModel::open(Path::new(&file.path)).map_err(|error| {
        Error::input(format!(
            "the drafter model that was profiled is expected at `{}`: {error}; say where it is",
            file.path
        ))
        .with_hint(Hint::DraftModel)
    })?;
    let found = model.fingerprint().to_string();
    if found == file.digest {
        return Ok(model);
    }
    Err(Error::input(format!(
        "the drafter model `{}` is another than the one that was profiled: expected {}, found {found}; say where that one is, or \
         profile and plan again with this one",
        file.path, file.digest
    ))
    .with_hint(Hint::DraftModel))
}

impl Loaded {
    /// The same with what drafters of these kinds need in addition to the model: trimmed heads, substitutes, drafter
    /// models with heads, and executables that keep the hidden rows of prompts where a drafter model reads them. What
    /// is there is not made again.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` for tokens that no head can keep, and for a drafter model that is absent, another, or
    /// not for this model; of kind `Device` where the device cannot run it.
    pub fn with_drafters<'k>(&self, kinds: impl IntoIterator<Item = &'k DrafterKind>) -> Result<Self, Error> {
        let kinds: Vec<&DrafterKind> = kinds.into_iter().collect();
        let own = kinds.iter().filter(|kind| kind.draft_model().is_none()).map(|kind| kind.facts());
        let changes: Vec<VariantChange<'_>> = own
            .map(|DrafterFacts { head_tokens, substitute_bits, .. }| VariantChange {
                head_tokens,
                substitute_bits,
            })
            .filter(|change| *change != VariantChange::default())
            .collect();
        let mut loaded = if changes.is_empty() { self.clone() } else { self.with_variants(&changes)? };
        let mut files: Vec<&DrafterFile> = kinds.iter().filter_map(|kind| kind.draft_model()).collect();
        files.sort_by(|a, b| a.digest.cmp(&b.digest));
        files.dedup_by(|a, b| a.digest == b.digest);
        for file in files {
            let model = open_expecting(file, loaded.model())?;
            let of_file = kinds.iter().filter(|k| k.draft_model().is_some_and(|f| f.digest == file.digest));
            let heads: Vec<&[u32]> = of_file.filter_map(|kind| kind.head_tokens()).collect();
            let made = loaded.set().draft(&file.digest).ok();
            let draft = Arc::new(model.load(&loaded, made.map(AsRef::as_ref), &heads)?);
            let mut set = ExecutableSet::clone(loaded.set());
            if model.reads_hidden_rows() {
                let layers = draft.graph().layers_read();
                set = set.with_kept_layers(loaded.model().weights.as_ref(), layers)?;
            }
            loaded = loaded.with_set(set.with_draft(&file.digest, draft));
        }
        Ok(loaded)
    }

    /// A session that drafters of these kinds can draft over.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` for an impossible context, `Device` when memory or threads are refused.
    pub fn session<'k>(
        &self,
        options: &SessionOptions,
        kinds: impl IntoIterator<Item = &'k DrafterKind>,
    ) -> Result<Session, Error> {
        let mut session = Session::open(Arc::clone(self.set()), options)?;
        for kind in kinds {
            if self.reads_hidden_rows(kind)? {
                session.keep_hidden()?;
            }
        }
        Ok(session)
    }

    /// Whether a drafter of this kind reads the model's hidden rows.
    pub(crate) fn reads_hidden_rows(&self, kind: &DrafterKind) -> Result<bool, Error> {
        match kind.draft_model() {
            Some(file) => Ok(self.set().draft(&file.digest)?.text_columns() > 0),
            None => Ok(false),
        }
    }
}
