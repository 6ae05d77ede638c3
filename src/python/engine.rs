//! Engines: one that answers a request is with the thread of that request, and comes back at its end.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{prelude::*, types::PyBytes};
use yggc::{
    engine::{self, Loaded, Options, Prompt, Special},
    runtime::{Session, SessionOptions},
};

use super::{
    error::{BusyError, exception, input, lost},
    generation::Generation,
    options, request,
};

/// Where an engine is.
#[derive(Debug)]
enum Held {
    Idle(Box<engine::Engine>),
    Answering,
    /// The thread of its request panicked, or it was closed.
    Lost,
    Closed,
}

/// The place of an engine, which requests take it from and bring it back to.
#[derive(Clone, Debug)]
pub(super) struct Place(Arc<Mutex<Held>>);

impl Place {
    fn replaced(&self, by: Held) -> Held {
        std::mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), by)
    }

    /// Takes the engine.
    fn take(&self) -> PyResult<Box<engine::Engine>> {
        match self.replaced(Held::Answering) {
            Held::Idle(engine) => Ok(engine),
            Held::Answering => Err(BusyError::new_err(
                "the engine is answering: expected one request at a time; read the other generation to its end or `close` it, or open \
                 another engine",
            )),
            Held::Lost => {
                self.replaced(Held::Lost);
                Err(lost())
            }
            Held::Closed => {
                self.replaced(Held::Closed);
                Err(input("the engine is closed: open another"))
            }
        }
    }

    /// Brings it back; `None` if it is lost.
    pub(super) fn back(&self, engine: Option<Box<engine::Engine>>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*held, Held::Closed) {
            *held = engine.map_or(Held::Lost, Held::Idle);
        }
    }
}

#[pyclass(module = "yggc._native", frozen)]
pub(super) struct Engine {
    place: Place,
    loaded: Arc<Loaded>,
    options: Options,
    context: usize,
}

impl Engine {
    fn answer(&self, py: Python<'_>, prompt: Prompt, given: request::Given) -> PyResult<Generation> {
        let cancel = engine::CancelHandle::new();
        let request = given.read(prompt, cancel.clone())?;
        let engine = self.place.take()?;
        py.detach(|| Generation::begin(engine, self.place.clone(), request, cancel))
    }
}

#[pymethods]
impl Engine {
    #[new]
    fn open(py: Python<'_>, model: PathBuf, options: options::Given) -> PyResult<Self> {
        py.detach(|| {
            let (model, options) = options.read(model)?;
            let engine = engine::Engine::with_model(model, &options).map_err(|error| exception(&error))?;
            let (loaded, context) = (Arc::clone(engine.loaded()), engine.context());
            let place = Place(Arc::new(Mutex::new(Held::Idle(Box::new(engine)))));
            Ok(Self { place, loaded, options, context })
        })
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

    /// Logits `[len, V]` behind every token, in f32.
    fn logits<'py>(&self, py: Python<'py>, ids: Vec<u32>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| {
            if ids.is_empty() {
                return Err(input("no token ids: expected at least one"));
            }
            let context = ids.len().clamp(2, self.loaded.set().model_context());
            let options = SessionOptions {
                context,
                tree_nodes: 1,
                threads: self.loaded.threads(),
                pinning: self.options.pinning,
            };
            let refused = |error: yggc::runtime::RuntimeError| exception(&error.into());
            let mut session = Session::open(Arc::clone(self.loaded.set()), &options).map_err(refused)?;
            let mut bytes = Vec::with_capacity(4 * ids.len() * self.loaded.set().vocabulary());
            session
                .score(&ids, |_, logits| bytes.extend(logits.iter().flat_map(|logit| logit.to_ne_bytes())))
                .map_err(refused)?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Forgets the last request's text.
    fn forget(&self) -> PyResult<()> {
        let mut engine = self.place.take()?;
        engine.forget();
        self.place.back(Some(engine));
        Ok(())
    }

    /// Frees what the engine holds; one that answers is freed at the end of its request.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.place.replaced(Held::Closed)));
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
