//! N-grams of the text and of the verifier itself: a forward dictionary for many guesses, a backward one for a long
//! one, and a pool of sequences from which the verifier makes more.
//!
//! SPECTRA's core (ACL 2025). With whole n-grams, the forward dictionary alone and nothing explored it is Lookahead
//! decoding ([`NgramSettings::lookahead`]).

mod dictionary;
mod pool;
mod state;

use crate::{
    plan::{DrafterId, NgramSettings, ProposalLimits},
    sample::Coupling,
    speculate::{SpeculateError, StepOutcome, StepShape, StepStage, stats::Lap},
    tree::{NodeId, Source, TokenTree},
};

pub use state::NgramState;

use self::{dictionary::Dictionaries, pool::Pool};
use super::{
    Budget, Drafter, DrafterState,
    ranking::chance,
    registry::{MakeContext, MakeDrafter},
};

/// The drafter's mark.
const SOURCE: Source = DrafterId::Ngram.source();
/// The verifier's continuations of a pool sequence among which an unknown one is looked for.
const OFFERED: usize = 8;
/// What the newest guess of the forward dictionary is worth, and what each further token of a guess keeps of that.
const FORWARD_VALUE: f32 = 0.4;
const FORWARD_KEEP: f32 = 0.6;

/// The n-gram drafter.
#[derive(Clone, Debug)]
pub struct Ngram {
    settings: NgramSettings,
    limits: ProposalLimits,
    dictionaries: Dictionaries,
    pool: Pool,
    /// Tokens of the request that the dictionaries know.
    known: usize,
    /// The end of the text and the guess after it.
    guess: Vec<u32>,
}

impl Ngram {
    /// A drafter that knows nothing yet, for proposals within [`StepShape::limits`]. Reserves all of its memory.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the pool leaves no row for a guess, or its sequences are deeper than the shape.
    ///
    /// # Panics
    /// If the settings are not valid ([`DrafterKind::validate`](crate::plan::DrafterKind::validate)).
    pub fn new(settings: NgramSettings, shape: &StepShape) -> Result<Self, SpeculateError> {
        let limits = shape.limits();
        let NgramSettings { order, pool, explored_percent, entries, .. } = settings;
        assert!(order >= 2, "n-grams of two tokens or more");
        let least = settings.pool_rows() + 2;
        let (length, sequences) = (order as usize - 1, pool as usize);
        if pool > 0 && limits.nodes < least {
            let expected = format!("{least} or more, for {pool} sequences of a pool and a guess");
            return Err(SpeculateError::Shape {
                what: "verify width",
                expected,
                found: limits.nodes as usize,
            });
        }
        if pool > 0 && shape.depth < length {
            let expected = format!("{length} or more, for the sequences of a pool");
            return Err(SpeculateError::Shape { what: "depth", expected, found: shape.depth });
        }
        Ok(Self {
            settings,
            limits,
            dictionaries: Dictionaries::new(entries as usize, settings.parts),
            pool: Pool::new(sequences, length, explored_percent),
            known: 0,
            guess: Vec::with_capacity(length + shape.depth),
        })
    }

    /// Records the n-grams that end with the tokens of `history` that are new.
    fn catch_up(&mut self, history: &[u32]) {
        if self.known > history.len() {
            self.known = 0;
        }
        let order = self.settings.order as usize;
        for end in self.known + 1..=history.len() {
            let shortest = if self.settings.parts { 2 } else { order };
            for length in shortest..=order.min(end) {
                self.dictionaries.record(&history[end - length..end]);
            }
        }
        self.known = history.len();
    }

    /// Grows one guess by the longest known suffix, token after token. A token is worth less after a shorter suffix.
    fn guess_backward(
        &mut self,
        history: &[u32],
        (depth, nodes): (usize, usize),
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        let longest = self.settings.order as usize - 1;
        self.guess.clear();
        self.guess.extend_from_slice(&history[history.len().saturating_sub(longest)..]);
        let (mut node, mut value) = (NodeId::ROOT, 1.0);
        for place in (history.len()..).take(depth) {
            let end = self.guess.len();
            let found = (1..=longest.min(end)).rev().find_map(|length| {
                let next = self.dictionaries.backward.after(&self.guess[end - length..]).next()?;
                Some((length, next[0]))
            });
            let Some((length, token)) = found else { return };
            value *= chance(coupling, place, token, 1.0 - 1.0 / (1.0 + length as f32));
            let Some(child) = tree.insert_within(nodes, node, token, value, 0, SOURCE) else { return };
            node = child;
            self.guess.push(token);
        }
    }

    /// Adds what followed the last token, newest first, until enough guesses added something.
    fn guess_forward(
        &self,
        history: &[u32],
        (depth, nodes): (usize, usize),
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        let Some(last) = history.last() else { return };
        let mut left = self.settings.forward_guesses;
        for (place, continuation) in self.dictionaries.forward.after(&[*last]).enumerate() {
            if left == 0 {
                return;
            }
            let before = tree.len();
            let (mut node, mut value) = (NodeId::ROOT, 1.0);
            let mut keep = FORWARD_VALUE / (place + 1) as f32;
            for (token, place) in continuation.iter().zip(history.len()..).take(depth) {
                value *= chance(coupling, place, *token, keep);
                let Some(child) = tree.insert_within(nodes, node, *token, value, 0, SOURCE) else { break };
                node = child;
                keep = FORWARD_KEEP;
            }
            left -= u32::from(tree.len() > before);
        }
    }
}

impl MakeDrafter for NgramSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        Ok(Some(Box::new(Ngram::new(*self, context.shape)?)))
    }
}

impl Drafter for Ngram {
    /// The pool's sequences, which are verified whatever they are worth, then the guess of the backward dictionary,
    /// then those of the forward one, merged into one tree of at most `limits.nodes` nodes. Values rank nodes and claim
    /// no probability.
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let mut lap = Lap::start();
        let Budget { history, depth, coupling, stats, .. } = budget;
        let coupling = coupling.as_ref();
        let depth = depth.min(self.limits.depth as usize);
        let nodes = (self.limits.nodes as usize).min(tree.capacity());
        self.catch_up(history);
        self.pool.draft(tree, depth, nodes);
        if self.settings.backward {
            self.guess_backward(history, (depth, nodes), coupling, tree);
        }
        self.guess_forward(history, (depth, nodes), coupling, tree);
        stats.add_time(StepStage::Draft, lap.next());
        Ok(())
    }

    fn state(&self) -> Option<DrafterState> {
        Some(DrafterState::Ngram(self.kept()))
    }

    fn restore(&mut self, state: &DrafterState, vocabulary: usize) -> Result<bool, SpeculateError> {
        let DrafterState::Ngram(state) = state else { return Ok(false) };
        self.add(state, vocabulary)?;
        Ok(true)
    }

    fn candidates_to_learn(&self) -> usize {
        if self.settings.pool > 0 { OFFERED } else { 0 }
    }

    fn begin(&mut self, history: &[u32]) {
        self.known = 0;
        self.catch_up(history);
        self.pool.begin(history);
    }

    /// The pool is filled from the next text.
    fn forget_texts(&mut self) {
        self.dictionaries.clear();
    }

    /// The pool moves on, and what it makes enters both dictionaries, with all its parts if those are held.
    fn learn(&mut self, outcome: &StepOutcome<'_>) {
        self.pool.refresh(outcome, &mut self.dictionaries);
    }
}

#[cfg(test)]
mod tests;
