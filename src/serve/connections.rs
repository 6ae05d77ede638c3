//! Accepts and serves connections, and drains them after a signal.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};

use super::{
    ServeError,
    client_timeout::TimedStream,
    routes::{Service, router},
};

/// Longest time for a client to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a client to read nothing while its answer is written, unless the request deadline is shorter.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after a failed `accept`: usually too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for answers that were cut off to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Signals that end the program.
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
        // If the system refuses a handler, only a kill ends the program.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Serves connections until a signal arrives or the decoder ends, then drains. A second signal cuts off the remaining answers.
pub(super) async fn run(service: Arc<Service>, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let mut signals = Signals::new()?;
    let address = service.settings.address;
    let listen = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    ready(listener.local_addr().map_err(listen)?);
    let places = Arc::new(Semaphore::new(service.settings.limits.connections));
    let router = router(Arc::clone(&service));
    let write_timeout = service.settings.limits.deadline.min(READ_TIMEOUT);
    let (drain, draining) = watch::channel(());
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let accepted = async {
            // The semaphore is never closed, so a permit comes eventually.
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
        let (router, draining) = (router.clone(), draining.clone());
        tokio::spawn(async move {
            serve(stream, write_timeout, router, draining).await;
            drop(place);
        });
    }
    service.queue.close();
    drop(draining);
    // Without a connection nobody receives it.
    let _ = drain.send(());
    let mut drained = pin!(drain.closed());
    // Who watches the service is answered until the end: it drains, and takes no requests.
    let watched = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    drop(tokio::spawn(connection(stream, write_timeout, router.clone())));
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = &mut drained => return Ok(()),
        () = sleep(service.settings.limits.drain) => {}
        () = signals.next() => {}
        () = watched => {}
    }
    service.queue.cancel_all();
    // Clients that still do not read are dropped.
    let _ = timeout(LAST_WORDS, drained).await;
    Ok(())
}

/// Serves one connection. A drain, which waits until `draining` is dropped, lets it answer what it has begun to read.
///
/// A graceful shutdown of hyper closes a connection that has read nothing, although a request may be on its way. So until its first bytes
/// come a connection is not shut down, and no drain waits for it.
async fn serve(
    stream: TcpStream,
    write_timeout: Duration,
    router: axum::Router,
    mut draining: watch::Receiver<()>,
) {
    let mut first = [0];
    let begun = tokio::select! {
        biased;
        peeked = timeout(HEAD_TIMEOUT, stream.peek(&mut first)) => {
            if !matches!(peeked, Ok(Ok(1..))) {
                return;
            }
            true
        }
        _ = draining.changed() => false,
    };
    let mut connection = pin!(connection(stream, write_timeout, router));
    // Errors of a connection concern its client alone.
    if !begun {
        drop(draining);
        let _ = connection.await;
        return;
    }
    // Polled first, the connection has read something before it learns of a drain.
    tokio::select! {
        biased;
        _ = &mut connection => return,
        _ = draining.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

fn connection(
    stream: TcpStream,
    timeout: Duration,
    router: axum::Router,
) -> http1::Connection<TokioIo<TimedStream>, TowerToHyperService<axum::Router>> {
    // Sends small chunks at once; if the system refuses, they are merely later.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(TimedStream::new(stream, timeout)), TowerToHyperService::new(router))
}
