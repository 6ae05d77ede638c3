//! A bounded queue of requests that wait for the decoder.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc::UnboundedSender, oneshot},
    time::Instant,
};
use yggc::{
    engine::{self, CancelHandle, Choices, ChooseRequest, Event, Request, StepTree, TokenLogProbs},
    prefix::Owner,
};

use super::spans::Span;

/// What the decoder sends for a request: events, or an error.
pub(super) type Delivery = Result<Sent, engine::Error>;

/// An event of one of a request's answers; those of one come before those of the next.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) event: Event,
    /// The step whose first token the event is, where that was asked for.
    pub(super) step: Option<StepTree>,
    /// What was read of the prompt, where that was asked for: with the first event of its first answer.
    pub(super) read: Option<ReadPrompt>,
}

/// How probable the tokens of a prompt are.
#[derive(Debug)]
pub(super) struct ReadPrompt {
    pub(super) ids: Vec<u32>,
    /// Of every token but the first.
    pub(super) log_probs: Vec<TokenLogProbs>,
}

/// A request on its way to the decoder.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    /// Whose it is.
    pub(super) owner: Owner,
    /// Ends its work.
    pub(super) cancel: CancelHandle,
    pub(super) arrived: Instant,
}

/// What the decoder is asked for, with the channel of what it sends.
#[derive(Debug)]
pub(super) enum Work {
    Answers(Answers),
    Choice(Box<Choice>),
    Text(TextWork),
}

/// Something to be done with the text of the planned engine's cache, which clients call a slot.
#[derive(Debug)]
pub(super) struct TextWork {
    pub(super) act: TextAct,
    /// Gets nothing of a request that was cancelled.
    pub(super) done: oneshot::Sender<Result<Option<CachedText>, engine::Error>>,
}

/// What is done with the text.
#[derive(Debug)]
pub(super) enum TextAct {
    /// It is told.
    Tell,
    /// Another one is read.
    Read(Vec<u32>),
    /// It is forgotten.
    Forget,
}

/// The text of a cache, or the one that it had.
#[derive(Debug, PartialEq)]
pub(super) struct CachedText {
    pub(super) tokens: Vec<u32>,
    /// Tokens that were not read again.
    pub(super) kept: usize,
}

/// Answers in sequence.
#[derive(Debug)]
pub(super) struct Answers {
    /// One for each answer.
    pub(super) requests: Vec<Request>,
    /// Answers to each prompt; those to one prompt are neighbours.
    pub(super) each: usize,
    /// How many of the most probable tokens are told with each token of a prompt, where prompts are read too.
    pub(super) reads: Option<usize>,
    /// Whether trees of steps are sent.
    pub(super) reports_steps: bool,
    /// The drafter: `plan`, `none` or a drafter's name.
    pub(super) drafter: String,
    pub(super) span: Span,
    /// Channel of its events; holds at most one per token of the answers.
    pub(super) events: UnboundedSender<Delivery>,
}

/// A question with given answers.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) request: ChooseRequest,
    /// Gets no choices of a request that was cancelled.
    pub(super) chosen: oneshot::Sender<Result<Option<Choices>, engine::Error>>,
}

/// Why a request is not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The queue is full.
    Full,
    /// The queue is closed.
    Closed,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Cancels the request that is being answered.
    answered: Option<CancelHandle>,
    is_closed: bool,
}

/// The queue. Both sides hold its lock only briefly.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    most: usize,
    abandoned: Notify,
    closing: Notify,
}

/// What came of waiting for a request.
#[derive(Debug)]
pub(super) enum Next {
    Job(Box<Job>),
    /// None came in time.
    Nothing,
    /// The queue is closed and empty.
    Closed,
}

impl Queue {
    /// At most `most` requests wait while one is answered.
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Mutex::default(),
            ready: Condvar::new(),
            most,
            abandoned: Notify::new(),
            closing: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave a half-made change under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a request. Cancelled requests do not count.
    ///
    /// # Errors
    /// [`Refusal`] if the queue is full or closed.
    pub(super) fn push(&self, job: Job) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.is_closed {
            return Err(Refusal::Closed);
        }
        if self.fills(&mut state) {
            return Err(Refusal::Full);
        }
        state.waiting.push_back(job);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Whether a request would be refused because as many wait as may.
    pub(super) fn is_full(&self) -> bool {
        self.fills(&mut self.state())
    }

    /// The same, after cancelled requests have left.
    fn fills(&self, state: &mut State) -> bool {
        state.waiting.retain(|job| !job.cancel.is_cancelled());
        state.waiting.len() + usize::from(state.answered.is_some()) > self.most
    }

    /// Waits for the next request that is not cancelled; `None` when the queue is closed and empty. Marks the request
    /// before it as finished.
    pub(super) fn next(&self) -> Option<Job> {
        loop {
            match self.next_within(Duration::MAX) {
                Next::Job(job) => return Some(*job),
                Next::Closed => return None,
                Next::Nothing => {}
            }
        }
    }

    /// The same, for as long as `most`.
    pub(super) fn next_within(&self, most: Duration) -> Next {
        let mut state = self.state();
        state.answered = None;
        loop {
            while let Some(job) = state.waiting.pop_front() {
                if !job.cancel.is_cancelled() {
                    state.answered = Some(job.cancel.clone());
                    return Next::Job(Box::new(job));
                }
            }
            if state.is_closed {
                return Next::Closed;
            }
            let (next, timeout) =
                self.ready.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.waiting.is_empty() && !state.is_closed {
                return Next::Nothing;
            }
        }
    }

    /// Numbers of requests that wait and that are being answered.
    pub(super) fn lengths(&self) -> (usize, usize) {
        let state = self.state();
        let waiting = state.waiting.iter().filter(|job| !job.cancel.is_cancelled()).count();
        (waiting, usize::from(state.answered.is_some()))
    }

    /// Refuses new requests. Queued ones are still answered.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.ready.notify_all();
        self.closing.notify_waiters();
    }

    /// Closes it and cancels everything in it, because the decoder is gone.
    pub(super) fn abandon(&self) {
        self.close();
        self.cancel_all();
        self.abandoned.notify_one();
    }

    /// Waits until the decoder is gone.
    pub(super) async fn abandoned(&self) {
        self.abandoned.notified().await;
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        let closing = self.closing.notified();
        if !self.is_closed() {
            closing.await;
        }
    }

    /// Whether it was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Cancels all requests, queued and running.
    pub(super) fn cancel_all(&self) {
        let mut state = self.state();
        state.answered.iter().for_each(CancelHandle::cancel);
        for job in state.waiting.drain(..) {
            job.cancel.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;
    use yggc::engine::Prompt;

    use super::*;

    fn job(token: u32) -> Job {
        let request = Request::new(Prompt::Tokens(vec![token]));
        let cancel = request.cancel.clone();
        let answers = Answers {
            requests: vec![request],
            each: 1,
            reads: None,
            reports_steps: false,
            drafter: "plan".to_owned(),
            span: Span::default(),
            events: unbounded_channel().0,
        };
        Job { work: Work::Answers(answers), owner: Owner::default(), cancel, arrived: Instant::now() }
    }

    fn token(job: &Job) -> u32 {
        let Work::Answers(Answers { requests, .. }) = &job.work else { panic!("answers are asked for") };
        let Prompt::Tokens(ids) = &requests[0].prompt else { panic!("tokens were given") };
        ids[0]
    }

    #[test]
    fn as_many_wait_as_may_and_those_that_leave_make_room() {
        let queue = Queue::new(2);
        let first = job(1);
        queue.push(first).unwrap();
        assert_eq!(token(&queue.next().unwrap()), 1);
        let leaving = job(2);
        let cancel = leaving.cancel.clone();
        queue.push(leaving).unwrap();
        queue.push(job(3)).unwrap();
        assert_eq!((queue.push(job(4)), queue.lengths()), (Err(Refusal::Full), (2, 1)));
        assert!(queue.is_full());
        cancel.cancel();
        assert!(!queue.is_full());
        assert_eq!((queue.lengths(), queue.push(job(5))), ((1, 1), Ok(())));
        assert_eq!([3, 5], [0, 1].map(|_| token(&queue.next().unwrap())));
        queue.push(job(6)).unwrap();
        queue.close();
        assert_eq!(queue.push(job(7)), Err(Refusal::Closed));
        assert_eq!(token(&queue.next().unwrap()), 6);
        assert!(queue.next().is_none() && queue.lengths() == (0, 0));
    }

    #[test]
    fn a_queue_of_none_takes_what_can_be_begun_at_once() {
        let queue = Queue::new(0);
        assert_eq!((queue.push(job(1)), queue.push(job(2))), (Ok(()), Err(Refusal::Full)));
        queue.next().unwrap();
        assert_eq!(queue.push(job(3)), Err(Refusal::Full));
    }

    #[test]
    fn all_ends_when_it_is_told_to() {
        let queue = Queue::new(4);
        let jobs = [job(1), job(2)];
        let handles = [0, 1].map(|i: usize| jobs[i].cancel.clone());
        jobs.into_iter().for_each(|job| queue.push(job).unwrap());
        queue.next().unwrap();
        queue.cancel_all();
        assert!(handles.iter().all(CancelHandle::is_cancelled));
        assert_eq!(queue.lengths().0, 0);
    }
}
