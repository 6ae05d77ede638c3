//! Places for connections: what each client is doing, and who leaves when all places are taken.
//!
//! A client that sends a byte a second, or reads none of its answer, costs nothing but its place. So nobody is sent
//! away for it before others wait for a place. Then the one that has kept the server waiting for the longest time
//! leaves.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use tokio::{
    io::Interest,
    net::tcp::OwnedReadHalf,
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};

/// Time in which a client is never sent away: whoever sends its request at once is answered, however many do not.
const GRACE: Duration = Duration::from_secs(1);
/// How often a place is looked for while all are taken.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Time for what can be answered at once after a client has ended its sending side: what takes longer has nobody who
/// waits for it.
const LEAVING: Duration = Duration::from_millis(10);
/// How often a client is looked at that has sent more than its request.
const LOOK_BEHIND: Duration = Duration::from_millis(100);

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    born: Instant,
    clients: Mutex<Vec<Weak<Client>>>,
}

/// A client and its place.
#[derive(Debug)]
pub(super) struct Client {
    born: Instant,
    /// Since when its next request, or the rest of it, is waited for.
    asks_since: Since,
    /// Since when it takes nothing of its answer.
    stalls_since: Since,
    /// Whether it was still sending when its request was answered.
    is_sending: AtomicBool,
    sent_away: Notify,
    _place: OwnedSemaphorePermit,
}

/// Milliseconds after the birth of all places, or never.
#[derive(Debug)]
struct Since(AtomicU64);

impl Since {
    const NEVER: u64 = u64::MAX;

    fn set(&self, born: Instant) {
        self.0.store(u64::try_from(born.elapsed().as_millis()).unwrap_or(Self::NEVER), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.0.store(Self::NEVER, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Places {
    /// So many.
    pub(super) fn new(most: usize) -> Self {
        let free = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { free, born: Instant::now(), clients: Mutex::default() }
    }

    /// Waits for a place and gives it to a client that has just connected.
    pub(super) async fn take(&self) -> Arc<Client> {
        let place = loop {
            let free = Arc::clone(&self.free);
            if let Ok(place) = Arc::clone(&free).try_acquire_owned() {
                break place;
            }
            self.send_one_away();
            if let Ok(Ok(place)) = timeout(LOOK_AGAIN, free.acquire_owned()).await {
                break place;
            }
        };
        let client = Arc::new(Client {
            born: self.born,
            asks_since: Since(AtomicU64::new(0)),
            stalls_since: Since(AtomicU64::new(Since::NEVER)),
            is_sending: AtomicBool::new(false),
            sent_away: Notify::new(),
            _place: place,
        });
        client.asks_since.set(self.born);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        client
    }

    /// Sends the client away that has kept the server waiting for the longest time, if any has for [`GRACE`].
    pub(super) fn send_one_away(&self) {
        let now = self.born.elapsed().as_millis();
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let waited_for = clients.iter().filter_map(Weak::upgrade);
        let longest = waited_for.min_by_key(|client| client.waited_for_since());
        let is_late = |client: &Arc<Client>| u128::from(client.waited_for_since()) + GRACE.as_millis() <= now;
        if let Some(client) = longest.filter(is_late) {
            client.sent_away.notify_one();
        }
    }
}

impl Client {
    fn waited_for_since(&self) -> u64 {
        self.asks_since.get().min(self.stalls_since.get())
    }

    /// Waits until it is sent away.
    pub(super) async fn sent_away(&self) {
        self.sent_away.notified().await;
    }

    /// It takes nothing of its answer.
    pub(super) fn stalls(&self) {
        self.stalls_since.set(self.born);
    }

    /// It takes something again.
    pub(super) fn goes_on(&self) {
        self.stalls_since.clear();
    }

    /// Whether it was still sending when its request was answered.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    fn is_answered(&self) -> bool {
        self.asks_since.get() == Since::NEVER
    }

    /// Waits until it has left during an answer: until it has ended its sending side, whatever it sent before that
    /// nobody has read.
    pub(super) async fn left(&self, reader: &OwnedReadHalf) {
        loop {
            let has_left = match reader.ready(Interest::READABLE).await {
                Ok(ready) => ready.is_read_closed(),
                // The reactor has ended.
                Err(_) => true,
            };
            sleep(if has_left { LEAVING } else { LOOK_BEHIND }).await;
            if has_left && self.is_answered() {
                return;
            }
        }
    }
}

/// The body of a request: its client is waited for until all of it was received or it is not wanted.
#[derive(Debug)]
pub(super) struct Received {
    body: Incoming,
    client: Arc<Client>,
    is_whole: bool,
}

impl Received {
    pub(super) fn new(body: Incoming, client: Arc<Client>) -> Self {
        let is_whole = body.is_end_stream();
        client.is_sending.store(false, Ordering::Relaxed);
        if is_whole {
            client.asks_since.clear();
        }
        Self { body, client, is_whole }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.is_whole = true;
            self.client.asks_since.clear();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.is_whole {
            self.client.is_sending.store(true, Ordering::Relaxed);
            self.client.asks_since.clear();
        }
    }
}

/// The body of an answer: when it ends, its client's next request is waited for.
#[derive(Debug)]
pub(super) struct Given {
    body: Body,
    client: Arc<Client>,
}

impl Given {
    pub(super) fn new(body: Body, client: Arc<Client>) -> Self {
        Self { body, client }
    }
}

impl HttpBody for Given {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.client.asks_since.set(self.client.born);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_sent_away(client: &Client) -> impl Future<Output = bool> {
        let waited = timeout(Duration::ZERO, client.sent_away());
        async { waited.await.is_ok() }
    }

    #[test]
    fn who_has_kept_it_waiting_the_longest_leaves_and_who_is_answered_stays() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(3);
            let [answered, early, late] = [places.take().await, places.take().await, places.take().await];
            answered.asks_since.clear();
            sleep(Duration::from_millis(5)).await;
            late.asks_since.set(places.born);
            places.send_one_away();
            assert!(!is_sent_away(&early).await, "nobody leaves so soon");
            sleep(GRACE + Duration::from_millis(50)).await;
            places.send_one_away();
            assert!(is_sent_away(&early).await && !is_sent_away(&late).await);
            assert!(!is_sent_away(&answered).await);

            // The next client gets the place of the one that leaves.
            let leaves = async {
                early.sent_away().await;
                drop(early);
            };
            let (next, ()) = tokio::join!(places.take(), leaves);
            // One whose answer nobody takes is waited for too.
            late.asks_since.clear();
            next.asks_since.clear();
            answered.stalls();
            sleep(GRACE + Duration::from_millis(50)).await;
            answered.goes_on();
            places.send_one_away();
            assert!(!is_sent_away(&answered).await, "it takes something again");
            answered.stalls();
            sleep(GRACE + Duration::from_millis(50)).await;
            places.send_one_away();
            assert!(
                is_sent_away(&answered).await && !is_sent_away(&late).await && !is_sent_away(&next).await
            );
        });
    }
}
