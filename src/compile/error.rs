//! Why a graph cannot be compiled.

use crate::ir::GraphError;

/// Why a graph cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The caller asked for rows that no forward has.
    #[error(
        "cannot bind {width} rows with {outputs} outputs: expected 1 <= outputs <= rows; choose another width"
    )]
    Binding {
        /// Rows asked for.
        width: usize,
        /// Outputs asked for.
        outputs: usize,
    },
    /// The graph is unlawful before (`source`) or after the named pass. After a pass, the pass is at fault.
    #[error("after `{stage}`: {error}")]
    Unlawful {
        /// The stage.
        stage: &'static str,
        /// The breach.
        error: GraphError,
    },
    /// The model asks for something that no kernel offers.
    #[error(
        "no kernel for {value} (`{op}`): expected {expected}, found {found}; convert the model's tensors"
    )]
    Kernel {
        /// The value.
        value: String,
        /// Its op.
        op: &'static str,
        /// What kernels take.
        expected: &'static str,
        /// What the graph has.
        found: String,
    },
    /// The model's residual sums cannot all be done in place, or its groups not one after the other.
    #[error(
        "no order of steps at {place}: expected {expected}, found {found}; change the model family's graph"
    )]
    Order {
        /// Value or group.
        place: String,
        /// What in-place sums and closed groups demand.
        expected: &'static str,
        /// What the graph demands.
        found: String,
    },
    /// The caller's device has an alignment that no arena has.
    #[error("arena alignment of {found} bytes: expected a power of two, at least 4")]
    Alignment {
        /// The alignment.
        found: usize,
    },
    /// The arena would not fit the address space.
    #[error("the arena of {width} rows exceeds the address space at {value}; choose a smaller width")]
    TooLarge {
        /// Rows.
        width: usize,
        /// The first value that does not fit.
        value: String,
    },
    /// The caller named a stage that does not exist.
    #[error("unknown stage `{found}`: expected one of {expected}")]
    UnknownStage {
        /// The name.
        found: String,
        /// All names.
        expected: String,
    },
}
