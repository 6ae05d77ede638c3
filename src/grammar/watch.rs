//! Ends the parser's work at one place of an answer that takes too long, or whose request was cancelled.
//!
//! Masks are bounded by counts (`limits.rs`), but the parser does not count all it does: text that is forced without
//! end, such as that of `/a+/ /a+/`, is followed for ever. One thread looks at the answers that exist and cancels work
//! of theirs beyond its limits. It ends an answer and never changes one.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use llguidance::CancellationHandle;

use super::compiling::{IsCancelled, now};

/// Longest time of one piece of work: twenty times what the counts of a slow grammar allow, so that it ends what has no
/// end and nothing else. A build that is not optimised, with others on the same processors, takes some seconds for what
/// the counts allow.
pub(super) const MOST_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 4 });
/// How often the work of answers is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Why work was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It took longer than [`MOST_TIME`].
    Late,
    /// The request was cancelled.
    Cancelled,
}

/// The watch over one answer. Its clones are those of the same answer, of which one works at a time.
#[derive(Clone)]
pub(super) struct Watch(Arc<Mutex<Watched>>);

struct Watched {
    work: Option<(Instant, CancellationHandle)>,
    is_cancelled: IsCancelled,
    end: Option<End>,
}

impl Watch {
    /// Over an answer whose request may be cancelled.
    ///
    /// # Errors
    /// What the system says if it gives no thread that looks.
    pub(super) fn new(is_cancelled: IsCancelled) -> io::Result<Self> {
        let watched = Arc::new(Mutex::new(Watched { work: None, is_cancelled, end: None }));
        let mut answers = locked(&ANSWERS);
        if !answers.has_thread {
            thread::Builder::new().name("yggc-watch".to_owned()).spawn(look)?;
            answers.has_thread = true;
        }
        answers.list.push(Arc::downgrade(&watched));
        BEGUN.notify_one();
        Ok(Self(watched))
    }

    /// Does work that the handle cancels, and says why it was ended if it was.
    pub(super) fn over<T>(&self, handle: CancellationHandle, work: impl FnOnce() -> T) -> (T, Option<End>) {
        {
            let mut watched = locked(&self.0);
            watched.end = None;
            watched.work = Some((now(), handle));
        }
        let done = work();
        let mut watched = locked(&self.0);
        watched.work = None;
        (done, watched.end.take())
    }
}

/// Locks what no thread leaves half written.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers that exist, and whether a thread looks at them.
struct Answers {
    list: Vec<Weak<Mutex<Watched>>>,
    has_thread: bool,
}

static ANSWERS: Mutex<Answers> = Mutex::new(Answers { list: Vec::new(), has_thread: false });
/// Told when there is an answer again.
static BEGUN: Condvar = Condvar::new();

/// Looks at all answers for ever, and sleeps while there is none.
fn look() {
    let mut answers = locked(&ANSWERS);
    loop {
        answers.list.retain(|answer| {
            let watched = answer.upgrade();
            if let Some(watched) = &watched {
                end_if_due(&mut locked(watched));
            }
            watched.is_some()
        });
        answers = if answers.list.is_empty() {
            BEGUN.wait(answers).unwrap_or_else(PoisonError::into_inner)
        } else {
            BEGUN.wait_timeout(answers, LOOK).unwrap_or_else(PoisonError::into_inner).0
        };
    }
}

fn end_if_due(watched: &mut Watched) {
    let Some((began, handle)) = &watched.work else { return };
    let end = if (watched.is_cancelled)() {
        End::Cancelled
    } else if began.elapsed() > MOST_TIME {
        End::Late
    } else {
        return;
    };
    handle.cancel();
    watched.end = Some(end);
}
