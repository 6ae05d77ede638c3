//! The shape of a step, as the decoder runs it.

use crate::{
    plan::{ContextRange, DrafterKind, ProposalLimits, Schedule, Shape, SubPlan},
    runtime::Session,
};

use super::SpeculateError;

/// Shape of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepShape {
    /// Growths per step, `Dd`; for lookup the longest continuation.
    pub depth: usize,
    /// Nodes per growth, `Wd`; for lookup the number of continuations.
    pub draft_width: usize,
    /// Most rows to verify, root included, `Wv`.
    pub verify_width: usize,
    /// Candidates kept of every expanded node; 0 where no model drafts.
    pub top_k: usize,
    /// Softens or sharpens the drafter's probabilities, `t_d`.
    pub draft_temperature: f32,
}

impl StepShape {
    /// Plain decoding: nothing is drafted.
    pub const PLAIN: Self =
        Self { depth: 0, draft_width: 1, verify_width: 1, top_k: 0, draft_temperature: 1.0 };

    /// The shape that drafter and storage of a sub-plan are made for: as large as its largest range needs.
    pub fn of(sub_plan: &SubPlan) -> Self {
        Self::with(sub_plan, sub_plan.largest_shape())
    }

    /// The shape of steps in one of its ranges.
    pub(super) fn in_range(sub_plan: &SubPlan, range: &ContextRange) -> Self {
        Self::with(sub_plan, sub_plan.shape_in(range))
    }

    fn with(sub_plan: &SubPlan, Shape { depth, draft_width, verify_width }: Shape) -> Self {
        Self {
            depth: depth as usize,
            draft_width: draft_width as usize,
            verify_width: verify_width as usize,
            top_k: sub_plan.top_k as usize,
            draft_temperature: sub_plan.draft_temperature,
        }
    }

    /// The shape of the trees that the model of a drafter grows in such steps: of a mixture they may be less deep than
    /// what it copies.
    pub fn of_model(&self, drafter: &DrafterKind) -> Self {
        let growths = drafter.mixed_model().map_or(usize::MAX, |model| model.growths as usize);
        Self { depth: self.depth.min(growths), ..*self }
    }

    /// Nodes of a full tree, root included: `Dd * Wd + 1`.
    pub fn tree_nodes(&self) -> usize {
        self.depth * self.draft_width + 1
    }

    /// Rows after the committed prefix that steps write, for
    /// [`SessionOptions::tree_nodes`](crate::runtime::SessionOptions): the tree's, and one for each verified row where
    /// heads are drafted ahead.
    pub fn scratch_rows(&self, schedule: Schedule) -> usize {
        let heads = if schedule.drafts_ahead() { self.verify_width.min(self.tree_nodes()) } else { 0 };
        self.tree_nodes() + heads
    }

    /// Whether a session can run such steps.
    pub(super) fn check(&self, session: &Session) -> Result<(), SpeculateError> {
        if session.set().width_for(self.verify_width).is_none() || self.verify_width == 0 {
            let widths = session.set().widths();
            let expected = format!("1 to {}", widths[widths.len() - 1]);
            return Err(SpeculateError::Shape { what: "verify width", expected, found: self.verify_width });
        }
        if self.tree_nodes() > session.tree_nodes() {
            let expected =
                format!("trees of at most {} nodes, for which the session was opened", session.tree_nodes());
            let found = self.tree_nodes();
            return Err(SpeculateError::Shape { what: "depth x draft width + 1", expected, found });
        }
        Ok(())
    }

    /// What the shape allows a drafter that runs no model: `Wd` continuations of `Dd` tokens, and no more nodes than
    /// `Wv` rows verify.
    ///
    /// # Panics
    /// If a number of it exceeds 32 bits.
    pub fn limits(&self) -> ProposalLimits {
        let number = |n: usize| u32::try_from(n).expect("shapes are small");
        let nodes = number(self.verify_width.min(self.tree_nodes()));
        ProposalLimits { depth: number(self.depth), width: number(self.draft_width), nodes }
    }
}
