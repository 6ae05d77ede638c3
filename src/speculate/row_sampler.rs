//! Drawing a token from a row of logits: adjusted, filtered and drawn as the request asks, with log-probabilities to
//! report.

use crate::{
    grammar::{GrammarError, Mask, Matcher},
    runtime::ExecutableSet,
    sample::{Adjuster, Adjustment, Candidate, Coupling, LogNormaliser, SampleError, Sampler, Sampling, top},
};

use super::{CandidateRows, Said};

/// Log-probabilities of the tokens of the last step, by the logits as the model gives them, in buffers reserved when
/// the request begins.
#[derive(Clone, Debug, Default)]
pub struct LogProbs {
    /// Best tokens of a row to report; `None` if the request wants nothing.
    most: Option<usize>,
    chosen: Vec<f32>,
    best: CandidateRows,
    scratch: Vec<Candidate>,
}

impl LogProbs {
    /// Of the token that the last step, or the prefill before the first, emitted as number `place`: its own
    /// log-probability, and the most probable tokens at its position with theirs, the first first. `None` if the
    /// request did not ask for any.
    ///
    /// # Panics
    /// If not so many were emitted.
    pub fn of(&self, place: usize) -> Option<(f32, &[Candidate])> {
        self.most.map(|_| (self.chosen[place], self.best.row(place)))
    }

    /// Begins a request that notes at most `rows` tokens at a time.
    pub(super) fn begin(&mut self, most: Option<usize>, rows: usize) {
        self.most = most;
        self.clear();
        let Some(most) = most else { return };
        self.chosen.reserve_exact(rows);
        self.best = CandidateRows::with_capacity(rows, most);
        self.scratch.clear();
        self.scratch.reserve_exact(most);
    }

    fn clear(&mut self) {
        self.chosen.clear();
        self.best.clear();
    }

    pub(super) fn note(&mut self, logits: &[f32], token: u32) {
        let Self { most: Some(most), chosen, best, scratch } = self else { return };
        let normaliser = LogNormaliser::new(logits);
        chosen.push(normaliser.log_prob(logits[token as usize]));
        best.add_row(|out| {
            let start = out.len();
            top(logits, *most, scratch, out);
            for candidate in &mut out[start..] {
                candidate.log_prob = normaliser.log_prob(candidate.log_prob);
            }
        });
    }
}

/// Draws the tokens of one request after another.
#[derive(Debug)]
pub(super) struct RowSampler {
    sampler: Sampler,
    adjuster: Adjuster,
    /// What the answer must be, as far as it goes by now.
    grammar: Option<Matcher>,
    /// The row `[V]` that a mask was applied to.
    masked: Vec<f32>,
    log_probs: LogProbs,
    vocabulary: usize,
}

impl RowSampler {
    /// For rows of the vocabulary of `set`, greedy so far.
    pub(super) fn new(set: &ExecutableSet) -> Result<Self, SampleError> {
        let vocabulary = set.vocabulary();
        let sampler = Sampler::new(Sampling::GREEDY, vocabulary)?;
        Ok(Self {
            sampler,
            adjuster: Adjuster::default(),
            grammar: None,
            masked: Vec::new(),
            log_probs: LogProbs::default(),
            vocabulary,
        })
    }

    /// Whether a request can be served.
    pub(super) fn check(
        &self,
        sampling: &Sampling,
        adjustment: &Adjustment,
        log_probs: Option<usize>,
    ) -> Result<(), SampleError> {
        sampling.validate()?;
        adjustment.validate(self.vocabulary)?;
        self.check_log_probs(log_probs)
    }

    /// Whether so many log-probabilities of other tokens can be reported.
    pub(super) fn check_log_probs(&self, log_probs: Option<usize>) -> Result<(), SampleError> {
        match log_probs.filter(|most| *most > self.vocabulary) {
            Some(found) => Err(SampleError::LogProbs { found, vocabulary: self.vocabulary }),
            None => Ok(()),
        }
    }

    /// Begins a request of which `prompt` is known, whose steps verify at most `rows` rows.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(super) fn begin(
        &mut self,
        sampling: Sampling,
        adjustment: &Adjustment,
        log_probs: Option<usize>,
        prompt: &[u32],
        rows: usize,
    ) -> Result<(), SampleError> {
        self.check(&sampling, adjustment, log_probs)?;
        self.sampler.set_sampling(sampling)?;
        self.adjuster.begin(adjustment, prompt, self.vocabulary)?;
        self.log_probs.begin(log_probs, rows);
        Ok(())
    }

    /// The request's answer begins where `grammar` is, or is free.
    pub(super) fn constrain(&mut self, grammar: Option<&Matcher>) {
        self.grammar = grammar.cloned();
    }

    /// What the answer must be, as far as it goes by now.
    pub(super) fn grammar(&mut self) -> Option<&mut Matcher> {
        self.grammar.as_mut()
    }

    /// Whether the request's answer is constrained.
    pub(super) fn is_constrained(&self) -> bool {
        self.grammar.is_some()
    }

    /// Whether a constraint takes longer to follow than usual.
    pub(super) fn is_slow(&self) -> bool {
        self.grammar.as_ref().is_some_and(Matcher::is_slow)
    }

    /// Whether a constrained answer is whole, so that nothing follows.
    pub(super) fn is_complete(&self) -> bool {
        self.grammar.as_ref().is_some_and(Matcher::is_complete)
    }

    /// Computes the mask of the next token, while a forward runs in parallel with the host.
    pub(super) fn prepare_mask(&mut self) {
        if let Some(grammar) = &mut self.grammar
            && !grammar.is_complete()
        {
            // A fault is found again where the token is drawn.
            let _ = grammar.mask();
        }
    }

    /// The noise that decides the request's tokens, if any does.
    pub(super) fn coupling(&self) -> Option<Coupling> {
        Coupling::of(*self.sampler.sampling())
    }

    /// Whether the best token of a row is all that the request needs of it.
    pub(super) fn wants_best_only(&self) -> bool {
        self.sampler.sampling().is_greedy() && self.wants_drawn_only()
    }

    /// Whether the token of a row depends on the row and its place alone, and nothing is reported: rows may then be
    /// drawn from in any order, and twice.
    pub(super) fn wants_drawn_only(&self) -> bool {
        self.adjuster.is_idle() && self.log_probs.most.is_none() && self.grammar.is_none()
    }

    /// Whether log-probabilities are reported, for which every token needs its row.
    pub(super) fn reports_log_probs(&self) -> bool {
        self.log_probs.most.is_some()
    }

    /// Forgets the log-probabilities of the last step.
    pub(super) fn begin_step(&mut self) {
        self.log_probs.clear();
    }

    /// The token of the row `[V]` at `position`. Changes nothing.
    ///
    /// # Panics
    /// If more is wanted than what is drawn.
    pub(super) fn draw(&mut self, logits: &[f32], position: u64) -> u32 {
        assert!(
            self.wants_drawn_only(),
            "an adjusted, constrained or reported row is drawn from once, in the text's order"
        );
        self.sampler.draw(logits, position)
    }

    /// The next token of the text, at `position`: of the row `[V]` after all tokens that were drawn. A mask is applied
    /// to the adjusted row, so that the filters renormalise over what is allowed: the mask that was `prepared` for this
    /// place, or one that is computed now.
    ///
    /// # Errors
    /// [`GrammarError`] if the grammar cannot be followed any further.
    pub(super) fn draw_next(
        &mut self,
        logits: &[f32],
        position: u64,
        prepared: Option<Mask>,
    ) -> Result<Said, GrammarError> {
        let Self { sampler, adjuster, grammar, masked, log_probs, .. } = self;
        let adjusted = adjuster.adjust(logits);
        let token = match grammar {
            None => sampler.draw(adjusted, position),
            Some(grammar) => {
                let mask = match &prepared {
                    Some(mask) => mask,
                    None => grammar.mask()?,
                };
                masked.clear();
                masked.extend_from_slice(adjusted);
                mask.apply(masked);
                let drawn = sampler.draw(masked, position);
                // Where no allowed logit is a number above negative infinity, the draw says nothing.
                let token = if mask.allows(drawn) { drawn } else { mask.first().unwrap_or(drawn) };
                grammar.accept(token)?;
                token
            }
        };
        adjuster.push(token);
        log_probs.note(logits, token);
        Ok(Said { token, ends: self.is_complete() })
    }

    /// Takes note of a forced token of the text, which the grammar has accepted; `logits` is its row `[V]`, if it is
    /// known.
    pub(super) fn push_forced(&mut self, token: u32, logits: Option<&[f32]>) {
        self.adjuster.push(token);
        if let Some(logits) = logits {
            self.log_probs.note(logits, token);
        }
    }

    pub(super) fn log_probs(&self) -> &LogProbs {
        &self.log_probs
    }
}
