//! The decoding thread: one request at a time, on the engine of the drafter that the request names.

use std::sync::Arc;

use tokio::time::Instant;
use yggc::{
    engine::{
        self, CancelHandle, DrafterChoice, Engine, ErrorKind, Event, FinishReason, Loaded, Options, Prompt,
        Speculation,
    },
    prefix::Owner,
};

use super::{
    idle::Idle,
    metrics::Metrics,
    queue::{Answers, CachedText, Choice, Job, Next, Queue, ReadPrompt, Sent, TextAct, TextWork, Work},
};

/// The drafter that the plan chose.
pub(super) const PLANNED: &str = "plan";
/// Plain decoding.
pub(super) const NONE: &str = "none";

/// The decoder's engines.
#[derive(Debug)]
pub(super) struct Worker {
    /// Opened by the plan; also decodes plainly.
    planned: Engine,
    /// Forces the drafter that was requested last. Engines share weights but have a cache each, so there are at most
    /// two.
    forced: Option<(String, Engine)>,
    loaded: Arc<Loaded>,
    options: Arc<Options>,
    metrics: Arc<Metrics>,
}

impl Worker {
    pub(super) fn new(
        engine: Engine,
        options: Arc<Options>,
        loaded: Arc<Loaded>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { planned: engine, forced: None, loaded, options, metrics }
    }

    /// Answers requests until the queue is closed and empty. However it ends, no request is left waiting.
    pub(super) fn run(mut self, queue: &Queue, mut idle: Option<Idle>) {
        let _leaving = Leaving(queue);
        while let Some(job) = next(queue, idle.as_mut()) {
            let began = Instant::now();
            self.answer(job);
            self.metrics.cache_used(0.0);
            self.metrics.was_busy(began.elapsed());
        }
    }

    fn answer(&mut self, job: Job) {
        let Job { work, owner, cancel, arrived } = job;
        match work {
            Work::Answers(mut answers) => {
                for request in &mut answers.requests {
                    request.owner = owner;
                    if answers.drafter == NONE {
                        request.speculation = Speculation::Off;
                    }
                }
                let metrics = Arc::clone(&self.metrics);
                let ended = self
                    .engine(&answers.drafter)
                    .and_then(|engine| decode(engine, &answers, (&cancel, arrived), &metrics));
                if let Err(error) = ended {
                    self.note_failure(&error);
                    // The client may have left.
                    let _ = answers.events.send(Err(error));
                }
            }
            Work::Text(TextWork { act, done }) => {
                self.metrics.waited(arrived.elapsed());
                let text = act_on(&mut self.planned, act, owner, &cancel);
                if let Err(error) = &text {
                    self.note_failure(error);
                }
                // The client may have left.
                let _ = done.send(text);
            }
            Work::Choice(choice) => {
                let Choice { mut request, chosen } = *choice;
                request.owner = owner;
                self.metrics.waited(arrived.elapsed());
                let choices = self.planned.choose(&request);
                match &choices {
                    Ok(Some(choices)) => self.metrics.chosen(&choices.report, arrived.elapsed()),
                    Ok(None) => {}
                    Err(error) => self.note_failure(error),
                }
                // The client may have left.
                let _ = chosen.send(choices);
            }
        }
    }

    /// A drafter's own session may fail while the verifier's works: that is a device failure too.
    fn note_failure(&self, error: &engine::Error) {
        if error.kind() == ErrorKind::Device {
            self.metrics.device_failed(error);
        }
    }

    /// The engine for a drafter that the plan has; opens it if another drafter was used before.
    fn engine(&mut self, drafter: &str) -> Result<&mut Engine, engine::Error> {
        if drafter == PLANNED || drafter == NONE {
            return Ok(&mut self.planned);
        }
        let known = self.forced.take_if(|(name, _)| name == drafter);
        let engine = match known {
            Some((_, engine)) => engine,
            None => {
                self.forced = None;
                let taken = self.planned.session_host_bytes();
                let options = Options {
                    drafter: DrafterChoice::named(drafter),
                    memory_limit: self.options.memory_limit.map(|limit| limit.saturating_sub(taken)),
                    ..(*self.options).clone()
                };
                Engine::with_loaded(Arc::clone(&self.loaded), &options)?
            }
        };
        Ok(&mut self.forced.insert((drafter.to_owned(), engine)).1)
    }
}

/// Waits for the next request; `None` when the queue is closed and empty. Idle work is begun when none came for a
/// while.
fn next(queue: &Queue, idle: Option<&mut Idle>) -> Option<Job> {
    let Some(Idle { after, work }) = idle else { return queue.next() };
    let job = match queue.next_within(*after) {
        Next::Nothing => {
            work.begin();
            queue.next()
        }
        Next::Job(job) => Some(*job),
        Next::Closed => None,
    };
    work.end();
    job
}

/// Does something with the text of a cache.
fn act_on(
    engine: &mut Engine,
    act: TextAct,
    owner: Owner,
    cancel: &CancelHandle,
) -> Result<Option<CachedText>, engine::Error> {
    if let TextAct::Read(tokens) = act {
        let kept = engine.read(&tokens, owner, cancel)?;
        return Ok(kept.map(|kept| CachedText { tokens, kept }));
    }
    let tokens = engine.cached_text(owner).to_vec();
    if matches!(act, TextAct::Forget) && !tokens.is_empty() {
        engine.forget();
    }
    Ok(Some(CachedText { kept: tokens.len(), tokens }))
}

/// Gives the answers to a request in sequence and sends their events, until it ends or the receiver is gone.
fn decode(
    engine: &mut Engine,
    answers: &Answers,
    (cancel, arrived): (&CancelHandle, Instant),
    metrics: &Metrics,
) -> Result<(), engine::Error> {
    let Answers { requests, each, reads, reports_steps, drafter: _, span, events } = answers;
    metrics.waited(arrived.elapsed());
    let context = engine.context() as f64;
    let mut has_begun = false;
    for (place, request) in requests.iter().enumerate() {
        span.began();
        let mut read = match (reads, &request.prompt) {
            // A cancelled reading is an answer that ends where it begins.
            (Some(most), Prompt::Tokens(ids)) if place.is_multiple_of(*each) => {
                let log_probs = engine.prompt_log_probs(ids, request.owner, *most, cancel)?;
                log_probs.map(|log_probs| ReadPrompt { ids: ids.clone(), log_probs })
            }
            _ => None,
        };
        let was_read = read.is_some();
        let mut is_prefilling = true;
        let mut generation = engine.generate(request)?;
        while let Some(event) = generation.next() {
            let mut event = event?;
            let mut step = None;
            let mut is_cancelled = false;
            match &mut event {
                Event::Token { .. } => {
                    if !has_begun {
                        has_begun = true;
                        metrics.first_token(arrived.elapsed());
                    }
                    if is_prefilling {
                        is_prefilling = false;
                        span.first_token();
                    }
                    step = reports_steps.then(|| generation.step_tree()).flatten();
                    let used = generation.prompt_token_ids().len() + generation.token_ids().len();
                    metrics.cache_used(used as f64 / context);
                }
                Event::Finished { reason, report, .. } => {
                    if was_read {
                        // The answer found its prompt in the cache because it was read for it.
                        report.reused_tokens = 0;
                    }
                    metrics.finished(*reason, report);
                    span.finished(*reason, report);
                    is_cancelled = *reason == FinishReason::Cancelled;
                }
            }
            if events.send(Ok(Sent { event, step, read: read.take() })).is_err() || is_cancelled {
                return Ok(());
            }
        }
    }
    metrics.answered(arrived.elapsed());
    Ok(())
}

/// Abandons the queue when the decoder ends, even by a panic.
struct Leaving<'q>(&'q Queue);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
