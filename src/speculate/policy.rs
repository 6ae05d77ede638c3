//! What a plan decides about steps beyond their shape, and its state while a decoder runs.

use crate::tree::TokenTree;
use crate::{
    plan::{RowChoice, RowRule},
    policy::{GuardTerms, GuardedStep, RowScratch, StepCosts},
};

use super::guard::{Guard, GuardCounts};

/// How many rows steps verify, and whether they draft.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The widths a step may verify, with their costs, and how it chooses.
    pub choice: RowChoice,
    /// What a request must gain to go on drafting; without it every step drafts.
    pub guard: Option<GuardTerms>,
    /// Corrects the planned costs by the time of every step; without it they count as planned, and a history decides all.
    pub costs: Option<StepCosts>,
}

/// A policy at work. Costs outlive requests, the guard's state does not.
#[derive(Debug)]
pub(super) struct PolicyState {
    choice: RowChoice,
    guard: Option<Guard>,
    costs: Option<StepCosts>,
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

impl PolicyState {
    pub(super) fn new(policy: Policy) -> Self {
        let Policy { choice, guard, costs } = policy;
        Self { choice, guard: guard.map(Guard::new), costs }
    }

    /// Forgets the last request.
    pub(super) fn restart(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.restart();
        }
    }

    /// Goes on from the policy of the request's steps so far: guard and costs keep what they know.
    pub(super) fn go_on_from(&mut self, before: &Self) {
        if let (Some(guard), Some(before)) = (&mut self.guard, &before.guard) {
            guard.go_on_from(before);
        }
        if let (Some(costs), Some(before)) = (&mut self.costs, &before.costs) {
            costs.go_on_from(before);
        }
    }

    /// Whether the next step drafts. One under guard does not where only a plain step can tell what drafting costs.
    pub(super) fn drafts(&self) -> bool {
        let is_measured = || !self.costs.is_some_and(|costs| costs.wants_plain());
        self.guard.as_ref().is_none_or(|guard| guard.drafts() && is_measured())
    }

    /// How steps choose their rows.
    pub(super) fn rule(&self) -> RowRule {
        self.choice.rule
    }

    /// Most rows of `tree` to verify.
    pub(super) fn rows(&self, tree: &mut TokenTree, scratch: &mut RowScratch) -> u32 {
        self.choice.rows(tree, scratch, self.costs.as_ref())
    }

    /// Takes note of a step that the guard, if there is one, let or did not let speculate.
    pub(super) fn stepped(&mut self, step: StepDone, counts: &mut GuardCounts) {
        let StepDone { rows, tokens, speculated, saved_us, us } = step;
        let planned_us = self.choice.planned(rows).step_us - saved_us;
        if let Some(costs) = &mut self.costs {
            if speculated {
                costs.took(rows, planned_us, us);
            } else {
                costs.took_plain(us);
            }
        }
        let step_us = self.costs.as_ref().map_or(planned_us, |costs| costs.corrected_us(rows, planned_us));
        if let Some(guard) = &mut self.guard {
            if !guard.drafts() {
                guard.paused(counts);
            } else if speculated {
                guard.speculated(GuardedStep { tokens, step_us }, counts);
            }
        }
    }
}
