//! Whether steps draft and what they cost now: the state of a band's guard and of its corrected costs, which go on from
//! range to range.

use crate::{
    plan::{ContextRange, GuardLimits},
    policy::{GuardState, GuardTerms, GuardedStep, RowScratch, StepCosts},
    tree::TokenTree,
};

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

/// One step, when it is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepDone {
    /// Rows verified.
    pub(super) rows: u32,
    /// Tokens emitted.
    pub(super) tokens: u32,
    /// Whether it was to speculate, if only to find that nothing is worth drafting.
    pub(super) speculated: bool,
    /// Planned time that it saved by drafting less deep than its shape allows.
    pub(super) saved_us: f64,
    /// What it took, in microseconds.
    pub(super) us: f64,
}

/// How deep one step drafts.
#[derive(Clone, Copy, Debug)]
pub(super) struct DepthOfStep {
    /// As deep as it may; 0 where the request or its guard lets nothing be drafted.
    pub(super) allowed: usize,
    /// As deep as pays.
    pub(super) chosen: usize,
    /// Planned time that this saves compared with the depth of the shape.
    pub(super) saved_us: f64,
}

/// The state of both. Costs outlive requests, the guard's state does not.
#[derive(Debug)]
pub(super) struct PolicyState {
    /// `None` where nothing stops drafting.
    guard: Option<GuardState>,
    /// `None` where costs count as planned.
    costs: Option<StepCosts>,
}

impl PolicyState {
    /// Of steps that begin in `range`.
    pub(super) fn new(is_guarded: bool, is_corrected: bool, range: &ContextRange) -> Self {
        Self {
            guard: is_guarded.then(GuardState::new),
            costs: is_corrected.then(|| StepCosts::new(range.predicted.ar_tpot_us)),
        }
    }

    /// Forgets the last request.
    pub(super) fn restart(&mut self) {
        self.guard = self.guard.map(|_| GuardState::new());
    }

    /// The next step is in `range`.
    pub(super) fn enter(&mut self, range: &ContextRange) {
        if let Some(costs) = &mut self.costs {
            costs.go_on_at(range.predicted.ar_tpot_us);
        }
    }

    /// Whether the next step drafts. One under guard does not where only a plain step can tell what drafting costs.
    pub(super) fn drafts(&self) -> bool {
        let is_measured = || !self.costs.is_some_and(|costs| costs.wants_plain());
        self.guard.is_none_or(|guard| guard.drafts() && is_measured())
    }

    /// Most rows of `tree` to verify in `range`.
    pub(super) fn rows(&self, range: &ContextRange, tree: &mut TokenTree, scratch: &mut RowScratch) -> u32 {
        range.row_choice.rows(tree, scratch, self.costs.as_ref())
    }

    /// Takes note of a step in `range` that the guard, if there is one, let or did not let speculate.
    pub(super) fn stepped(
        &mut self,
        (range, limits): (&ContextRange, GuardLimits),
        step: StepDone,
        counts: &mut GuardCounts,
    ) {
        let StepDone { rows, tokens, speculated, saved_us, us } = step;
        let planned_us = range.row_choice.planned(rows).step_us - saved_us;
        if let Some(costs) = &mut self.costs {
            if speculated {
                costs.took(rows, planned_us, us);
            } else {
                costs.took_plain(us);
            }
        }
        let step_us = self.costs.as_ref().map_or(planned_us, |costs| costs.corrected_us(rows, planned_us));
        let Some(guard) = &mut self.guard else { return };
        if !guard.drafts() {
            counts.paused_steps += 1;
            *guard = guard.after_plain();
        } else if speculated {
            counts.speculative_steps += 1;
            counts.speculative_tokens += u64::from(tokens);
            counts.priced_us += step_us;
            let terms = GuardTerms::new(&range.predicted, limits);
            *guard = guard.after_speculation(&terms, GuardedStep { tokens, step_us });
            counts.pauses += u64::from(!guard.drafts());
        }
    }
}
