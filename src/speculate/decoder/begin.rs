//! How a request begins: the part of its prompt that is not in the cache is run, and its first token is drawn.

use crate::{
    grammar::Matcher,
    prefix::Owner,
    runtime::Session,
    sample::{Adjustment, Sampling},
    speculate::{SpeculateError, Speculation, band::band_for, stats::Lap},
};

use super::{Decoder, KeptPrefixes, forced::MOST_FORCED, kept::OnTheWay};

/// What a request takes of earlier ones. Tokens are the same either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reuse {
    /// Keys and values of the longest beginning that it shares with the text before it, or with one that is kept, if
    /// these were of the same owner. By row invariance they are, to the bit, those that the prompt would get, so the
    /// next turn of a conversation runs only what is new.
    #[default]
    Prefix,
    /// Nothing: the whole prompt is run, and no store of prefixes is read or written.
    Nothing,
}

/// What a request adjusts unless it says otherwise.
static UNCHANGED: Adjustment = Adjustment::NONE;

/// A request, to [`begin`](Decoder::begin) with.
#[derive(Clone, Copy)]
pub struct Begin<'a> {
    /// What the text continues, 1 token or more.
    pub prompt: &'a [u32],
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// What is changed in logits before.
    pub adjustment: &'a Adjustment,
    /// What the answer must be, at its beginning; `None` for anything.
    pub grammar: Option<&'a Matcher>,
    /// How many log-probabilities are reported with each token in addition to its own; `None` for none at all.
    pub log_probs: Option<usize>,
    /// What is taken of earlier requests.
    pub reuse: Reuse,
    /// Where prefixes are kept, if they are.
    pub prefixes: Option<&'a KeptPrefixes>,
    /// Whose request it is.
    pub owner: Owner,
    /// Whether it drafts.
    pub speculation: Speculation,
    /// Asked before every forward of the prompt.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl<'a> Begin<'a> {
    /// A request with nothing but a prompt and how tokens are drawn, that keeps nothing of the one before.
    pub fn new(prompt: &'a [u32], sampling: Sampling) -> Self {
        Self {
            prompt,
            sampling,
            adjustment: &UNCHANGED,
            grammar: None,
            log_probs: None,
            reuse: Reuse::Nothing,
            prefixes: None,
            owner: Owner::default(),
            speculation: Speculation::AsOpened,
            is_cancelled: &|| false,
        }
    }
}

impl std::fmt::Debug for Begin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { prompt, sampling, adjustment, grammar, log_probs, reuse, .. } = self;
        let Self { prefixes, owner, speculation, .. } = self;
        f.debug_struct("Begin")
            .field("prompt", prompt)
            .field("sampling", sampling)
            .field("adjustment", adjustment)
            .field("grammar", grammar)
            .field("log_probs", log_probs)
            .field("reuse", reuse)
            .field("prefixes", prefixes)
            .field("owner", owner)
            .field("speculation", speculation)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// Begins a request: forgets the last one, runs the prompt and returns the first token.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn start(&mut self, prompt: &[u32], sampling: Sampling) -> Result<u32, SpeculateError> {
        let first = self.begin(&Begin::new(prompt, sampling))?;
        Ok(first.expect("nobody cancels it"))
    }

    /// Begins a request: runs what the cache has not of its prompt, and returns the first token; `None` if it was
    /// cancelled meanwhile. There is no step then, but another request may begin, which finds what was run.
    ///
    /// # Errors
    /// [`SpeculateError`] for an empty or too long prompt, unknown token ids or sampling out of range; the last request
    /// is then as it was.
    pub fn begin(&mut self, begin: &Begin<'_>) -> Result<Option<u32>, SpeculateError> {
        let Begin { prompt, sampling, adjustment, grammar, log_probs, reuse, .. } = *begin;
        let Begin { prefixes, owner, speculation, is_cancelled, .. } = *begin;
        if prompt.is_empty() {
            return Err(SpeculateError::EmptyPrompt);
        }
        self.sequence.sampler.check(&sampling, adjustment, log_probs)?;
        self.session.accepts(prompt)?;
        let mut lap = Lap::start();
        let prefixes = prefixes.filter(|_| reuse == Reuse::Prefix);
        let on_the_way = self.take(prompt, owner, reuse, prefixes)?;
        self.current = band_for(&self.bands, &sampling);
        let Self { session, bands, current, sequence, step } = self;
        let band = &mut bands[*current];
        let rows = if grammar.is_some() { MOST_FORCED + 1 } else { 0 }.max(step.tree.capacity() + 1);
        sequence.sampler.begin(sampling, adjustment, log_probs, prompt, rows)?;
        sequence.sampler.constrain(grammar);
        let first = match prefill(session, prompt, &on_the_way, is_cancelled)? {
            Some(logits) => sequence.sampler.draw_next(logits, prompt.len() as u64, None)?,
            None => {
                sequence.stats.prefill = lap.next();
                return Ok(None);
            }
        };
        on_the_way.note(session)?;
        sequence.last_output = 0;
        sequence.stats.prefill = lap.next();
        let first = first.token;
        sequence.history.push(first);
        (sequence.is_started, sequence.speculation) = (true, speculation);
        band.restart();
        if let Some(ahead) = band.ahead() {
            ahead.forget_heads();
        }
        if let Some(drafter) = &mut band.steps.drafter {
            drafter.begin(&sequence.history);
            for (place, offered) in sequence.offered.known(prompt.len()) {
                drafter.recall(prompt[place], offered);
            }
            if speculation == Speculation::AsOpened {
                let shelves = prefixes.and_then(|prefixes| prefixes.of_drafters[*current].as_ref());
                if let (Some(shelves), Some(mut cache)) = (shelves, drafter.own_cache()) {
                    sequence.stats.served_to_drafter = cache.load(shelves, owner, &sequence.history)?;
                }
                drafter.prefill(&sequence.history, session)?;
                sequence.stats.prefill += lap.next();
            }
        }
        Ok(Some(first))
    }

    /// Ends the request, whose text is cut to its first `len` tokens, with the keys and values of the others.
    ///
    /// # Panics
    /// If the text is shorter.
    pub fn cut(&mut self, len: usize) {
        let dropped = self.sequence.history.len().checked_sub(len).expect("a text is cut to a part of it");
        self.sequence.history.truncate(len);
        self.sequence.offered.keep_only(len);
        let committed = self.session.committed().min(len.saturating_sub(1));
        let committed = self.session.resume_point(committed);
        self.session.truncate(committed);
        self.sequence.stats.step_tokens = self.sequence.stats.step_tokens.saturating_sub(dropped as u64);
        self.sequence.is_started = false;
    }

    /// Forgets the text with its keys and values: no later request is served from them.
    pub fn forget(&mut self) {
        self.session.truncate(0);
        self.sequence.history.clear();
        self.sequence.is_started = false;
    }
}

/// Runs what is not committed of the prompt, forward by forward; gives the logits after it, or `None` if cancelled
/// before. What is to be kept on the way is, but for what the last forward passes by.
pub(super) fn prefill<'s>(
    session: &'s mut Session,
    prompt: &[u32],
    on_the_way: &OnTheWay<'_>,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<&'s [f32]>, SpeculateError> {
    let most = session.set().prefill_width();
    loop {
        if is_cancelled() {
            return Ok(None);
        }
        let rest = &prompt[session.committed()..];
        if rest.len() <= most {
            return Ok(Some(session.prefill(rest)?));
        }
        session.prefill(&rest[..most])?;
        on_the_way.note(session)?;
    }
}
