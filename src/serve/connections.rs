//! Connections: taken, served, and drained when a signal says so.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::{
    ServeError,
    patient_stream::PatientStream,
    routes::{Service, router},
};

/// What a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// What a client that is written to may take to read something, unless requests have less time.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// What is waited after an `accept` that failed: usually too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What answers that were cut off are waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What tells the program to end.
#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Result<Self, ServeError> {
        use tokio::signal::unix::{SignalKind, signal};
        let of = |kind| signal(kind).map_err(ServeError::Signals);
        Ok(Self { terminate: of(SignalKind::terminate())?, interrupt: of(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Result<Self, ServeError> {
        Ok(Self)
    }

    async fn next(&mut self) {
        // Where the system refuses to report it, nothing but a kill ends the program.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Serves connections until a signal, or until the decoder is gone; then drains. A second signal cuts off what is still answered.
pub(super) async fn run(service: Arc<Service>, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let mut signals = Signals::new()?;
    let address = service.settings.address;
    let listen = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    ready(listener.local_addr().map_err(listen)?);
    let places = Arc::new(Semaphore::new(service.settings.limits.connections));
    let router = router(Arc::clone(&service));
    let patience = service.settings.limits.deadline.min(READ_TIMEOUT);
    let graceful = GracefulShutdown::new();
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let accepted = async {
            // Never closed, so there is always a place in the end.
            let place = place.await.ok()?;
            Some((listener.accept().await.ok()?.0, place))
        };
        let (stream, place) = tokio::select! {
            () = signals.next() => break,
            () = service.queue.abandoned() => break,
            accepted = accepted => match accepted {
                Some(accepted) => accepted,
                None => {
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let connection = connection(stream, patience, TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // What a client does to its connection is its own affair.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    service.queue.close();
    let mut drained = std::pin::pin!(graceful.shutdown());
    tokio::select! {
        () = &mut drained => return Ok(()),
        () = sleep(service.settings.limits.drain) => {}
        () = signals.next() => {}
    }
    service.queue.cancel_all();
    // Clients that do not even read what was cut off are left.
    let _ = timeout(LAST_WORDS, drained).await;
    Ok(())
}

fn connection(
    stream: TcpStream,
    patience: Duration,
    service: TowerToHyperService<axum::Router>,
) -> http1::Connection<TokioIo<PatientStream>, TowerToHyperService<axum::Router>> {
    // Small pieces are sent as they come; where that is refused, they come later.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(PatientStream::new(stream, patience)), service)
}
