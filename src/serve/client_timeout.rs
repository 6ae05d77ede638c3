//! A connection that is closed when its client stops reading for too long.
//!
//! A request's deadline is only checked when the next chunk can be written. Without this limit a client that reads nothing would hold its
//! connection forever.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// The connection.
#[derive(Debug)]
pub(super) struct TimedStream {
    stream: TcpStream,
    timeout: Duration,
    /// Runs while a write waits for the client; `None` while writes make progress.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    /// Lets each write wait for the client for at most `timeout`.
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> Self {
        Self { stream, timeout, stalled: None }
    }

    fn unless_stalled<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        let took_nothing = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing"));
        stalled.as_mut().poll(context).map(|()| took_nothing())
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_stalled(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.unless_stalled(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flushing a socket does nothing, so it is no sign that the client reads.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io::Read, net, sync::mpsc, thread};

    use super::*;

    /// More bytes than socket buffers hold.
    const MUCH: usize = 64 << 20;

    /// Writes many bytes with the given `timeout` to a client that reads at once, or only after the writer ended; returns the bytes written
    /// before an error.
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
            let mut stream = TimedStream::new(TcpStream::from_std(server).unwrap(), timeout);
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
