//! A running request: the engine's thread sends its events, which Python takes one by one.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use pyo3::{prelude::*, types::PyDict};
use yggc::engine::{self, CancelHandle, Error, Event, Report, Request};

use super::error::{exception, lost};

/// How long a wait lasts before it looks whether Python was interrupted.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// What the thread says: the prompt's tokens, then events, or why there are none.
pub(super) enum Said {
    Began(Vec<u32>),
    Event(Event),
    Failed(Error),
}

/// A token: its id, its text, and its own log-probability with those of the most probable.
type Token = (u32, String, Option<(f32, Vec<(u32, f32)>)>);

#[pyclass(module = "yggc._native", frozen)]
pub(super) struct Generation {
    cancel: CancelHandle,
    prompt: Vec<u32>,
    running: Mutex<Running>,
}

struct Running {
    /// Of an engine that is idle again when they end.
    events: Receiver<Said>,
    /// Those that were waited for, but not asked for yet.
    ahead: VecDeque<Said>,
    end: Option<End>,
}

struct End {
    reason: &'static str,
    /// The last of its text.
    text: String,
    report: Box<Report>,
}

/// Answers, and gives what is to be said when the engine is idle again; nothing if nobody listens.
pub(super) fn answer(engine: &mut engine::Engine, request: &Request, say: &Sender<Said>) -> Option<Said> {
    let generation = match engine.generate(request) {
        Ok(generation) => generation,
        Err(error) => return Some(Said::Failed(error)),
    };
    say.send(Said::Began(generation.prompt_token_ids().to_vec())).ok()?;
    for event in generation {
        match event {
            Ok(token @ Event::Token { .. }) => say.send(Said::Event(token)).ok()?,
            Ok(finished @ Event::Finished { .. }) => return Some(Said::Event(finished)),
            Err(error) => return Some(Said::Failed(error)),
        }
    }
    None
}

impl Generation {
    /// Waits for the begin of a request, which `cancel` ends.
    ///
    /// # Errors
    /// What the engine says of the request.
    pub(super) fn begin(events: Receiver<Said>, cancel: CancelHandle) -> PyResult<Self> {
        let prompt = match events.recv() {
            Ok(Said::Began(prompt)) => prompt,
            Ok(Said::Failed(error)) => return Err(exception(&error)),
            Ok(Said::Event(_)) | Err(_) => return Err(lost()),
        };
        let running = Running { events, ahead: VecDeque::new(), end: None };
        Ok(Self { cancel, prompt, running: Mutex::new(running) })
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the request and waits until the engine is idle.
    fn end(&self) {
        self.cancel.cancel();
        let Running { events, ahead, .. } = &mut *self.running();
        ahead.extend(events.iter());
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.end();
    }
}

#[pymethods]
impl Generation {
    /// The next token; none at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Token>> {
        loop {
            let said = py.detach(|| {
                let mut running = self.running();
                let next = match running.ahead.pop_front() {
                    Some(said) => Ok(said),
                    None => running.events.recv_timeout(PATIENCE),
                };
                match next {
                    Ok(Said::Event(Event::Finished { reason, text, report })) => {
                        running.end = Some(End { reason: reason.name(), text, report });
                        Ok(None)
                    }
                    Ok(said) => Ok(Some(said)),
                    Err(RecvTimeoutError::Disconnected) if running.end.is_some() => Ok(None),
                    Err(error) => Err(error),
                }
            });
            match said {
                Ok(None) => return Ok(None),
                Ok(Some(Said::Event(Event::Token { id, text, log_probs }))) => {
                    return Ok(Some((id, text, log_probs.map(|each| (each.log_prob, each.best)))));
                }
                Ok(Some(Said::Failed(error))) => return Err(exception(&error)),
                Ok(Some(_)) => unreachable!("it begins once, and its end is taken above"),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) if self.cancel.is_cancelled() => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(lost()),
            }
        }
    }

    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Cancels, and waits until the engine is idle.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }

    #[getter]
    fn prompt_token_ids(&self) -> Vec<u32> {
        self.prompt.clone()
    }

    /// Why it ended, the last of its text, and its numbers; none before.
    fn finished<'py>(&self, py: Python<'py>) -> PyResult<Option<(&'static str, String, Bound<'py, PyDict>)>> {
        let running = self.running();
        let Some(End { reason, text, report }) = &running.end else { return Ok(None) };
        Ok(Some((reason, text.clone(), numbers(py, report)?)))
    }
}

/// The fields of Python's `Report`.
fn numbers<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let numbers = PyDict::new(py);
    numbers.set_item("tokens", report.tokens)?;
    numbers.set_item("reused_tokens", report.reused_tokens)?;
    numbers.set_item("steps", report.steps)?;
    numbers.set_item("drafted", report.drafted)?;
    numbers.set_item("accepted", report.accepted)?;
    numbers.set_item("tokens_per_step", report.aal)?;
    numbers.set_item("tokens_per_second", report.tokens_per_s)?;
    numbers.set_item("ms_per_token", report.tpot_ms)?;
    numbers.set_item("ms_to_first_token", report.ttft_ms)?;
    numbers.set_item("drafter", &report.drafter)?;
    numbers.set_item("plan", report.plan.as_deref())?;
    numbers.set_item("predicted_speedup", report.predicted_speedup)?;
    numbers.set_item("no_speculation_because", report.spec_off_reason.as_deref())?;
    Ok(numbers)
}
