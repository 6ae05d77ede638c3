//! The state of one constrained answer.

use std::{fmt::Display, sync::Arc};

use llguidance::api::StopReason;

use super::{
    Constraint, GrammarError, Mask,
    compiling::{self, IsCancelled, Turn},
    error::one_line,
    limits::Effort,
    tokens::Source,
    watch::{self, End, Watch},
};

/// Where an answer is in its grammar. Clones are independent, and share what the lexer has found out.
///
/// A grammar that needs more than usual for a mask becomes [slow](Self::is_slow): it is parsed again from the answer's
/// beginning, and masks may take longer. They are the same.
#[derive(Clone)]
pub struct Matcher {
    /// In error where the answer is stuck.
    inner: llguidance::Matcher,
    source: Arc<Source>,
    is_cancelled: IsCancelled,
    watch: Watch,
    effort: Effort,
    /// Why the parser's last work was ended, if it was.
    ended: Option<End>,
    /// The mask of this state, if it is known.
    mask: Option<Mask>,
    accepted: Vec<u32>,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { effort, accepted, .. } = self;
        f.debug_struct("Matcher").field("effort", effort).field("accepted", accepted).finish_non_exhaustive()
    }
}

impl Matcher {
    /// For the thread that compiles.
    pub(super) fn new(source: Source, is_cancelled: IsCancelled) -> Result<Self, GrammarError> {
        let effort = Effort::Usual;
        let inner = llguidance::Matcher::new(Ok(source.parser(effort)?)).into_cancellable();
        let what = source.constraint().name();
        let watch = Watch::new(Arc::clone(&is_cancelled)).map_err(|fault| no_thread(what, &fault))?;
        let (source, accepted) = (Arc::new(source), Vec::new());
        let mut matcher =
            Self { inner, source, is_cancelled, watch, effort, ended: None, mask: None, accepted };
        // A grammar without any text shows here.
        matcher.mask()?;
        Ok(matcher)
    }

    /// What was compiled.
    pub fn constraint(&self) -> &Constraint {
        self.source.constraint()
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// The same of a request that may be cancelled: its work then ends within some milliseconds with
    /// [`GrammarError::Cancelled`].
    ///
    /// # Errors
    /// [`GrammarError::Thread`].
    pub fn unless(
        mut self,
        is_cancelled: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, GrammarError> {
        self.is_cancelled = Arc::new(is_cancelled);
        self.watch = Watch::new(Arc::clone(&self.is_cancelled))
            .map_err(|fault| no_thread(self.constraint().name(), &fault))?;
        Ok(self)
    }

    /// Tokens accepted.
    pub fn tokens(&self) -> usize {
        self.accepted.len()
    }

    /// Whether something took more than the usual limits allow: masks may then take 200 ms instead of 20, roughly.
    pub fn is_slow(&self) -> bool {
        self.effort == Effort::Slow
    }

    /// The tokens that may follow; at least one.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if none can be found within the limits of a slow grammar; so will every later call until
    /// a [rollback](Self::rollback).
    ///
    /// # Panics
    /// If the answer is [complete](Self::is_complete).
    pub fn mask(&mut self) -> Result<&Mask, GrammarError> {
        assert!(!self.is_complete(), "nothing follows a complete answer");
        if self.mask.is_none() {
            let allowed = self.attempt(llguidance::Matcher::compute_mask)?;
            self.mask = Some(Mask::new(allowed));
        }
        Ok(self.mask.as_ref().expect("it was computed"))
    }

    /// As [`mask`](Self::mask), to keep.
    ///
    /// # Errors
    /// As [`mask`](Self::mask).
    ///
    /// # Panics
    /// As [`mask`](Self::mask).
    pub fn take_mask(&mut self) -> Result<Mask, GrammarError> {
        self.mask()?;
        Ok(self.mask.take().expect("it was computed"))
    }

    /// Takes the next token, which the mask allows.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if it may not follow, or the limits are exceeded; so will every later call until a
    /// [rollback](Self::rollback).
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        self.mask = None;
        self.attempt(|inner| inner.consume_token(token))?;
        self.accepted.push(token);
        Ok(())
    }

    /// Takes back the last `tokens` tokens. An answer that was stuck goes on from there.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if the limits are exceeded.
    ///
    /// # Panics
    /// If so many were not accepted.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        let kept = self.accepted.len().checked_sub(tokens);
        let kept = kept.unwrap_or_else(|| panic!("{tokens} of {} tokens taken back", self.accepted.len()));
        self.mask = None;
        if self.inner.is_error() || self.watched(|inner| inner.rollback(tokens)).0.is_err() {
            let fault = self.inner.get_error().unwrap_or_default();
            self.accepted.truncate(kept);
            return self.begin_again(self.effort, &fault);
        }
        self.accepted.truncate(kept);
        Ok(())
    }

    /// Whether the answer may end here.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if the answer is already.
    pub fn may_end(&mut self) -> Result<bool, GrammarError> {
        Ok(self.is_complete() || self.attempt(llguidance::Matcher::is_accepting)?)
    }

    /// Whether the answer is whole and nothing may follow, or it was ended.
    pub fn is_complete(&self) -> bool {
        !self.inner.is_error() && self.inner.is_stopped()
    }

    /// Appends the tokens that must follow, as far as one encoding says. The first is certain: the mask allows no
    /// other.
    pub fn forced(&mut self, out: &mut Vec<u32>) {
        if self.is_complete() {
            return;
        }
        let forced = self.attempt(|inner| {
            let forced = inner.compute_ff_tokens();
            inner.get_error().map_or(Ok(forced), Err)
        });
        // A fault is found again by the next mask.
        out.extend(forced.unwrap_or_default());
    }

    /// How many of `tokens`, one after the other, the grammar could take next. Where text is forced it also takes
    /// other encodings of that than the mask allows.
    pub fn fitting(&mut self, tokens: &[u32]) -> usize {
        // A fault is found again by the next mask.
        if self.is_complete() { 0 } else { self.attempt(|inner| inner.validate_tokens(tokens)).unwrap_or(0) }
    }

    /// Does something with the parser. If it fails, it is done once more by a new parser, which may take longer and
    /// knows nothing: a fault then depends on the accepted tokens alone.
    fn attempt<T, E: Display>(
        &mut self,
        work: impl Fn(&mut llguidance::Matcher) -> Result<T, E>,
    ) -> Result<T, GrammarError> {
        if let Some(fault) = self.inner.get_error() {
            // Work whose faults nobody is told of was ended, that of forced text or of drafted tokens.
            let ended = self.ended.filter(|_| self.inner.is_cancelled());
            return Err(ended.map_or_else(|| self.stuck(&fault), |end| self.ended_by(end)));
        }
        let fault = match self.watched(&work) {
            (_, Some(end)) => return Err(self.ended_by(end)),
            (Ok(done), None) => return Ok(done),
            (Err(fault), None) => fault.to_string(),
        };
        if one_line(&fault) == StopReason::NoExtensionBias.to_string() {
            // No limit, but a vocabulary without the next text.
            return Err(self.stuck(""));
        }
        self.begin_again(Effort::Slow, &fault)?;
        let done = match self.watched(&work) {
            (_, Some(end)) => return Err(self.ended_by(end)),
            (Ok(done), None) => done,
            (Err(fault), None) => return Err(self.stuck(&fault.to_string())),
        };
        self.effort = Effort::Slow;
        Ok(done)
    }

    /// Does something with the parser under watch.
    fn watched<T>(&mut self, work: impl Fn(&mut llguidance::Matcher) -> T) -> (T, Option<End>) {
        let handle = self.inner.cancellation_handle().expect("it was made cancellable");
        let Self { inner, watch, .. } = self;
        let (done, end) = watch.over(handle, || work(inner));
        self.ended = end;
        (done, end)
    }

    fn ended_by(&self, end: End) -> GrammarError {
        match end {
            End::Late => self.stuck(&format!("that takes longer than {} s", watch::MOST_TIME.as_secs())),
            End::Cancelled => GrammarError::Cancelled { what: self.constraint().name() },
        }
    }

    /// Parses the accepted tokens by a new parser; the `fault` of the old one is told if that cannot be done.
    fn begin_again(&mut self, effort: Effort, fault: &str) -> Result<(), GrammarError> {
        self.mask = None;
        let source = Arc::clone(&self.source);
        let what = self.constraint().name();
        let made = compiling::run(what, Turn::Now, &self.is_cancelled, move || source.parser(effort));
        let parser = match made {
            Ok(parser) => parser,
            Err(cancelled @ GrammarError::Cancelled { .. }) => return Err(cancelled),
            Err(_) => return Err(self.stuck(fault)),
        };
        self.inner = llguidance::Matcher::new(Ok(parser)).into_cancellable();
        let accepted = std::mem::take(&mut self.accepted);
        let (parsed, end) = self.watched(|inner| inner.consume_tokens(&accepted));
        self.accepted = accepted;
        match end {
            Some(end) => Err(self.ended_by(end)),
            None => parsed.map_err(|fault| self.stuck(&fault.to_string())),
        }
    }

    fn stuck(&self, fault: &str) -> GrammarError {
        let fault = one_line(fault);
        let fault = if fault.is_empty() { "no token may follow".to_owned() } else { fault };
        GrammarError::Stuck { tokens: self.accepted.len(), fault }
    }
}

fn no_thread(what: &'static str, fault: &std::io::Error) -> GrammarError {
    GrammarError::Thread { what, stack_bytes: compiling::STACK_BYTES, fault: fault.to_string() }
}
