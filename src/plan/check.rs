//! Checks of what a plan holds.
use super::PlanError;

/// Whether it is a finite number above 0.
pub(super) fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

/// Refuses a plan of which `what` is not as `expected`.
pub(super) fn ensure(
    holds: bool,
    what: &'static str,
    expected: &str,
    found: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    if holds {
        return Ok(());
    }
    Err(PlanError::Invalid { what, expected: expected.to_owned(), found: found() })
}
