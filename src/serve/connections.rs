//! Accepts and serves connections, and drains them after a signal.

use std::{
    io::{self, Write},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use yggc::storage::{EndSignal, SignalWatch};

use super::{
    ServeError,
    client_timeout::TimedStream,
    places::{Client, Given, Places, Received},
    routes::{Service, router},
};

/// Longest time for a client to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of the head of a request, several times what clients send: each connection may hold as many.
const MOST_HEAD: usize = 1 << 16;
/// Longest time for a client to read nothing while its answer is written, unless the request deadline is shorter.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after a failed `accept`: usually too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time between two warnings of that.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Time for answers that were cut off to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Signals that end the program.
struct Signals {
    _watch: SignalWatch,
    told: mpsc::UnboundedReceiver<()>,
}

impl Signals {
    fn new() -> Result<Self, ServeError> {
        let (tell, told) = mpsc::unbounded_channel();
        let watch = SignalWatch::start(&[EndSignal::Interrupt, EndSignal::Terminate], move || {
            // Without a receiver the program ends already.
            let _ = tell.send(());
        });
        Ok(Self { _watch: watch.map_err(ServeError::Signals)?, told })
    }

    async fn next(&mut self) {
        self.told.recv().await.expect("the watch keeps the sender");
    }
}

/// Serves connections until a signal arrives or the decoder ends, then drains. A second signal cuts off the remaining
/// answers.
pub(super) async fn run(service: Arc<Service>, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let mut signals = Signals::new()?;
    let address = service.settings.address;
    let listen = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    ready(listener.local_addr().map_err(listen)?);
    let limits = &service.settings.limits;
    let write_timeout = limits.deadline.min(READ_TIMEOUT);
    let mut door = Door::new(listener, limits.connections);
    let router = router(Arc::clone(&service));
    let (drain, draining) = watch::channel(());
    loop {
        let (stream, client) = tokio::select! {
            () = signals.next() => break,
            () = service.queue.abandoned() => break,
            entered = door.enter() => entered,
        };
        let connection = Connection { stream, client, write_timeout, router: router.clone() };
        tokio::spawn(connection.serve(draining.clone()));
    }
    service.queue.close();
    drop(draining);
    // Without a connection nobody receives it.
    let _ = drain.send(());
    let mut drained = pin!(drain.closed());
    // Who watches the service is answered until the end: it drains, and takes no requests.
    let watched = async {
        loop {
            let (stream, client) = door.enter().await;
            let connection = Connection { stream, client, write_timeout, router: router.clone() };
            tokio::spawn(connection.serve_watcher());
        }
    };
    tokio::select! {
        () = &mut drained => return Ok(()),
        () = sleep(limits.drain) => {}
        () = signals.next() => {}
        () = watched => {}
    }
    service.queue.cancel_all();
    // Clients that still do not read are dropped.
    let _ = timeout(LAST_WORDS, drained).await;
    Ok(())
}

/// Where clients come in.
struct Door {
    listener: TcpListener,
    places: Places,
    /// A client that waits for a place.
    waiting: Option<TcpStream>,
    /// When a failed `accept` was last told of.
    told: Option<Instant>,
}

impl Door {
    fn new(listener: TcpListener, places: usize) -> Self {
        Self { listener, places: Places::new(places), waiting: None, told: None }
    }

    /// Waits for the next client and for a place for it. A wait that is given up loses no client.
    async fn enter(&mut self) -> (TcpStream, Arc<Client>) {
        while self.waiting.is_none() {
            match self.listener.accept().await {
                Ok((stream, _)) => self.waiting = Some(stream),
                Err(error) => {
                    if self.told.is_none_or(|told| told.elapsed() > TELL_AGAIN) {
                        self.told = Some(Instant::now());
                        // A closed stderr is no reason to end.
                        let _ = writeln!(
                            io::stderr(),
                            "warning: a client cannot connect: {error}; others are sent away; raise the limit \
                             (`ulimit -n`), or lower --connections"
                        );
                    }
                    // Whoever leaves gives back an open file.
                    self.places.send_one_away();
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        let client = self.places.take().await;
        (self.waiting.take().expect("it was accepted"), client)
    }
}

/// A connection that begins.
struct Connection {
    stream: TcpStream,
    client: Arc<Client>,
    write_timeout: Duration,
    router: axum::Router,
}

impl Connection {
    /// Serves it until its end, or until it must give up its place. A drain, which waits until `draining` is dropped,
    /// lets it answer what it has begun to read.
    ///
    /// A graceful shutdown of hyper closes a connection that has read nothing, although a request may be on its way. So
    /// until its first bytes come a connection is not shut down, and no drain waits for it.
    async fn serve(self, mut draining: watch::Receiver<()>) {
        let client = Arc::clone(&self.client);
        let served = async {
            let mut first = [0];
            tokio::select! {
                biased;
                peeked = timeout(HEAD_TIMEOUT, self.stream.peek(&mut first)) => {
                    if matches!(peeked, Ok(Ok(1..))) {
                        self.exchange(Some(draining)).await;
                    }
                }
                _ = draining.changed() => {
                    drop(draining);
                    self.exchange(None).await;
                }
            }
        };
        tokio::select! {
            () = served => {}
            () = client.sent_away() => {}
        }
    }

    /// Serves one that came during the drain, which does not wait for it.
    async fn serve_watcher(self) {
        let client = Arc::clone(&self.client);
        tokio::select! {
            () = self.exchange(None) => {}
            () = client.sent_away() => {}
        }
    }

    /// Reads requests and answers them. Errors of a connection concern its client alone.
    async fn exchange(self, mut draining: Option<watch::Receiver<()>>) {
        let Self { stream, client, write_timeout, router } = self;
        // Sends small chunks at once; if the system refuses, they are merely later.
        let _ = stream.set_nodelay(true);
        let stream = TimedStream::new(stream, write_timeout, Arc::clone(&client));
        let reader = stream.reader();
        let answers = TowerToHyperService::new(router);
        let of_client = Arc::clone(&client);
        let service = service_fn(move |request: Request<Incoming>| {
            let client = Arc::clone(&of_client);
            let answer = answers.call(request.map(|body| Received::new(body, Arc::clone(&client))));
            async move { answer.await.map(|response| response.map(|body| Given::new(body, client))) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        http.max_header_size(MOST_HEAD).max_buf_size(MOST_HEAD);
        // `left` sees what hyper would see of a client that leaves, and more, and lets it answer first what it can at
        // once.
        http.half_close(true);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let mut left = pin!(client.left(&reader));
        let drain = async {
            match &mut draining {
                Some(draining) => drop(draining.changed().await),
                None => std::future::pending().await,
            }
        };
        // Polled first, the connection has read something before it learns of a drain.
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = &mut left => return,
            () = drain => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection => {}
            () = left => {}
        }
    }
}
