//! A model made ready: tokenizer, chat template, executables of the planned widths.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use crate::{
    backend::{self, KvFormat, Loading},
    grammar::{Constraint, GrammarError, GrammarTokens, Matcher},
    model::{GgufVocabulary, Model, VocabularySource, draft_formats},
    plan::{BuildFingerprint, Fingerprints, MachineFingerprint, ModelFingerprint, PLAN_FORMAT},
    runtime::{ExecutableSet, SetOptions, VariantChange},
    text::{ChatTemplate, TokenKind, Tokenizer, TokenizerConfig, Vocabulary},
};

use super::{Activations, CancelHandle, Error, Tier};

/// How a model is loaded. Each width costs two small programs; weights are packed once for all of them.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Instruction-set tier; `None` takes the best this machine has.
    pub tier: Option<Tier>,
    /// What linears make of activations.
    pub activations: Activations,
    /// Element type of every session's key/value cache: one, because it is part of the numeric class.
    pub cache: KvFormat,
    /// Worker threads; `None` takes one per processor the process may use.
    pub threads: Option<usize>,
    /// Widths to make executables for; 1 is always added.
    pub widths: Vec<usize>,
    /// Most bytes of packed weights in memory: as many matrices of the last layers as do not fit are read from a file
    /// by every forward, which the model must have been opened with a place for ([`Model::kept_in`]). Of a GPU it is
    /// its own memory, and they are copied from pinned memory of the host. `None` keeps all in memory. What drafters
    /// have of their own comes on top.
    pub resident: Option<usize>,
}

/// A model with everything that is shared by its requests: several engines may use one. Clones share all of it, and
/// cost reference counts; loading costs a pass over the weights, which are packed for this machine, and their size in
/// memory.
///
/// ```
/// use std::sync::Arc;
/// use yggc::engine::{Activations, Engine, KvFormat, LoadOptions, Loaded, Options};
/// # let folder = tempfile::tempdir()?;
/// # let model = folder.path().join("tiny.gguf");
/// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
///
/// let load = LoadOptions {
///     tier: None,
///     activations: Activations::Native,
///     cache: KvFormat::F16,
///     threads: Some(1),
///     widths: vec![4],
///     resident: None,
/// };
/// let loaded = Arc::new(Loaded::open(&model, &load)?);
/// let engines = [128, 256].map(|context| {
///     Engine::with_loaded(Arc::clone(&loaded), &Options { context: Some(context), ..Options::new(&model) })
/// });
/// for engine in engines {
///     assert_eq!(engine?.loaded().set().widths(), [1, 4]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Loaded {
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
    /// What a broken template says is told when a chat is asked for: everything else works without one.
    chat_template: Arc<Result<Option<ChatTemplate>, String>>,
    /// Made when a request is first constrained; engines share it.
    grammar_tokens: Arc<OnceLock<Result<GrammarTokens, GrammarError>>>,
    set: Arc<ExecutableSet>,
    tier: Tier,
    activations: Activations,
    cache: KvFormat,
    threads: usize,
    resident: Option<usize>,
    end_ids: Vec<u32>,
}

impl Loaded {
    /// Opens a model file or folder and compiles and loads its executables.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` for the model, `Device` for the machine.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Self, Error> {
        Self::new(Model::open(path)?, options)
    }

    /// Like [`open`](Self::open), for a model that is open already.
    ///
    /// # Errors
    /// As `open`.
    pub fn new(model: Model, options: &LoadOptions) -> Result<Self, Error> {
        let tier = options.tier.unwrap_or_else(Tier::detect_best);
        let threads = options.threads.unwrap_or_else(default_threads);
        let (tokenizer, template) = tokenizer(&model)?;
        let vocabulary = model.config.vocabulary;
        if tokenizer.vocab_len() > vocabulary {
            return Err(Error::input(format!(
                "the tokenizer has {} tokens but the model's logits only {vocabulary}: expected at most as many; the files do not belong together",
                tokenizer.vocab_len()
            )));
        }
        let chat_template =
            template.as_deref().map(ChatTemplate::compile).transpose().map_err(|fault| fault.to_string());
        let set_options = SetOptions {
            tier,
            kv_format: options.cache,
            activations: options.activations,
            widths: options.widths.clone(),
            model_context: model.config.context,
            threads,
            resident: options.resident,
        };
        let loading = Loading { weights: &*model.weights, kept: model.kept.as_ref(), watch: &*model.watch };
        let set = ExecutableSet::load(&model.graph, &loading, &set_options)?;
        model.check_unchanged()?;
        if options.resident.is_some() {
            model.let_pages_go();
        }
        let mut end_ids = [tokenizer.end_ids(), &model.stop_tokens].concat();
        end_ids.sort_unstable();
        end_ids.dedup();
        let set = Arc::new(set);
        let (model, tokenizer, chat_template) =
            (Arc::new(model), Arc::new(tokenizer), Arc::new(chat_template));
        let LoadOptions { activations, cache, resident, .. } = *options;
        Ok(Self {
            model,
            tokenizer,
            chat_template,
            grammar_tokens: Arc::default(),
            set,
            tier,
            activations,
            cache,
            threads,
            resident,
            end_ids,
        })
    }

    /// The same with [variants](VariantChange) of its forwards in addition to the model's, for drafters that use them.
    /// Only what they change is made; everything else is shared.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` for tokens that no head of the model can keep and bits that no substitute has, and if
    /// the model's files have changed meanwhile.
    pub fn with_variants(&self, changes: &[VariantChange<'_>]) -> Result<Self, Error> {
        let set = self.set.with_variants(self.model.weights.as_ref(), changes)?;
        self.model.check_unchanged()?;
        if self.resident.is_some() {
            self.model.let_pages_go();
        }
        Ok(Self { set: Arc::new(set), ..self.clone() })
    }

    /// The same with other executables of the same model.
    pub(crate) fn with_set(&self, set: ExecutableSet) -> Self {
        Self { set: Arc::new(set), ..self.clone() }
    }

    /// What other executables of the same kernels, formats and threads are made with, all weights in memory.
    pub(crate) fn set_options(&self, widths: Vec<usize>, model_context: usize) -> SetOptions {
        let Self { tier, cache: kv_format, activations, threads, .. } = *self;
        SetOptions { tier, kv_format, activations, widths, model_context, threads, resident: None }
    }

    /// The same model with executables of width 1 that run op by op as a framework without compiled programs does, to
    /// measure plain decoding against. It has packed weights of its own.
    ///
    /// # Errors
    /// [`Error`] of kind `Device` when the machine refuses.
    #[cfg(feature = "planner")]
    pub fn eager(&self) -> Result<Self, Error> {
        let options = self.set_options(Vec::new(), self.model.config.context);
        let set = ExecutableSet::build_eager(&self.model.graph, self.model.weights.as_ref(), &options)?;
        Ok(Self { set: Arc::new(set), ..self.clone() })
    }

    /// The model: configuration, graph, weights.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that end a text: the tokenizer's and the model's own, ascending.
    pub fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// Compiles a constraint for answers of this model, on a thread of its own. The first call also makes
    /// [`GrammarTokens`] of its vocabulary.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` for a constraint that cannot be kept.
    pub fn matcher(&self, constraint: &Constraint) -> Result<Matcher, Error> {
        Ok(self.grammar_tokens()?.matcher(constraint)?)
    }

    /// As [`matcher`](Self::matcher), for a request with this handle: the caller waits no longer than that is not
    /// cancelled.
    ///
    /// # Errors
    /// As `matcher`, and if it is cancelled.
    pub fn matcher_unless(&self, constraint: &Constraint, cancel: &CancelHandle) -> Result<Matcher, Error> {
        let cancel = cancel.clone();
        Ok(self.grammar_tokens()?.matcher_unless(constraint, move || cancel.is_cancelled())?)
    }

    /// The model's tokens as grammars see them, made by the first call.
    pub(super) fn grammar_tokens(&self) -> Result<&GrammarTokens, Error> {
        let tokens = self.grammar_tokens.get_or_init(|| {
            GrammarTokens::new(Arc::clone(&self.tokenizer), self.set.vocabulary(), &self.end_ids)
        });
        Ok(tokens.as_ref().map_err(Clone::clone)?)
    }

    /// The chat template, if the model has one.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` if it has one that cannot be compiled.
    pub fn chat_template(&self) -> Result<Option<&ChatTemplate>, Error> {
        match &*self.chat_template {
            Ok(template) => Ok(template.as_ref()),
            Err(fault) => Err(Error::input(fault.clone())),
        }
    }

    /// The executables.
    pub fn set(&self) -> &Arc<ExecutableSet> {
        &self.set
    }

    /// The tier they were compiled for.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Whether resident weights and sessions are in memory of a device's own, and streamed weights in pinned memory of
    /// the host.
    pub fn has_own_memory(&self) -> bool {
        backend::has_own_memory(self.tier)
    }

    /// Whether forwards run on a device that this processor emulates: results count, timings mean nothing.
    pub fn is_emulated(&self) -> bool {
        backend::gpu(self.tier).is_ok_and(|gpu| gpu.is_some_and(|gpu| gpu.is_emulated))
    }

    /// What their linears make of activations.
    pub fn activations(&self) -> Activations {
        self.activations
    }

    /// Worker threads of a session.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Most bytes of packed weights in memory, if there is a limit.
    pub fn resident(&self) -> Option<usize> {
        self.resident
    }

    /// Element type of its sessions' key/value caches.
    pub fn cache(&self) -> KvFormat {
        self.cache
    }

    /// A digest that tells the model from others, as plans are bound to it.
    pub fn model_digest(&self) -> String {
        model_fingerprint(&self.model).digest
    }

    /// What a plan must have been made for to be used here.
    ///
    /// # Errors
    /// [`Error`] of kind `Device` if the machine cannot be read.
    pub fn fingerprints(&self) -> Result<Fingerprints, Error> {
        fingerprints(&self.model, self.tier, self.activations, self.cache, self.threads, self.resident)
    }
}

/// Processors this process may use; 1 where the system does not say. Counted once, before a thread that has sessions
/// open is kept off some.
pub fn default_threads() -> usize {
    backend::processors()
}

/// Fingerprints of this machine, a model and this build.
///
/// # Errors
/// [`Error`] of kind `Device` if the machine cannot be read.
pub fn fingerprints(
    model: &Model,
    tier: Tier,
    activations: Activations,
    cache: KvFormat,
    threads: usize,
    resident: Option<usize>,
) -> Result<Fingerprints, Error> {
    let threads = u32::try_from(threads).map_err(|_| {
        Error::input(format!("{threads} worker threads: expected fewer than 2^32; ask for fewer"))
    })?;
    // What is left out is always the same: the default of a tier may be another in the next build.
    let kernels = match activations {
        Activations::Int8 => tier.to_string(),
        Activations::Native => format!("{tier}, {activations} activations"),
    };
    let kernels = match cache {
        KvFormat::F16 => kernels,
        KvFormat::F32 | KvFormat::Q8 => format!("{kernels}, {cache} cache"),
    };
    let mut machine =
        MachineFingerprint::of_this_machine(threads, &kernels).map_err(|e| Error::device(e.to_string()))?;
    machine.resident_bytes = resident.map(|bytes| bytes as u64);
    (machine.gpu, machine.driver) = backend::gpu(tier)?.map(|gpu| (gpu.name, gpu.driver)).unzip();
    Ok(Fingerprints {
        machine,
        model: model_fingerprint(model),
        build: BuildFingerprint {
            plan_format: PLAN_FORMAT,
            kernels: tier.kernel_set().to_owned(),
            draft_formats: draft_formats(),
        },
    })
}

/// The model's part of [`fingerprints`].
pub(super) fn model_fingerprint(model: &Model) -> ModelFingerprint {
    ModelFingerprint { name: model.config.name.clone(), digest: model.fingerprint().to_string() }
}

pub(super) fn tokenizer(model: &Model) -> Result<(Tokenizer, Option<String>), Error> {
    match &model.vocabulary {
        VocabularySource::Gguf(found) => {
            Ok((Tokenizer::from_vocabulary(vocabulary(found)?)?, model.chat_template.clone()))
        }
        VocabularySource::Json { tokenizer, config } => {
            let config = config
                .as_ref()
                .map_or_else(|| Ok(TokenizerConfig::default()), |bytes| TokenizerConfig::from_json(bytes))?;
            let template = model.chat_template.clone().or_else(|| config.chat_template.clone());
            Ok((Tokenizer::from_json(tokenizer, &config)?, template))
        }
    }
}

fn vocabulary(v: &GgufVocabulary) -> Result<Vocabulary, Error> {
    let kinds = v.kinds.iter().map(|k| TokenKind::try_from(i32::try_from(*k).unwrap_or(i32::MAX)));
    Ok(Vocabulary {
        model: v.model.clone(),
        tokens: v.tokens.clone(),
        kinds: kinds.collect::<Result<Vec<_>, _>>()?,
        merges: v.merges.clone(),
        pre_tokenizer: v.pre.clone(),
        bos: v.bos,
        eos: v.eos,
        unknown: v.unknown,
        padding: v.padding,
        add_bos: v.add_bos,
        scores: v.scores.clone(),
        add_space_prefix: v.add_space_prefix,
        removes_extra_spaces: v.removes_extra_spaces,
        character_table: v.character_table.clone(),
    })
}

/// The `tokenizer.json` and the `tokenizer_config.json` of a model whose tokenizer is in a GGUF file; `None` for a
/// folder, which has them.
///
/// # Errors
/// [`Error`] of kind `Input` for a tokenizer that is not supported.
pub fn tokenizer_files(model: &Model) -> Result<Option<[String; 2]>, Error> {
    let VocabularySource::Gguf(found) = &model.vocabulary else { return Ok(None) };
    let name = |id: Option<u32>| id.and_then(|id| found.tokens.get(id as usize));
    let config = serde_json::json!({
        "bos_token": name(found.bos), "eos_token": name(found.eos), "chat_template": model.chat_template,
    });
    Ok(Some([vocabulary(found)?.to_json()?.to_string(), config.to_string()]))
}
