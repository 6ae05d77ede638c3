//! Engines, each with a thread of its own: workers keep the thread that opens an engine off their processors, which is
//! no thread of Python's.

use std::{
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
};

use pyo3::{prelude::*, types::PyBytes};
use yggc::{
    engine::{
        self, Choices, ChooseRequest, Loaded, OptionToken, Options, Prompt, Request, ScoredOption, Special,
    },
    runtime::{RuntimeError, Session, SessionOptions},
};

use super::{
    error::{BusyError, DeviceError, exception, input, lost},
    generation::{Generation, PATIENCE, Said, answer},
    options, request,
};

/// What an engine does.
#[derive(Debug, Default)]
struct State(AtomicU8);

impl State {
    const IDLE: u8 = 0;
    const ANSWERING: u8 = 1;
    /// A request panicked.
    const LOST: u8 = 2;

    /// From idle to answering.
    fn begin(&self) -> PyResult<()> {
        match self.0.compare_exchange(Self::IDLE, Self::ANSWERING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(Self::LOST) => Err(lost()),
            Err(_) => Err(BusyError::new_err(
                "the engine is answering: expected one request at a time; read the other generation to its end or \
                 `close` it, or open another engine",
            )),
        }
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Release);
    }
}

/// What is found of a question; nothing of one that was cancelled.
type Chosen = Result<Option<Choices>, engine::Error>;

/// What the thread of an engine is asked to do.
enum Job {
    Answer(Box<Request>, Sender<Said>),
    Choose(Box<ChooseRequest>, Sender<Chosen>),
    /// Drops the sender when it is idle again.
    Forget(Sender<()>),
}

/// Does jobs until nobody can ask for more.
fn work(mut engine: engine::Engine, jobs: &Receiver<Job>, state: &State) {
    while let Ok(job) = jobs.recv() {
        // What is left to be said of a job.
        type Rest = Box<dyn FnOnce()>;
        let done = panic::catch_unwind(AssertUnwindSafe(|| match job {
            Job::Answer(request, say) => {
                let last = answer(&mut engine, &request, &say);
                Box::new(move || drop(last.map(|last| say.send(last)))) as Rest
            }
            Job::Choose(request, chosen) => {
                let choices = engine.choose(&request);
                Box::new(move || drop(chosen.send(choices)))
            }
            Job::Forget(done) => {
                engine.forget();
                Box::new(move || drop(done))
            }
        }));
        let Ok(say_rest) = done else {
            // What panicked is no longer to be trusted.
            state.set(State::LOST);
            return;
        };
        // Whoever hears the last event, or that there are no more, may ask again.
        state.set(State::IDLE);
        say_rest();
    }
}

/// Runs `call` on a thread of its own, which workers may bind.
///
/// # Errors
/// Those of the call, and [`DeviceError`] if the system has no thread.
pub(super) fn apart<T: Send>(call: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().name("yggc call".to_owned()).spawn_scoped(scope, call);
        spawned.map_err(|error| no_thread(&error))?.join().unwrap_or_else(|_| Err(lost()))
    })
}

fn no_thread(error: &std::io::Error) -> PyErr {
    DeviceError::new_err(format!(
        "no further thread: the system says {error}; end others, or ask again later"
    ))
}

/// An option as `Engine.choose` gives it.
type FoundOption = (Vec<u32>, Vec<f64>, f64, f64, bool);

#[pyclass(module = "yggc._native", frozen)]
pub(super) struct Engine {
    /// None once it is closed.
    jobs: Mutex<Option<Sender<Job>>>,
    state: Arc<State>,
    loaded: Arc<Loaded>,
    options: Options,
    context: usize,
}

impl Engine {
    /// Has the thread do a job.
    fn ask(&self, job: Job) -> PyResult<()> {
        self.state.begin()?;
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        match jobs.as_ref().map(|jobs| jobs.send(job)) {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(lost()),
            None => {
                self.state.set(State::IDLE);
                Err(input("the engine is closed: open another"))
            }
        }
    }

    fn answer(&self, py: Python<'_>, prompt: Prompt, given: request::Given) -> PyResult<Generation> {
        let cancel = engine::CancelHandle::new();
        let request = given.read(prompt, cancel.clone())?;
        let (say, events) = mpsc::channel();
        self.ask(Job::Answer(Box::new(request), say))?;
        py.detach(|| Generation::begin(events, cancel))
    }
}

/// Opens an engine on a thread of its own.
fn open(path: PathBuf, given: options::Given) -> PyResult<Engine> {
    let (opened, openings) = mpsc::channel();
    let (jobs, asked) = mpsc::channel();
    let state = Arc::<State>::default();
    let of_thread = Arc::clone(&state);
    let spawned = thread::Builder::new().name("yggc engine".to_owned()).spawn(move || {
        let engine = given.read(path).and_then(|(model, options)| {
            let engine = engine::Engine::with_model(model, &options).map_err(|error| exception(&error))?;
            Ok((engine, options))
        });
        match engine {
            Ok((engine, options)) => {
                let about = (Arc::clone(engine.loaded()), engine.context(), options);
                if opened.send(Ok(about)).is_ok() {
                    work(engine, &asked, &of_thread);
                }
            }
            Err(error) => drop(opened.send(Err(error))),
        }
    });
    spawned.map_err(|error| no_thread(&error))?;
    let (loaded, context, options) = openings.recv().unwrap_or_else(|_| Err(lost()))?;
    Ok(Engine { jobs: Mutex::new(Some(jobs)), state, loaded, options, context })
}

#[pymethods]
impl Engine {
    #[new]
    fn new(py: Python<'_>, model: PathBuf, options: options::Given) -> PyResult<Self> {
        py.detach(|| open(model, options))
    }

    fn generate(
        &self,
        py: Python<'_>,
        prompt: request::PromptGiven,
        given: request::Given,
    ) -> PyResult<Generation> {
        self.answer(py, prompt.into(), given)
    }

    fn chat(
        &self,
        py: Python<'_>,
        messages: &str,
        tools: &str,
        variables: &str,
        given: request::Given,
    ) -> PyResult<Generation> {
        let conversation = request::conversation(messages, tools, variables, true)?;
        self.answer(py, Prompt::Chat(conversation), given)
    }

    /// Of every option its tokens, their log-probabilities and the sum of them, its probability, and whether the
    /// constraint takes it.
    fn choose(
        &self,
        py: Python<'_>,
        prompt: Option<request::PromptGiven>,
        conversation: Option<(String, String, String)>,
        given: request::ChooseGiven,
    ) -> PyResult<Vec<FoundOption>> {
        let prompt = match (prompt, conversation) {
            (Some(prompt), _) => prompt.into(),
            (None, Some((messages, tools, variables))) => {
                Prompt::Chat(request::conversation(&messages, &tools, &variables, true)?)
            }
            (None, None) => return Err(input("no prompt: expected text, token ids or messages")),
        };
        let cancel = engine::CancelHandle::new();
        let request = given.read(prompt, cancel.clone())?;
        let (chosen, mut choices) = mpsc::channel();
        self.ask(Job::Choose(Box::new(request), chosen))?;
        let chosen = loop {
            let (back, chosen) = py.detach(move || {
                let chosen = choices.recv_timeout(PATIENCE);
                (choices, chosen)
            });
            choices = back;
            match chosen {
                Ok(chosen) => break chosen,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(lost()),
            }
            if let Err(interrupt) = py.check_signals() {
                cancel.cancel();
                // The engine is idle again then.
                drop(py.detach(move || choices.recv()));
                return Err(interrupt);
            }
        };
        let choices = chosen.map_err(|error| exception(&error))?.expect("an interrupt alone cancels it");
        let found = |ScoredOption { tokens, log_prob, probability, is_admitted }| {
            let (ids, log_probs) =
                tokens.iter().map(|token: &OptionToken| (token.id, token.log_prob)).unzip();
            (ids, log_probs, log_prob, probability, is_admitted)
        };
        Ok(choices.options.into_iter().map(found).collect())
    }

    /// Token ids of a conversation as the model's template lays it out.
    fn encode_chat(
        &self,
        messages: &str,
        tools: &str,
        variables: &str,
        generation_prompt: bool,
    ) -> PyResult<Vec<u32>> {
        let prompt = Prompt::Chat(request::conversation(messages, tools, variables, generation_prompt)?);
        prompt.token_ids(&self.loaded).map_err(|error| exception(&error))
    }

    fn encode(&self, text: &str, is_prompt: bool, special: bool) -> Vec<u32> {
        let tokenizer = self.loaded.tokenizer();
        if is_prompt {
            return tokenizer.encode_prompt(text);
        }
        tokenizer.encode(text, if special { Special::Parse } else { Special::Literal })
    }

    fn decode(&self, ids: Vec<u32>) -> PyResult<String> {
        let vocabulary = self.loaded.set().vocabulary();
        if let Some(found) = ids.iter().find(|id| **id as usize >= vocabulary) {
            return Err(input(format!("token ids: expected numbers below {vocabulary}, found {found}")));
        }
        Ok(self.loaded.tokenizer().decode(&ids))
    }

    /// Logits `[len, V]` after every token, in f32.
    fn logits<'py>(&self, py: Python<'py>, ids: Vec<u32>) -> PyResult<Bound<'py, PyBytes>> {
        if ids.is_empty() {
            return Err(input("no token ids: expected at least one"));
        }
        let set = self.loaded.set();
        let options = SessionOptions {
            context: ids.len().clamp(2, set.model_context()),
            tree_nodes: 1,
            threads: self.loaded.threads(),
            pinning: self.options.pinning,
        };
        let score = || {
            let mut session = Session::open(Arc::clone(set), &options)?;
            let mut bytes = Vec::with_capacity(4 * ids.len() * set.vocabulary());
            session
                .score(&ids, |_, logits| bytes.extend(logits.iter().flat_map(|logit| logit.to_ne_bytes())))?;
            Ok(bytes)
        };
        let bytes =
            py.detach(|| apart(|| score().map_err(|error: RuntimeError| exception(&error.into()))))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Forgets the last request's text.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        let (done, waiting) = mpsc::channel();
        self.ask(Job::Forget(done))?;
        // It is over when the sender is gone.
        let _ = py.detach(move || waiting.recv());
        Ok(())
    }

    /// Frees what the engine holds; one that answers is freed at the end of its request.
    fn close(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    #[getter]
    fn context(&self) -> usize {
        self.context
    }

    #[getter]
    fn vocabulary(&self) -> usize {
        self.loaded.set().vocabulary()
    }

    #[getter]
    fn end_ids(&self) -> Vec<u32> {
        self.loaded.end_ids().to_vec()
    }

    #[getter]
    fn threads(&self) -> usize {
        self.loaded.threads()
    }

    #[getter]
    fn isa(&self) -> String {
        self.loaded.tier().to_string()
    }
}
