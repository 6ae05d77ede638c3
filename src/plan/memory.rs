//! How a plan divides memory where weights are streamed.
use serde::{Deserialize, Serialize};

use super::{
    PlanError,
    check::{ensure, is_positive},
};

/// Tokens of a context for which nothing else is said, if the model has as many.
pub const DEFAULT_CONTEXT: u32 = 4096;

/// What is in memory while a plan runs whose weights are streamed from a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedMemory {
    /// What the user gives for all of it; `None` if the plan keeps the division that was profiled.
    pub budget_bytes: Option<u64>,
    /// Packed weights that stay.
    pub resident_bytes: u64,
    /// Packed weights that every forward reads, in memory for the time that it needs them.
    pub streamed_bytes: u64,
    /// The buffer that they are read into.
    pub staging_bytes: u64,
    /// The substitute of the chosen sub-plans, which share it at all temperatures.
    pub substitute_bytes: u64,
    /// Cache, activations and scratch of a session with this context.
    pub session_bytes: u64,
    /// Most tokens of prompt and answer together.
    pub context: u32,
    /// The best division with the substitute of each number of bits, and without one; empty without a budget.
    pub divisions: Vec<Division>,
}

/// A way to divide memory that was planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Division {
    /// Bits of the substitute, if there is room for one.
    pub substitute_bits: Option<u32>,
    /// Packed weights that stay.
    pub resident_bytes: u64,
    /// The substitute.
    pub substitute_bytes: u64,
    /// Time of a token to expect on other prompts than were recorded, the mean of the temperatures that were.
    pub tpot_us: f64,
}

impl PlannedMemory {
    /// All bytes in memory.
    pub fn used_bytes(&self) -> u64 {
        self.resident_bytes + self.staging_bytes + self.substitute_bytes + self.session_bytes
    }

    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let Self {
            budget_bytes,
            resident_bytes,
            streamed_bytes,
            staging_bytes,
            substitute_bytes,
            session_bytes,
            context,
            divisions,
        } = self;
        let parts = [resident_bytes, streamed_bytes, staging_bytes, substitute_bytes, session_bytes];
        let are_sizes = parts.iter().all(|bytes| **bytes < u64::MAX / 8);
        ensure(are_sizes && *context > 0, "memory", "sizes of parts and a context", || format!("{parts:?}"))?;
        let is_within = budget_bytes.is_none_or(|budget| self.used_bytes() <= budget);
        ensure(is_within, "memory", "parts within the budget", || format!("{self:?}"))?;
        let are_times = divisions.iter().all(|division| is_positive(division.tpot_us));
        ensure(are_times, "memory", "positive times", || format!("{divisions:?}"))
    }
}
