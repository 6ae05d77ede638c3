//! A running request: an iterator of events that steps the decoder when it needs tokens.

use crate::{speculate::Limits, text::Detokenizer};

use super::{Answer, Engine, Error, Event, FinishReason, Report};

/// One request in progress: an iterator of events. It borrows the engine, so there is one at a time; dropping it ends the
/// request.
///
/// ```
/// use yggc::engine::{Engine, Event, Options, Prompt, Request, Sampling};
/// # let folder = tempfile::tempdir()?;
/// # let model = folder.path().join("tiny.gguf");
/// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
/// # let mut engine = Engine::open(&Options::new(&model))?;
/// let prompt = Prompt::Raw("ab".to_owned());
/// let request = Request { prompt, max_tokens: 5, sampling: Sampling::GREEDY };
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
    prompt_len: usize,
    max_tokens: usize,
    /// Tokens handed out.
    yielded: usize,
    finished: bool,
}

impl<'e> Generation<'e> {
    pub(super) fn new(engine: &'e mut Engine, prompt_len: usize, max_tokens: usize) -> Self {
        let detokenizer = engine.loaded().tokenizer().detokenizer();
        Self { engine, detokenizer, prompt_len, max_tokens, yielded: 0, finished: false }
    }

    /// Token ids of the prompt.
    pub fn prompt_token_ids(&self) -> &[u32] {
        &self.engine.decoder.history()[..self.prompt_len]
    }

    /// The numbers so far.
    pub fn report(&self) -> Report {
        let Engine { decoder, backgrounds, .. } = &*self.engine;
        Report::new(self.yielded, decoder.stats(), &backgrounds[decoder.way()])
    }

    /// Runs to the end and gives the whole answer.
    ///
    /// # Errors
    /// As the events would.
    pub fn collect_answer(mut self) -> Result<Answer, Error> {
        let mut text = String::new();
        let mut end = None;
        while let Some(event) = self.next_event()? {
            match event {
                Event::Token { text: piece, .. } => text.push_str(&piece),
                Event::Finished { reason, text: piece, report } => {
                    text.push_str(&piece);
                    end = Some((reason, *report));
                }
            }
        }
        let (finish_reason, report) = end.expect("every generation finishes");
        let (prompt, output) = self.engine.decoder.history().split_at(self.prompt_len);
        Ok(Answer {
            prompt_token_ids: prompt.to_vec(),
            token_ids: output[..self.yielded].to_vec(),
            text,
            finish_reason,
            report,
        })
    }

    fn last_yielded(&self) -> Option<u32> {
        let emitted = self.prompt_len + self.yielded;
        (self.yielded > 0).then(|| self.engine.decoder.history()[emitted - 1])
    }

    fn finish_reason(&self) -> Option<FinishReason> {
        let ends = self.engine.loaded().end_ids();
        if self.last_yielded().is_some_and(|t| ends.contains(&t)) {
            Some(FinishReason::Stop)
        } else if self.yielded == self.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        if self.finished {
            return Ok(None);
        }
        if let Some(reason) = self.finish_reason() {
            self.finished = true;
            let text = self.detokenizer.finish().to_owned();
            return Ok(Some(Event::Finished { reason, text, report: Box::new(self.report()) }));
        }
        if self.engine.decoder.history().len() == self.prompt_len + self.yielded {
            let Engine { loaded, decoder, .. } = &mut *self.engine;
            let limits = Limits { tokens: self.max_tokens - self.yielded, ends: loaded.end_ids() };
            decoder.step(limits, None)?;
        }
        let id = self.engine.decoder.history()[self.prompt_len + self.yielded];
        self.yielded += 1;
        Ok(Some(Event::Token { id, text: self.detokenizer.push(id).to_owned() }))
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
