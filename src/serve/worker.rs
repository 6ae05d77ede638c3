//! The thread that decodes: one request at a time, with the engine whose drafter it asks for.

use std::sync::Arc;

use tokio::time::Instant;
use yggc::engine::{self, DrafterChoice, Engine, ErrorKind, Event, Loaded, Options, Speculation};

use super::{
    metrics::Metrics,
    queue::{Job, Queue},
};

/// The drafter that the plan chose.
pub(super) const PLANNED: &str = "plan";
/// Plain decoding.
pub(super) const NONE: &str = "none";

/// What decodes.
#[derive(Debug)]
pub(super) struct Worker {
    /// As the plan says; serves plain decoding too.
    planned: Engine,
    /// With another drafter, the one that was asked for last. Engines share weights, and have a cache each: so there are two at most.
    forced: Option<(String, Engine)>,
    loaded: Arc<Loaded>,
    options: Options,
    metrics: Arc<Metrics>,
}

impl Worker {
    pub(super) fn new(engine: Engine, options: Options, loaded: Arc<Loaded>, metrics: Arc<Metrics>) -> Self {
        Self { planned: engine, forced: None, loaded, options, metrics }
    }

    /// Answers what comes until the queue is closed and empty. However it ends, nothing waits for it then.
    pub(super) fn run(mut self, queue: &Queue) {
        let _leaving = Leaving(queue);
        while let Some(job) = queue.next() {
            let began = Instant::now();
            self.answer(job);
            self.metrics.was_busy(began.elapsed());
        }
    }

    fn answer(&mut self, mut job: Job) {
        if job.drafter == NONE {
            job.request.speculation = Speculation::Off;
        }
        let metrics = Arc::clone(&self.metrics);
        let events = job.events.clone();
        let ended = self.engine(&job.drafter).and_then(|engine| {
            let ended = decode(engine, &job, &metrics);
            // A drafter's own session may have failed where the verifier's has not: that is the device, too.
            if let Err(error) = &ended
                && error.kind() == ErrorKind::Device
            {
                metrics.device_failed(error);
            }
            ended
        });
        if let Err(error) = ended {
            // A client that left needs no reason.
            let _ = events.send(Err(error));
        }
    }

    /// The engine for a drafter, opened if it is not the last one.
    fn engine(&mut self, drafter: &str) -> Result<&mut Engine, engine::Error> {
        if drafter == PLANNED || drafter == NONE {
            return Ok(&mut self.planned);
        }
        let known = self.forced.take_if(|(name, _)| name == drafter);
        let engine = match known {
            Some((_, engine)) => engine,
            None => {
                self.forced = None;
                let taken = self.planned.memory().session_bytes;
                let options = Options {
                    drafter: DrafterChoice::Forced(drafter.to_owned()),
                    memory_limit: self.options.memory_limit.map(|limit| limit.saturating_sub(taken)),
                    ..self.options.clone()
                };
                Engine::with_loaded(Arc::clone(&self.loaded), &options)?
            }
        };
        Ok(&mut self.forced.insert((drafter.to_owned(), engine)).1)
    }
}

/// Runs a request and sends its events until it ends or nobody listens.
fn decode(engine: &mut Engine, job: &Job, metrics: &Metrics) -> Result<(), engine::Error> {
    let generation = engine.generate(&job.request)?;
    let mut has_begun = false;
    for event in generation {
        let event = event?;
        match &event {
            Event::Token { .. } if !has_begun => {
                has_begun = true;
                metrics.first_token(job.arrived.elapsed());
            }
            Event::Token { .. } => {}
            Event::Finished { report, .. } => metrics.finished(report),
        }
        if job.events.send(Ok(event)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Abandons the queue when the decoder ends, by whatever.
struct Leaving<'q>(&'q Queue);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
