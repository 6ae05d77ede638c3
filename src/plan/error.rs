//! What can go wrong with plans.
use ygg_profiler::{Difference, TableError};

use crate::storage::SealError;

/// Why a plan cannot be read, written or used. Variants say what was expected, what was found and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The latency table lacks a cell or is unusable. A fault of the measured grid.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The profile describes a drafter this build does not have.
    #[error("unknown drafter `{found}`: expected one of {expected}; profile again with this build")]
    UnknownDrafter {
        /// The drafters there are.
        expected: String,
        /// The requested one.
        found: String,
    },
    /// The parameters of a drafter are not those its kind has.
    #[error("drafter {drafter}: expected {expected}, found {found}; profile again with this build")]
    DrafterParameters {
        /// The drafter.
        drafter: String,
        /// The rule.
        expected: String,
        /// What breaks it.
        found: String,
    },
    /// The content of a plan contradicts itself.
    #[error("invalid plan: {what}: expected {expected}, found {found}; make it again with `yggc plan`")]
    Invalid {
        /// What is wrong.
        what: &'static str,
        /// The rule.
        expected: String,
        /// What breaks it.
        found: String,
    },
    /// A plan for something else.
    #[error(
        "the plan does not fit: {}; make one here with `yggc plan`",
        differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Mismatch {
        /// The facts that differ.
        differences: Vec<Difference>,
    },
    /// A plan file that cannot be used.
    #[error("plan file `{path}`: {reason}")]
    InFile {
        /// The file.
        path: String,
        /// Why.
        reason: Box<PlanError>,
    },
    /// The file system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The bytes are not a whole, unchanged plan of this build's format.
    #[error("not a usable plan: {0}; make it again with `yggc plan`")]
    Sealed(#[from] SealError),
}

impl PlanError {
    /// Whether the plan was made for another machine, model or build, which
    /// [`FittedPlan::forced`](super::FittedPlan::forced) overrides.
    pub fn is_mismatch(&self) -> bool {
        match self {
            PlanError::Mismatch { .. } => true,
            PlanError::InFile { reason, path: _ } => reason.is_mismatch(),
            PlanError::Table(_)
            | PlanError::UnknownDrafter { .. }
            | PlanError::DrafterParameters { .. }
            | PlanError::Invalid { .. }
            | PlanError::Io { .. }
            | PlanError::Sealed(_) => false,
        }
    }
}
