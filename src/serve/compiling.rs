//! Compiles the constraint of a request before it waits for the decoder: the decoder never does, and slow constraints
//! hold up no other request.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use yggc::{
    engine::{self, CancelHandle, Constraint, Matcher},
    grammar::GrammarError,
};

use super::{
    answers::Refused,
    routes::{self, Service},
};

/// Constraints compiled at once: as many as the library compiles. Others wait without a thread.
pub(super) const MOST: usize = 4;
/// When a client may try again that found as many slow constraints as may be.
const RETRY_AFTER_S: u64 = 10;

/// The places of those that are compiled.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST))
}

/// Compiles the constraint of a request, if there is one, and refuses one that cannot be kept; `field` is where it
/// comes from. Ends at the deadline, when the service drains, and when `cancel` is: that of a client that leaves.
pub(super) async fn compile(
    service: &Service,
    constraint: Option<Constraint>,
    field: &'static str,
    cancel: CancelHandle,
    deadline: Instant,
) -> Result<Option<Matcher>, Refused> {
    let Some(constraint) = constraint else { return Ok(None) };
    let (places, loaded) = (Arc::clone(&service.compiling), Arc::clone(&service.loaded));
    let compiled = async {
        let place = places.acquire_owned().await.expect("it is never closed");
        spawn_blocking(move || {
            let _place = place;
            loaded.matcher_unless(&constraint, &cancel)
        })
        .await
    };
    let compiled = tokio::select! {
        compiled = compiled => compiled,
        () = sleep_until(deadline) => return Err(routes::late()),
        () = service.queue.closed() => return Err(routes::drained()),
    };
    compiled.map_err(|_| not_compiled())?.map(Some).map_err(|error| refused(field, &error))
}

/// Response to a constraint on which the compiler failed.
fn not_compiled() -> Refused {
    let what = "the constraint could not be compiled; this is a fault of yggc, please report it";
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, what)
}

fn refused(field: &'static str, error: &engine::Error) -> Refused {
    let of = std::error::Error::source(error).and_then(|source| source.downcast_ref::<GrammarError>());
    match of {
        Some(GrammarError::Busy { .. } | GrammarError::Thread { .. }) => {
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, format!("{field}: {error}"))
                .with_code("grammars_busy")
                .with_retry_after(RETRY_AFTER_S)
        }
        _ => Refused::field(field, error),
    }
}
