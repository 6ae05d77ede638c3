//! What can go wrong between a program and an executable.

use ygg_kernels::Tier;

/// Why a backend refuses.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The machine lacks the tier that was asked for.
    #[error(
        "instruction-set tier `{wanted}` is not available here: expected one of {available}; choose one or leave it out"
    )]
    MissingTier {
        /// Tier asked for.
        wanted: Tier,
        /// Tiers that this machine has.
        available: String,
    },
    /// A tier that runs nothing eagerly.
    #[error(
        "eager execution is for tiers that are timed: expected one of {available}, found `{found}`; choose one of \
         these, or a GPU"
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
    /// There is no file to stream weights from.
    #[error("weights cannot be streamed: {reason}")]
    NoStream {
        /// Why, and what to do.
        reason: String,
    },
    /// Memory of the host that a GPU reads was refused.
    #[error(
        "{bytes} bytes of pinned memory for streamed weights were refused by the system after {pinned} of {total}: \
         expected room for all; end what else runs here, raise the limit of locked memory, or let more weights stay \
         on the device"
    )]
    PinnedMemory {
        /// How much.
        bytes: usize,
        /// Bytes of streamed weights that are there.
        pinned: usize,
        /// Bytes of all of them.
        total: usize,
    },
    /// Streamed weights could not be read.
    #[error(
        "the weights that are streamed from `{}` cannot be read: {reason}; check the disk, and remove the file for it \
         to be made again",
        path.display()
    )]
    Stream {
        /// The file.
        path: std::path::PathBuf,
        /// What was expected and found, or the system's word.
        reason: String,
    },
    /// Memory was refused.
    #[error("{bytes} bytes for {what} were refused by the system; use a shorter context or a smaller model")]
    Memory {
        /// What it was for.
        what: &'static str,
        /// How much.
        bytes: usize,
    },
    /// There is no GPU that could be used.
    #[error("the device `cuda` cannot be used: {reason}")]
    NoCuda {
        /// The missing part, and what to do about it.
        reason: String,
    },
    /// Something that this backend's kernels cannot do.
    #[error(
        "the device `cuda` cannot run this model so: {what}: expected {expected}, found {found}; use the processor"
    )]
    CudaLimit {
        /// Of what there is a limit.
        what: &'static str,
        /// The limit.
        expected: String,
        /// What was asked for.
        found: String,
    },
    /// The driver refused.
    #[error("CUDA failed to {what}: {reason}; see nvidia-smi and the system's log, or use the processor")]
    Cuda {
        /// What it was asked to do.
        what: &'static str,
        /// Its word.
        reason: String,
    },
    /// Memory of a GPU was refused.
    #[error(
        "{bytes} bytes for {what} were refused by {device}, where {free} of {total} bytes are free; use a shorter \
         context or a smaller model, or end what else runs there"
    )]
    DeviceMemory {
        /// What it was for.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// Bytes that are free there.
        free: usize,
        /// Bytes that there are.
        total: usize,
        /// The GPU.
        device: String,
    },
    /// Threads were refused.
    #[error("the system refused to start {threads} threads: {source}; ask for fewer")]
    Threads {
        /// How many in all.
        threads: usize,
        /// The system's word.
        source: std::io::Error,
    },
}
