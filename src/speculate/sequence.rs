//! The sequence of one request after another: its text, how its tokens are drawn, and its counters.

use crate::{
    prefix::Owner,
    runtime::{ExecutableSet, Session},
};

use super::{Limits, SpeculateError, Stats, offered::Offered, row_sampler::RowSampler};

/// Whether a request drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Speculation {
    /// As engine and decoder were opened to.
    #[default]
    AsOpened,
    /// Not at all: plain decoding, with the same tokens.
    Off,
}

/// A request's sequence. Invariant between steps: all tokens of the history but the last are committed.
#[derive(Debug)]
pub(super) struct Sequence {
    /// Prompt and output so far.
    pub(super) history: Vec<u32>,
    /// What was offered after tokens of the history, where a drafter learned from it.
    pub(super) offered: Offered,
    pub(super) sampler: RowSampler,
    /// Whether the committed keys and values are the history's.
    pub(super) is_cache_known: bool,
    /// Whether a step may go on with the history.
    pub(super) is_started: bool,
    pub(super) speculation: Speculation,
    /// Whose text it is.
    pub(super) owner: Owner,
    /// The output of the last forward that gave the last token.
    pub(super) last_output: usize,
    pub(super) stats: Stats,
}

impl Sequence {
    /// None yet, in a context of `context` tokens.
    pub(super) fn new(set: &ExecutableSet, context: usize) -> Result<Self, SpeculateError> {
        Ok(Self {
            history: Vec::with_capacity(context + 1),
            offered: Offered::with_capacity(context + 1),
            sampler: RowSampler::new(set)?,
            is_cache_known: true,
            is_started: false,
            speculation: Speculation::AsOpened,
            owner: Owner::default(),
            last_output: 0,
            stats: Stats::default(),
        })
    }

    /// Begins with a prompt, of which the cache has the first `known` tokens.
    pub(super) fn restart(&mut self, prompt: &[u32], known: usize, owner: Owner) {
        self.offered.keep_only(known);
        self.history.clear();
        self.history.extend_from_slice(prompt);
        (self.is_cache_known, self.is_started) = (true, false);
        self.owner = owner;
        self.stats = Stats::default();
    }

    /// The last token, the root of the next step.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn last(&self) -> u32 {
        *self.history.last().expect("a request was started")
    }

    /// Whether the request drafts.
    pub(super) fn drafts(&self) -> bool {
        self.speculation == Speculation::AsOpened
    }

    /// Checks that a step may emit as many tokens as `limits` say.
    ///
    /// # Panics
    /// If it may not.
    pub(super) fn expect_room(&self, session: &Session, limits: Limits<'_>) {
        assert!(self.is_started, "a step continues a started request");
        let room = session.context() + 1 - self.history.len();
        assert!((1..=room).contains(&limits.tokens), "{} tokens asked for, room for {room}", limits.tokens);
    }
}
