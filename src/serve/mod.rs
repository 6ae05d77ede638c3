//! `yggc serve`: an OpenAI-compatible HTTP service over one engine.
//!
//! One thread decodes, one request at a time ([`worker`]). Another is the reactor, which reads requests, puts them into
//! a bounded [`queue`] and writes answers as they arrive. The reactor never waits for a forward: text is encoded on
//! separate threads, and the decoder's events arrive through a channel that never fills. Constraints are compiled
//! before their request is queued ([`compiling`]). Invariants: a request has exactly one end, which is counted once
//! ([`ending`]); a client that leaves, a deadline and a drain end a request within one step; nothing a client sends
//! panics.
//!
//! The room belongs to the program and uses only the library's public API. It is the only async and the only HTTP.

mod about;
mod answers;
mod body;
#[cfg(any(test, fuzzing))]
mod check;
mod choices;
mod choose;
mod client_timeout;
mod compiling;
mod connections;
mod ending;
mod error;
mod events;
mod fill_in;
mod foreign;
mod guests;
mod idle;
mod key;
mod log_probs;
mod messages;
mod metrics;
mod numbers;
mod page;
mod places;
mod prefill;
mod prefix_metrics;
mod queue;
mod reading;
mod requests;
mod response_events;
mod responses;
mod routes;
mod settings;
mod slots;
#[cfg_attr(not(feature = "otel"), path = "no_spans.rs")]
mod spans;
mod steps;
mod structured;
mod tokens;
mod told_tools;
mod tools;
mod vllm_metrics;
mod worker;

use std::{net::SocketAddr, sync::Arc, thread};

use yggc::engine::{Engine, Options};

#[cfg(fuzzing)]
pub(crate) use self::check::check_body;
pub(crate) use self::{
    error::ServeError,
    guests::is_here_alone,
    idle::{Idle, IdleWork},
    key::ApiKey,
    settings::{Limits, Settings},
};
use self::{metrics::Metrics, queue::Queue, routes::Service, spans::Spans, worker::Worker};

/// Serves until a signal arrives, then drains. `ready` is called with the address before the first request; `idle` is
/// done while none comes.
///
/// # Errors
/// [`ServeError`] when the address cannot be bound, or the reactor or the decoder fails.
pub(crate) fn serve(
    engine: Engine,
    options: Options,
    settings: Settings,
    idle: Option<Idle>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let spans = Spans::start(settings.span_timeout)?;
    let queue = Arc::new(Queue::new(settings.limits.queue));
    let metrics = Arc::new(Metrics::new(&settings.model_name, options.prefixes.clone()));
    let loaded = Arc::clone(engine.loaded());
    let context = engine.context();
    let options = Arc::new(options);
    let worker = Worker::new(engine, Arc::clone(&options), Arc::clone(&loaded), Arc::clone(&metrics));
    let decoding = {
        let queue = Arc::clone(&queue);
        let decoder = thread::Builder::new().name("yggc-decoder".to_owned());
        decoder.spawn(move || worker.run(&queue, idle)).map_err(ServeError::Threads)?
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Two read and encode requests; the others wait for constraints.
        .max_blocking_threads(2 + compiling::MOST)
        .build()
        .map_err(ServeError::Threads)?;
    let compiling = compiling::places();
    let service =
        Service { loaded, options, context, settings, queue: Arc::clone(&queue), metrics, spans, compiling };
    let service = Arc::new(service);
    let served = runtime.block_on(connections::run(Arc::clone(&service), ready));
    queue.close();
    queue.cancel_all();
    let ended = decoding.join();
    runtime.shutdown_background();
    service.spans.end();
    served?;
    ended.map_err(|_| ServeError::Decoder)
}
