//! What can go wrong with plans.
use ygg_profiler::{Difference, TableError};

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
    /// The bytes do not begin as a plan does.
    #[error("not a plan: expected a file written by `yggc plan`, found {found}")]
    NotAPlan {
        /// The first bytes.
        found: String,
    },
    /// A plan of another format.
    #[error("the plan has format {found}, expected {expected}; make it again with `yggc plan`")]
    Version {
        /// The format of this build.
        expected: u32,
        /// The format of the file.
        found: u32,
    },
    /// Bytes are missing at the end.
    #[error(
        "the plan is truncated: expected {expected} bytes, found {found}; make it again with `yggc plan`"
    )]
    Truncated {
        /// Bytes the header promises, or the length of a header.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// Bytes follow the end.
    #[error(
        "the plan has trailing bytes: expected {expected} bytes, found {found}; make it again with `yggc plan`"
    )]
    TrailingBytes {
        /// Bytes the header promises.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The payload is larger than any plan.
    #[error("the plan is too large: expected at most {expected} bytes, found {found}")]
    TooLarge {
        /// The limit.
        expected: u64,
        /// The size.
        found: u64,
    },
    /// The content was changed.
    #[error(
        "the plan is damaged: expected checksum {expected}, found {found}; make it again with `yggc plan`"
    )]
    Checksum {
        /// What the header says.
        expected: String,
        /// What the payload gives.
        found: String,
    },
    /// The content is not that of a plan.
    #[error("the plan cannot be decoded: expected the fields of format {format}, found {found}")]
    Decode {
        /// The format of this build.
        format: u32,
        /// What the decoder met.
        found: String,
    },
}

impl PlanError {
    /// Whether the plan was made for another machine, model or build, which [`FittedPlan::forced`](super::FittedPlan::forced) overrides.
    pub fn is_mismatch(&self) -> bool {
        match self {
            PlanError::Mismatch { .. } => true,
            PlanError::InFile { reason, path: _ } => reason.is_mismatch(),
            PlanError::Table(_)
            | PlanError::UnknownDrafter { .. }
            | PlanError::DrafterParameters { .. }
            | PlanError::Invalid { .. }
            | PlanError::Io { .. }
            | PlanError::NotAPlan { .. }
            | PlanError::Version { .. }
            | PlanError::Truncated { .. }
            | PlanError::TrailingBytes { .. }
            | PlanError::TooLarge { .. }
            | PlanError::Checksum { .. }
            | PlanError::Decode { .. } => false,
        }
    }
}
