//! What can go wrong between a program and an executable.

use ygg_kernels::Tier;

/// Why a backend refuses.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The machine lacks the tier that was asked for.
    #[error(
        "instruction-set tier `{wanted}` is not available here: expected one of {available}; choose one with --isa or leave it out"
    )]
    MissingTier {
        /// Tier asked for.
        wanted: Tier,
        /// Tiers that this machine has.
        available: String,
    },
    /// A tier that runs nothing eagerly.
    #[error(
        "eager execution is for the tiers of this processor: expected one of {available}, found `{found}`; choose one with --isa"
    )]
    NeverEager {
        /// Tier asked for.
        found: Tier,
        /// Tiers that this machine has.
        available: String,
    },
    /// A weight cannot be packed.
    #[error("weight `{name}` cannot be packed: {reason}")]
    Weight {
        /// Tensor name.
        name: String,
        /// What the packer expected and found.
        reason: String,
    },
    /// Memory was refused.
    #[error(
        "{bytes} bytes for {what} were refused by the system; use a smaller --context or a smaller model"
    )]
    Memory {
        /// What it was for.
        what: &'static str,
        /// How much.
        bytes: usize,
    },
    /// Threads were refused.
    #[error("the system refused to start {threads} threads: {source}; ask for fewer with --threads")]
    Threads {
        /// How many in all.
        threads: usize,
        /// The system's word.
        source: std::io::Error,
    },
}
