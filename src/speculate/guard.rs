//! A request's guard: the policy's state between steps, and what the request did under it.

use crate::policy::{GuardState, GuardTerms, GuardedStep};

/// What a request did under guard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GuardCounts {
    /// Times it fell back to plain decoding.
    pub pauses: u64,
    /// Steps decoded plainly meanwhile.
    pub paused_steps: u64,
    /// Steps that drafted, or whose predicted depth was 0.
    pub speculative_steps: u64,
    /// Tokens these emitted.
    pub speculative_tokens: u64,
    /// Time of these as planned or corrected, in microseconds of a machine whose plain step takes as long as planned.
    pub priced_us: f64,
}

/// The guard of one request after another.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    terms: GuardTerms,
    state: GuardState,
}

impl Guard {
    pub(super) fn new(terms: GuardTerms) -> Self {
        Self { terms, state: GuardState::new() }
    }

    /// Forgets the last request.
    pub(super) fn restart(&mut self) {
        self.state = GuardState::new();
    }

    /// Goes on from where the guard of the request's steps so far is.
    pub(super) fn go_on_from(&mut self, before: &Self) {
        self.state = before.state;
    }

    /// Whether the next step drafts.
    pub(super) fn drafts(&self) -> bool {
        self.state.drafts()
    }

    /// Takes note of a step that drafted.
    pub(super) fn speculated(&mut self, step: GuardedStep, counts: &mut GuardCounts) {
        counts.speculative_steps += 1;
        counts.speculative_tokens += u64::from(step.tokens);
        counts.priced_us += step.step_us;
        self.state = self.state.after_speculation(&self.terms, step);
        counts.pauses += u64::from(!self.state.drafts());
    }

    /// Notes a step whose predicted depth was 0.
    pub(super) fn paused(&mut self, counts: &mut GuardCounts) {
        counts.paused_steps += 1;
        self.state = self.state.after_plain();
    }
}
