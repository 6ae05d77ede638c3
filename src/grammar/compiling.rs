//! Compiling on threads of its own: with a stack that is stated, as many at once as may be, and no longer than anyone
//! waits.
//!
//! The parser recurses over what it compiles and cannot be interrupted. Counts bound how deep and how long
//! (`counts.rs`); here are the stack they are measured against and the backstop: whoever waits goes after [`MOST_TIME`]
//! or when its request is cancelled. A thread that is left so ends by itself, and keeps its place among
//! [`MOST_THREADS`] until it has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use super::GrammarError;

/// Stack of a thread that compiles: address space, of which only what is used becomes memory. The most objects that a
/// schema may have, one within the other, take half of it.
pub(super) const STACK_BYTES: usize = 256 << 20;
/// Longest time that anyone waits for a constraint: several times what the counts allow on a slow machine, and longer
/// than a first mask may take.
pub(super) const MOST_TIME: Duration = Duration::from_secs(30);
/// Threads that compile at once, abandoned ones included: so many that some slow constraints do not shut out a quick
/// one, and so few that decoding keeps a share of the processor.
pub(super) const MOST_THREADS: usize = 4;
/// How often a waiting thread looks whether its request was cancelled.
const LOOK: Duration = Duration::from_millis(10);

/// Asked whether the request of a constraint was cancelled.
pub(super) type IsCancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// Threads that compile now.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// When a constraint is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// When there is a place.
    Waits,
    /// At once: an answer that was begun needs it, and there is one such.
    Now,
}

/// A place among the threads that compile, given back when dropped.
struct Place;

impl Place {
    fn take(turn: Turn) -> Option<Self> {
        let take = |running| (turn == Turn::Now || running < MOST_THREADS).then_some(running + 1);
        RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs `work`, which compiles a constraint of the kind `what`, on a thread with the stated stack, and waits for it.
///
/// # Errors
/// What `work` gives; [`GrammarError::TooSlow`], [`GrammarError::Busy`], [`GrammarError::Cancelled`] and
/// [`GrammarError::Thread`].
pub(super) fn run<T: Send + 'static>(
    what: &'static str,
    turn: Turn,
    is_cancelled: &IsCancelled,
    work: impl FnOnce() -> Result<T, GrammarError> + Send + 'static,
) -> Result<T, GrammarError> {
    let began = now();
    let place = loop {
        if is_cancelled() {
            return Err(GrammarError::Cancelled { what });
        }
        if let Some(place) = Place::take(turn) {
            break place;
        }
        if began.elapsed() > MOST_TIME {
            return Err(GrammarError::Busy { what, most: MOST_THREADS });
        }
        thread::sleep(LOOK);
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    let builder = thread::Builder::new().name("yggc-grammar".to_owned()).stack_size(STACK_BYTES);
    let spawned = builder.spawn(move || {
        let done = work();
        // Given back first: whoever has the result may ask for the next.
        drop(place);
        // Whoever waited may have left.
        let _ = sender.send(done);
    });
    if let Err(fault) = spawned {
        return Err(GrammarError::Thread { what, stack_bytes: STACK_BYTES, fault: fault.to_string() });
    }
    let began = now();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Disconnected) => {
                let fault = "the parser failed".to_owned();
                return Err(GrammarError::Refused { what, fault });
            }
            Err(RecvTimeoutError::Timeout) if is_cancelled() => return Err(GrammarError::Cancelled { what }),
            Err(RecvTimeoutError::Timeout) if began.elapsed() > MOST_TIME => {
                return Err(GrammarError::TooSlow { what, most_s: MOST_TIME.as_secs() });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The time, for limits that end hopeless work.
#[expect(
    clippy::disallowed_methods,
    reason = "a backstop for the limits by counts: it decides nothing of a mask"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}
