//! A running request: an iterator of events that steps the decoder when it needs tokens.

use crate::{
    grammar::GrammarError,
    speculate::{Limits, SpeculateError},
    text::{Detokenizer, Heard, StopStrings},
};

use super::{Answer, CancelHandle, Engine, Error, Event, FinishReason, Report, StepTree, TokenLogProbs};

/// One request in progress: an iterator of events. It borrows the engine, so there is one at a time; dropping it ends
/// the request, whose text is then [kept](super::Options::prefixes).
///
/// A call of `next` costs nothing while tokens of the last step are left, and else one step: a draft, a forward of the
/// verifier and a walk. Each event has a `String` of its own.
///
/// ```
/// use yggc::engine::{Engine, Event, Options, Prompt, Request};
/// # let folder = tempfile::tempdir()?;
/// # let model = folder.path().join("tiny.gguf");
/// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
/// # let mut engine = Engine::open(&Options::new(&model))?;
/// let request = Request { max_tokens: 5, ..Request::new(Prompt::Raw("ab".to_owned())) };
/// let (mut tokens, mut text) = (0, String::new());
/// for event in engine.generate(&request)? {
///     match event? {
///         Event::Token { text: piece, .. } => (tokens, text) = (tokens + 1, text + &piece),
///         Event::Finished { report, text: rest, .. } => {
///             text.push_str(&rest);
///             assert_eq!(report.tokens, tokens);
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Generation<'e> {
    engine: &'e mut Engine,
    detokenizer: Detokenizer,
    stops: StopStrings,
    cancel: CancelHandle,
    prompt_len: usize,
    max_tokens: usize,
    keeps: bool,
    /// Tokens handed out.
    yielded: usize,
    /// Tokens handed out before the last step; its tokens, or the prefill's first, are after them.
    before_step: usize,
    /// The stop string that was found.
    stopped: Option<usize>,
    finished: bool,
}

/// What a generation knows of its request.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) stops: Vec<String>,
    pub(super) cancel: CancelHandle,
    pub(super) prompt_len: usize,
    pub(super) max_tokens: usize,
    /// Whether its text is kept for later requests.
    pub(super) keeps: bool,
}

impl<'e> Generation<'e> {
    pub(super) fn new(engine: &'e mut Engine, terms: Terms) -> Self {
        let detokenizer = engine.loaded().tokenizer().continuation();
        let Terms { stops, cancel, prompt_len, max_tokens, keeps } = terms;
        Self {
            engine,
            detokenizer,
            stops: StopStrings::new(stops),
            cancel,
            prompt_len,
            max_tokens,
            keeps,
            yielded: 0,
            before_step: 0,
            stopped: None,
            finished: false,
        }
    }

    /// Token ids of the prompt.
    pub fn prompt_token_ids(&self) -> &[u32] {
        &self.engine.decoder.history()[..self.prompt_len]
    }

    /// Token ids handed out so far.
    pub fn token_ids(&self) -> &[u32] {
        &self.engine.decoder.history()[self.prompt_len..self.prompt_len + self.yielded]
    }

    /// The numbers so far.
    pub fn report(&self) -> Report {
        let Engine { decoder, backgrounds, .. } = &*self.engine;
        Report::new(self.yielded, decoder, &backgrounds[decoder.band()])
    }

    /// The tree of the step whose first token was the last event; `None` after every other event, and after the
    /// prefill's token. It is copied from what the step left: a request whose caller does not ask costs nothing.
    ///
    /// ```
    /// # use yggc::engine::{Engine, Options, Sampling};
    /// # let folder = tempfile::tempdir()?;
    /// # let model = folder.path().join("tiny.gguf");
    /// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
    /// # let mut engine = Engine::open(&Options::new(&model))?;
    /// let mut generation = engine.generate_tokens(&[5, 6, 7], 4, Sampling::GREEDY)?;
    /// let mut steps = 0;
    /// while let Some(event) = generation.next() {
    ///     event?;
    ///     if let Some(step) = generation.step_tree() {
    ///         steps += 1;
    ///         // Opened without a plan, it drafts nothing: each step verifies its root and emits the verifier's token.
    ///         assert_eq!((step.nodes.len(), &step.emitted[..]), (1, &[None][..]));
    ///     }
    /// }
    /// assert_eq!(steps, generation.report().steps);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn step_tree(&self) -> Option<StepTree> {
        let is_first = !self.finished && self.before_step > 0 && self.yielded == self.before_step + 1;
        is_first.then(|| StepTree::of(&self.engine.decoder))
    }

    /// Runs to the end and gives the whole answer.
    ///
    /// # Errors
    /// As the events would.
    pub fn collect_answer(mut self) -> Result<Answer, Error> {
        let (mut text, mut token_log_probs) = (String::new(), Vec::new());
        let mut end = None;
        while let Some(event) = self.next_event()? {
            match event {
                Event::Token { id: _, text: piece, log_probs } => {
                    text.push_str(&piece);
                    token_log_probs.extend(log_probs);
                }
                Event::Finished { reason, text: piece, report } => {
                    text.push_str(&piece);
                    end = Some((reason, *report));
                }
            }
        }
        let (finish_reason, report) = end.expect("every generation finishes");
        Ok(Answer {
            prompt_token_ids: self.prompt_token_ids().to_vec(),
            token_ids: self.token_ids().to_vec(),
            text,
            log_probs: token_log_probs,
            finish_reason,
            report,
        })
    }

    fn finish_reason(&self) -> Option<FinishReason> {
        let ends = self.engine.loaded().end_ids();
        if let Some(index) = self.stopped {
            Some(FinishReason::StopString { index })
        } else if self.token_ids().last().is_some_and(|token| ends.contains(token))
            || self.engine.decoder.is_complete() && self.has_yielded_all()
        {
            Some(FinishReason::Stop)
        } else if self.yielded == self.max_tokens {
            Some(FinishReason::Length)
        } else if self.cancel.is_cancelled() {
            Some(FinishReason::Cancelled)
        } else {
            None
        }
    }

    /// Whether no token of the last step is left.
    fn has_yielded_all(&self) -> bool {
        self.engine.decoder.history().len() == self.prompt_len + self.yielded
    }

    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        if self.finished {
            return Ok(None);
        }
        if let Some(reason) = self.finish_reason() {
            self.finished = true;
            return Ok(Some(self.finish(reason)));
        }
        if self.has_yielded_all() {
            let Engine { loaded, decoder, .. } = &mut *self.engine;
            let limits = Limits { tokens: self.max_tokens - self.yielded, ends: loaded.end_ids() };
            match decoder.step(limits, None) {
                // Cancelling also ends the work of the request's grammar.
                Err(SpeculateError::Grammar(GrammarError::Cancelled { .. })) => {
                    self.finished = true;
                    return Ok(Some(self.finish(FinishReason::Cancelled)));
                }
                stepped => {
                    stepped?;
                }
            }
            self.before_step = self.yielded;
        }
        let decoder = &self.engine.decoder;
        let id = decoder.history()[self.prompt_len + self.yielded];
        let log_probs = decoder.log_probs().of(self.yielded - self.before_step).map(TokenLogProbs::new);
        self.yielded += 1;
        let text = match self.stops.push(self.detokenizer.push(id)) {
            Heard::Text(text) => text.to_owned(),
            Heard::Stopped(text, index) => {
                self.stopped = Some(index);
                text.to_owned()
            }
        };
        Ok(Some(Event::Token { id, text, log_probs }))
    }

    /// The last event. What the text has beyond the tokens handed out, of a path that a stop string or a cancellation
    /// cut, is dropped with its keys and values.
    fn finish(&mut self, reason: FinishReason) -> Event {
        self.engine.decoder.cut(self.prompt_len + self.yielded);
        let mut text = String::new();
        if self.stopped.is_none() {
            let rest = match reason {
                FinishReason::Stop | FinishReason::StopString { index: _ } => self.detokenizer.finish(),
                // The bytes of a character that was cut in the middle are no text.
                FinishReason::Length | FinishReason::Cancelled => "",
            };
            match self.stops.push(rest) {
                Heard::Text(piece) => {
                    text.push_str(piece);
                    text.push_str(self.stops.finish());
                }
                Heard::Stopped(piece, _) => text.push_str(piece),
            }
        }
        Event::Finished { reason, text, report: Box::new(self.report()) }
    }
}

/// Its text is kept when it is dropped, not when it is finished: nobody waits for its end then.
impl Drop for Generation<'_> {
    fn drop(&mut self) {
        if self.keeps && !std::thread::panicking() {
            self.engine.keep_prefix();
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.next_event();
        if event.is_err() {
            self.finished = true;
        }
        event.transpose()
    }
}
