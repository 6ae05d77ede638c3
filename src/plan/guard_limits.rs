//! What a request may lose by drafting before its guard stops that.
use serde::{Deserialize, Serialize};

use super::{PlanError, check::ensure};

/// Thresholds of the guard of a sub-plan's requests, in plain steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GuardLimits {
    /// What a request may lose before it stops drafting. More where acceptance varies much from step to step: a request
    /// that pays would else be stopped by chance.
    pub may_lose: f64,
    /// What drafting again costs after a pause, in addition to the step itself: a drafter with a cache of its own reads
    /// what it missed.
    pub resume: f64,
}

impl GuardLimits {
    /// Where nothing was recorded to derive them from.
    pub const DEFAULT: Self = Self { may_lose: 2.0, resume: 0.0 };

    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let Self { may_lose, resume } = *self;
        let good = may_lose.is_finite() && may_lose > 0.0 && resume.is_finite() && resume >= 0.0;
        ensure(
            good,
            "limits of the guard",
            "plain steps, more than 0 to lose and 0 or more to resume",
            || format!("{self:?}"),
        )
    }
}
