//! The facade: open a model, generate text. The only place where the rooms are wired together.
//!
//! [`Engine::open`] loads a model with a plan (or none: then it decodes plainly and says so), [`Engine::generate`] runs
//! one request at a time. Output is exactly plain decoding's, whatever the plan.
#![forbid(unsafe_code)]

mod cancel;
mod choose;
mod division;
mod draft_models;
mod drafter_name;
mod drafting;
mod error;
mod generation;
mod loaded;
mod options;
mod prefixes;
mod report;
mod request;
mod self_tuning;
mod step_tree;
mod tuning;

use std::sync::Arc;

pub use crate::backend::{Activations, KvFormat, Tier};
pub use crate::{
    grammar::{Constraint, Matcher},
    prefix::{Owner, Served},
    runtime::Pinning,
    sample::{Adjustment, Parameter, Sampling, Values, argmax},
    speculate::{Reuse, Speculation},
    text::{Conversation, GenerationPrompt, Json, Message, Role, Special, TextError, Variables},
};
pub use cancel::CancelHandle;
pub use choose::{
    Choices, ChooseReport, ChooseRequest, Continuation, MOST_OPTIONS, Normalisation, OptionToken,
    ScoredOption,
};
pub use division::weight_splits;
pub use draft_models::DraftModel;
#[cfg(feature = "planner")]
pub(crate) use draft_models::drafter_file;
pub use error::{Error, ErrorKind, Hint};
pub use generation::Generation;
pub use loaded::{LoadOptions, Loaded, default_threads, fingerprints, tokenizer_files};
pub use options::{DrafterChoice, Options, PlanSource};
pub use report::{Report, StageReport};
pub use request::{Answer, Event, FinishReason, Prompt, Request, TokenLogProbs};
pub use step_tree::{StepNode, StepTree};
pub use tuning::tune;

use crate::{
    model::Model,
    plan,
    runtime::{Memory, SessionOptions},
    speculate::{Begin, Decoder, DrafterState, KeptPrefixes},
};
use drafting::Drafting;
use generation::Terms;
use loaded::model_fingerprint;
use report::Background;

/// A model with its plan, ready for one request at a time. Everything a step needs is allocated when it opens.
///
/// Opening costs a pass over the weights, which are packed, and memory as [`memory`](Engine::memory) says; an engine
/// over a [`Loaded`] model costs its cache and worker threads alone. Engines are [`Send`] and know nothing of each
/// other: a process may have several, each with a request of its own. Requests wait where the caller keeps them: a
/// request borrows its engine.
///
/// ```
/// use yggc::engine::{Engine, ErrorKind, Options, Sampling};
/// # let folder = tempfile::tempdir()?;
/// # let model = folder.path().join("tiny.gguf");
/// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
///
/// let mut engine = Engine::open(&Options { context: Some(64), ..Options::new(&model) })?;
/// let prompt = engine.loaded().tokenizer().encode_prompt("ab");
/// let first = engine.generate_tokens(&prompt, 4, Sampling::GREEDY)?.collect_answer()?;
/// let again = engine.generate_tokens(&prompt, 4, Sampling::GREEDY)?.collect_answer()?;
/// assert_eq!(first.token_ids, again.token_ids);
///
/// let refused = engine.generate_tokens(&[7; 64], 4, Sampling::GREEDY).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Input);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// The next turn of a conversation runs only what is new of it:
///
/// ```
/// use yggc::engine::{Engine, Message, Options, Prompt, Request, Role};
/// # let folder = tempfile::tempdir()?;
/// # let model = folder.path().join("tiny.gguf");
/// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
/// let mut engine = Engine::open(&Options::new(&model))?;
/// let mut turns = vec![Message::new(Role::User, "Name a river.")];
/// let request = |turns: &[Message]| Request { max_tokens: 8, ..Request::new(Prompt::chat(turns.to_vec())) };
/// let answer = engine.generate(&request(&turns))?.collect_answer()?;
/// turns.push(Message::new(Role::Assistant, answer.text));
/// turns.push(Message::new(Role::User, "And another?"));
/// let answer = engine.generate(&request(&turns))?.collect_answer()?;
/// assert!(answer.report.reused_tokens > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    loaded: Arc<Loaded>,
    decoder: Decoder,
    /// Where prefixes are kept, if they are.
    prefixes: Option<KeptPrefixes>,
    session_options: SessionOptions,
    /// Bytes of the sessions of drafter models, and of the hidden rows that they read.
    bytes_beside: usize,
    /// By band of the decoder.
    backgrounds: Vec<Background>,
}

impl Engine {
    /// Opens a model: checks that the plan fits, loads the widths it needs, allocates everything a request will need.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` for the model or the plan, `Device` for the machine.
    pub fn open(options: &Options) -> Result<Self, Error> {
        Self::with_model(Model::open(&options.model)?, options)
    }

    /// Like [`open`](Self::open), for a model that is open already; the path of the options is not read.
    ///
    /// # Errors
    /// As `open`.
    pub fn with_model(model: Model, options: &Options) -> Result<Self, Error> {
        options.check_read_widths()?;
        let tier = options.tier.unwrap_or_else(Tier::detect_best);
        let threads = options.threads.unwrap_or_else(default_threads);
        let activations = options.activations.unwrap_or(tier.activations());
        let cache = options.cache;
        let resident = options.resident.or_else(|| drafting::planned_resident(options));
        let here = || fingerprints(&model, tier, activations, cache, threads, resident);
        let drafting = drafting::decide(here, options)?;
        let widths = drafting.widths_to_load(options);
        let load =
            LoadOptions { tier: Some(tier), activations, cache, threads: Some(threads), widths, resident };
        Self::assemble(Arc::new(Loaded::new(model, &load)?), drafting, options)
    }

    /// Like [`open`](Self::open), over a model that other engines share. It must have been loaded with the widths that
    /// the plan names; a trimmed head that the plan's drafter needs is made if it has none. Path, tier, activations,
    /// cache and threads of the options are not read.
    ///
    /// # Errors
    /// As `open`, and of kind `Input` if a planned width was not loaded.
    pub fn with_loaded(loaded: Arc<Loaded>, options: &Options) -> Result<Self, Error> {
        options.check_read_widths()?;
        let drafting = drafting::decide(|| loaded.fingerprints(), options)?;
        let widths = loaded.set().widths();
        if let Some(missing) = drafting.widths.iter().find(|w| !widths.contains(w)) {
            return Err(Error::input(format!(
                "the plan needs width {missing}: expected a model loaded with it, found one with {widths:?}; load it with the plan's widths"
            )));
        }
        Self::assemble(loaded, drafting, options)
    }

    fn assemble(mut loaded: Arc<Loaded>, drafting: Drafting, options: &Options) -> Result<Self, Error> {
        let tree_nodes = drafting.scratch_rows(options);
        let Drafting { mut bands, backgrounds, widths: _, tunings } = drafting;
        let kinds = || bands.iter().map(|steps| &steps.sub_plan.drafter);
        if kinds().any(|kind| kind.needs_executables()) {
            loaded = Arc::new(loaded.with_drafters(kinds())?);
        }
        let context = drafting::planned_context(options)?;
        let context = context.unwrap_or_else(|| loaded.set().model_context().min(DEFAULT_CONTEXT));
        let session_options =
            SessionOptions { context, tree_nodes, threads: loaded.threads(), pinning: options.pinning };
        let beside = drafting::bytes_beside(&loaded, &session_options, &bands)?;
        if let Some(limit) = options.memory_limit {
            within_memory(&loaded, &session_options, beside, limit)?;
        }
        let mut session = loaded.session(&session_options, kinds())?;
        tune(&mut session, &tunings)?;
        for steps in &mut bands {
            steps.drafter = drafting::make_drafter(&steps.sub_plan, &session, options)?;
        }
        let mut decoder = Decoder::new(session, bands)?;
        let shelves = |store| prefixes::shelves(store, &loaded, &mut decoder);
        let prefixes = options.prefixes.as_ref().map(shelves).transpose()?;
        Ok(Self { loaded, decoder, prefixes, session_options, bytes_beside: beside, backgrounds })
    }

    /// Begins a request: lays out its prompt and runs what is new of it. The events come from the returned iterator;
    /// the engine is borrowed until it is dropped.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` when the prompt does not fit the context or cannot be laid out, or what else is asked
    /// is out of range.
    pub fn generate(&mut self, request: &Request) -> Result<Generation<'_>, Error> {
        let Request {
            prompt,
            max_tokens,
            sampling,
            adjustment,
            constraint,
            compiled,
            stop,
            log_probs,
            speculation,
            reuse,
            owner,
            cancel,
        } = request;
        if *max_tokens == 0 {
            return Err(Error::input("0 tokens asked for: expected at least 1"));
        }
        if stop.iter().any(String::is_empty) {
            return Err(Error::input(
                "a stop string is empty: expected at least one character; leave it out",
            ));
        }
        let ids;
        let prompt = match prompt {
            Prompt::Tokens(ids) => ids,
            Prompt::Chat(_) | Prompt::Raw(_) => {
                ids = prompt.token_ids(&self.loaded)?;
                &ids
            }
        };
        self.check_prompt(prompt)?;
        let matcher = self.compiled(constraint.as_ref(), compiled.as_ref(), cancel)?;
        self.decoder.begin(&Begin {
            prompt,
            sampling: *sampling,
            adjustment,
            grammar: matcher.as_ref(),
            log_probs: *log_probs,
            reuse: *reuse,
            prefixes: self.prefixes.as_ref(),
            owner: *owner,
            speculation: *speculation,
            is_cancelled: &|| cancel.is_cancelled(),
        })?;
        let prompt_len = prompt.len();
        let max_tokens = (*max_tokens).min(self.context() - prompt_len);
        let keeps = *reuse == Reuse::Prefix;
        let terms = Terms { stops: stop.clone(), cancel: cancel.clone(), prompt_len, max_tokens, keeps };
        Ok(Generation::new(self, terms))
    }

    /// The matcher of a request: the one that it brings, which must be of its constraint and model, or a new one.
    fn compiled(
        &self,
        constraint: Option<&Constraint>,
        compiled: Option<&Matcher>,
        cancel: &CancelHandle,
    ) -> Result<Option<Matcher>, Error> {
        let Some(constraint) = constraint else { return Ok(None) };
        let Some(matcher) = compiled else {
            return self.loaded.matcher_unless(constraint, cancel).map(Some);
        };
        if matcher.constraint() != constraint || !self.loaded.grammar_tokens()?.made(matcher) {
            return Err(Error::input(
                "the compiled constraint is another one, or of another model: expected that of the request; compile it by `Loaded::matcher`",
            ));
        }
        let cancel = cancel.clone();
        Ok(Some(matcher.clone().unless(move || cancel.is_cancelled())?))
    }

    /// Like [`generate`](Self::generate) for a prompt of token ids, and nothing else asked.
    ///
    /// # Errors
    /// As `generate`.
    pub fn generate_tokens(
        &mut self,
        prompt: &[u32],
        max_tokens: usize,
        sampling: Sampling,
    ) -> Result<Generation<'_>, Error> {
        let prompt = Prompt::Tokens(prompt.to_vec());
        self.generate(&Request { max_tokens, sampling, ..Request::new(prompt) })
    }

    /// Forgets the text of the last request with its keys and values: the next one runs its whole prompt, but for what
    /// a store of [prefixes](Options::prefixes) has of it.
    pub fn forget(&mut self) {
        self.decoder.forget();
    }

    /// Checks that a prompt leaves room for an answer, as [`generate`](Self::generate) does.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` with the lengths.
    pub fn check_prompt(&self, prompt: &[u32]) -> Result<(), Error> {
        let context = self.context();
        if prompt.len() < context {
            return Ok(());
        }
        Err(Error::input(format!(
            "the prompt has {} tokens but the context holds {context} and at least one must be left for the answer: shorten the prompt or ask for a longer context (the model allows {})",
            prompt.len(),
            self.loaded.set().model_context()
        ))
        .with_hint(Hint::Context))
    }

    /// Whether the device still works. Where it does not, no request is answered any more: open the model again.
    ///
    /// # Errors
    /// [`Error`] of kind `Device` with what it said when it failed.
    pub fn check_device(&self) -> Result<(), Error> {
        Ok(self.decoder.session().check_device()?)
    }

    /// Most tokens of prompt and answer together.
    pub fn context(&self) -> usize {
        self.decoder.session().context()
    }

    /// The model with its tokenizer and executables.
    pub fn loaded(&self) -> &Arc<Loaded> {
        &self.loaded
    }

    /// What drafters learned, as bytes for [`restore_drafter_state`](Self::restore_drafter_state): one state of each
    /// kind that keeps any, that of the last request's drafter before others; `None` if no drafter keeps any.
    pub fn drafter_state(&mut self) -> Option<Vec<u8>> {
        let states = self.decoder.drafter_states();
        (!states.is_empty()).then(|| DrafterState::encode(&states, &model_fingerprint(self.loaded.model())))
    }

    /// Has drafters go on from what was [kept](Self::drafter_state) before, at every temperature.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` if the bytes are not whole or of another model, or if no drafter is of a kind that was
    /// kept, or one of that kind has other settings.
    pub fn restore_drafter_state(&mut self, kept: &[u8]) -> Result<(), Error> {
        let states = DrafterState::decode(kept, &model_fingerprint(self.loaded.model()))?;
        Ok(self.decoder.restore_drafters(&states)?)
    }

    /// Bytes this engine holds.
    pub fn memory(&self) -> Memory {
        let memory = self.loaded.set().memory(&self.session_options);
        Memory { session_bytes: memory.session_bytes + self.bytes_beside, ..memory }
    }

    /// Bytes of the host's memory that its session takes, as [`Options::memory_limit`] counts them: none on a GPU,
    /// which has memory of its own.
    pub fn session_host_bytes(&self) -> usize {
        if self.loaded.has_own_memory() { 0 } else { self.memory().session_bytes }
    }
}

/// An engine may be opened on one thread and used on another.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Engine>();
};

/// Context in tokens where the caller does not say, unless the model's is shorter.
pub const DEFAULT_CONTEXT: usize = plan::DEFAULT_CONTEXT as usize;

/// Whether a session of these options, with `beside` bytes for drafter models, fits into `limit` bytes of the host's
/// memory together with the weights, said before it is opened. Of a GPU, whose own memory is the driver's to refuse,
/// weights in pinned memory count alone.
fn within_memory(
    loaded: &Loaded,
    options: &SessionOptions,
    beside: usize,
    limit: usize,
) -> Result<(), Error> {
    let model_context = loaded.set().model_context();
    if !(2..=model_context).contains(&options.context) {
        // The session says what is wrong with it.
        return Ok(());
    }
    let Memory { weight_bytes, session_bytes, pinned_bytes, streamed_bytes: _ } =
        loaded.set().memory(options);
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    if loaded.has_own_memory() {
        if pinned_bytes <= limit {
            return Ok(());
        }
        return Err(Error::device(format!(
            "streamed weights take {} MiB of pinned memory of the host: expected at most {} MiB, which this machine has free; let more weights \
             stay on the GPU, or end other programs",
            mib(pinned_bytes),
            mib(limit)
        ))
        .with_hint(Hint::Resident));
    }
    let session_bytes = session_bytes + beside;
    if weight_bytes.saturating_add(session_bytes) <= limit {
        return Ok(());
    }
    Err(Error::input(format!(
        "a context of {} tokens needs {} MiB in addition to {} MiB of weights: expected at most {} MiB together, which this machine has free; ask for a shorter context",
        options.context,
        mib(session_bytes),
        mib(weight_bytes),
        mib(limit)
    ))
    .with_hint(Hint::Context))
}
