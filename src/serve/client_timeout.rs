//! A connection that is closed when its client reads too slowly, and that lets a client finish sending what nobody
//! reads.
//!
//! A request's deadline is only checked when the next chunk can be written. Without [`Patience`] a client that reads
//! nothing, or a byte now and then, would hold its connection for as long as it likes.
//!
//! Closing a socket with unread bytes resets it, and many clients then report a broken connection instead of the
//! refusal that was sent. So where a body is left unread, the bytes that are still on their way are read and dropped
//! before the socket is closed.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{Instant, Sleep, sleep, sleep_until},
};

use super::places::Client;

/// Least average rate, in bytes a second, of a client that reads more slowly than it is written to: slower than any
/// modem.
const LEAST_RATE: f64 = 1024.0;
/// Longest time, and most bytes, of an unread rest that is received after the last answer: bodies of the usual sizes,
/// at usual rates.
const REST_TIMEOUT: Duration = Duration::from_secs(2);
const MOST_REST: usize = 32 << 20;

/// The connection.
#[derive(Debug)]
pub(super) struct TimedStream {
    reader: Arc<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    client: Arc<Client>,
    patience: Patience,
    /// Runs while a write waits for the client; `None` while writes make progress.
    stalled: Option<Stall>,
    /// What the client still sends after the last answer.
    rest: Option<Rest>,
}

#[derive(Debug)]
struct Stall {
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

#[derive(Debug)]
struct Rest {
    timer: Pin<Box<Sleep>>,
    bytes: usize,
}

/// How much longer writes may wait for the client: waiting consumes it, and what the client takes refills it at
/// [`LEAST_RATE`].
#[derive(Debug)]
struct Patience {
    left: Duration,
    most: Duration,
}

impl Patience {
    fn new(most: Duration) -> Self {
        Self { left: most, most }
    }

    fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    fn wrote(&mut self, bytes: usize) {
        let earned = Duration::from_secs_f64(bytes as f64 / LEAST_RATE);
        self.left = self.left.saturating_add(earned).min(self.most);
    }
}

impl TimedStream {
    /// Lets writes wait for the client for at most `timeout`, and for as much longer as it takes [`LEAST_RATE`] bytes a
    /// second.
    pub(super) fn new(stream: TcpStream, timeout: Duration, client: Arc<Client>) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: Arc::new(reader),
            writer,
            client,
            patience: Patience::new(timeout),
            stalled: None,
            rest: None,
        }
    }

    /// The half that is read, by which another task learns that the client has left.
    pub(super) fn reader(&self) -> Arc<OwnedReadHalf> {
        Arc::clone(&self.reader)
    }

    fn unless_stalled(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = polled {
            if let Some(stall) = self.stalled.take() {
                self.patience.waited(stall.since.elapsed());
                self.client.goes_on();
            }
            self.patience.wrote(*written.as_ref().unwrap_or(&0));
            return Poll::Ready(written);
        }
        let Self { patience, stalled, client, .. } = self;
        let stall = stalled.get_or_insert_with(|| {
            client.stalls();
            let since = Instant::now();
            Stall { since, timer: Box::pin(sleep_until(since + patience.left)) }
        });
        let took_nothing = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"));
        stall.timer.as_mut().poll(context).map(|()| took_nothing())
    }

    /// Reads and drops what the client still sends, until its end or the limits; at once if nothing was left unread.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut dropped = [0; 1 << 14];
        if self.rest.is_none() {
            let bytes = self.reader.try_read(&mut dropped).unwrap_or(0);
            if bytes == 0 && !self.client.is_sending() {
                return Poll::Ready(());
            }
            self.rest = Some(Rest { timer: Box::pin(sleep(REST_TIMEOUT)), bytes });
        }
        let Self { reader, rest: Some(rest), .. } = self else { unreachable!("it was set") };
        while rest.bytes < MOST_REST {
            let mut buffer = ReadBuf::new(&mut dropped);
            match poll_read(reader, context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => rest.bytes += buffer.filled().len(),
                // Its end, or a reset: nothing more comes.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return rest.timer.as_mut().poll(context),
            }
        }
        Poll::Ready(())
    }
}

fn poll_read(
    reader: &OwnedReadHalf,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(reader.as_ref().poll_read_ready(context))?;
        match reader.try_read(buffer.initialize_unfilled()) {
            Ok(bytes) => {
                buffer.advance(bytes);
                return Poll::Ready(Ok(()));
            }
            // Readiness was out of date; it is cleared now.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        poll_read(&self.reader, context, buffer)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.writer).poll_write(context, bytes);
        self.unless_stalled(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.writer).poll_write_vectored(context, parts);
        self.unless_stalled(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.writer.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flushing a socket does nothing, so it is no sign that the client reads.
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.rest.is_none() {
            ready!(Pin::new(&mut self.writer).poll_shutdown(context))?;
        }
        self.poll_rest(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io::Read, net, sync::mpsc, thread};

    use super::*;
    use crate::serve::places::Places;

    #[test]
    fn a_byte_now_and_then_does_not_keep_a_connection_for_ever() {
        let minute = Duration::from_secs(60);
        let waits = |bytes: usize, each: Duration| {
            let mut patience = Patience::new(minute);
            let mut waited = Duration::ZERO;
            while patience.left > each && waited < 100 * minute {
                patience.waited(each);
                patience.wrote(bytes);
                waited += each;
            }
            waited
        };
        assert!(waits(1, Duration::from_secs(1)) < 2 * minute);
        assert!(waits(500, Duration::from_secs(1)) < 3 * minute, "half of the least rate");
        assert_eq!(waits(2 << 10, Duration::from_secs(1)), 100 * minute, "twice the least rate");
        // What was read quickly before is no reason to wait longer.
        let mut patience = Patience::new(minute);
        patience.wrote(1 << 30);
        assert_eq!(patience.left, minute);
    }

    /// More bytes than socket buffers hold.
    const MUCH: usize = 64 << 20;

    /// Writes many bytes with the given `timeout` to a client that reads at once, or only after the writer ended;
    /// returns the bytes written before an error.
    fn written(reads_at_once: bool, timeout: Duration) -> Result<(), (usize, io::ErrorKind)> {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let (sender, receiver) = mpsc::channel();
        let reader = thread::spawn(move || {
            receiver.recv().unwrap();
            // Until the end, which is an error if the server closed the connection.
            let mut taken = [0; 1 << 16];
            while client.read(&mut taken).is_ok_and(|count| count > 0) {}
        });
        if reads_at_once {
            sender.send(()).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(async {
            let client = Places::new(1).take().await;
            let mut stream = TimedStream::new(TcpStream::from_std(server).unwrap(), timeout, client);
            let (mut out, piece) = (0, vec![0; 1 << 16]);
            while out < MUCH {
                let write = poll_fn(|context| Pin::new(&mut stream).poll_write(context, &piece));
                out += write.await.map_err(|error| (out, error.kind()))?;
            }
            Ok(())
        });
        if !reads_at_once {
            sender.send(()).unwrap();
        }
        reader.join().unwrap();
        outcome
    }

    #[test]
    fn a_client_that_reads_nothing_is_given_up_and_one_that_reads_is_not() {
        let (out, kind) = written(false, Duration::from_millis(50)).unwrap_err();
        assert!(kind == io::ErrorKind::TimedOut && out < MUCH, "{out} bytes, {kind}");
        assert_eq!(written(true, Duration::from_secs(600)), Ok(()));
    }
}
