//! How steps go within one range of contexts, of the ranges that a way of stepping goes through while a request grows.

use super::{Policy, SpeculateError, StepShape, depth::DepthPolicy, policy::PolicyState};

/// What changes in the steps of a way from a number of committed tokens on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRange {
    /// Committed tokens from which it holds.
    pub from: usize,
    /// Whether steps draft.
    pub drafts: bool,
    /// Growths per step, `Dd`.
    pub depth: usize,
    /// Most rows to verify, root included, `Wv`.
    pub verify_width: usize,
}

impl StepRange {
    /// From the beginning on, with the depth and the rows of a shape.
    pub fn whole(shape: &StepShape) -> Self {
        let StepShape { depth, verify_width, .. } = *shape;
        Self { from: 0, drafts: true, depth, verify_width }
    }
}

/// One range, with what its steps go by and the state of that.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) steps: StepRange,
    pub(super) policy: Option<PolicyState>,
    pub(super) depth: Option<DepthPolicy>,
}

impl Range {
    pub(super) fn new(steps: StepRange) -> Self {
        Self { steps, policy: None, depth: None }
    }

    /// # Errors
    /// [`SpeculateError::Shape`] if the widest choice is not the verify width.
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result<(), SpeculateError> {
        let widest = policy.choice.widest() as usize;
        if widest != self.steps.verify_width {
            let expected = format!("{}, the verify width", self.steps.verify_width);
            return Err(SpeculateError::Shape { what: "widest choice of rows", expected, found: widest });
        }
        self.policy = Some(PolicyState::new(policy));
        Ok(())
    }
}
