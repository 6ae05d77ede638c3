//! Whether a plan fits the machine, model and build at hand.
use std::ops::Deref;

use ygg_profiler::{Difference, Fingerprints};

use super::{Plan, PlanError};

/// A plan that may be run here: its fingerprints fit, or the user forced it.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedPlan {
    plan: Plan,
    ignored: Vec<Difference>,
}

impl FittedPlan {
    /// Takes a plan made for `here`.
    ///
    /// # Errors
    /// [`PlanError::Mismatch`] lists every fact that differs.
    pub fn new(plan: Plan, here: &Fingerprints) -> Result<Self, PlanError> {
        let fitted = FittedPlan::forced(plan, here);
        if fitted.ignored.is_empty() {
            return Ok(fitted);
        }
        Err(PlanError::Mismatch { differences: fitted.ignored })
    }

    /// Accepts a plan without comparing fingerprints. Output stays exact; predictions may not hold.
    pub fn forced(plan: Plan, here: &Fingerprints) -> Self {
        let ignored = plan.header.fingerprints.differences(here);
        FittedPlan { plan, ignored }
    }

    /// The differences that were overridden.
    pub fn ignored(&self) -> &[Difference] {
        &self.ignored
    }
}

impl Deref for FittedPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}
