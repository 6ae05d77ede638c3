//! What other rooms ask of a tier: which weights it reads, how large they become, and where they and sessions are.

use ygg_kernels::{
    Tier, WeightFormat, cpu,
    cuda::packing::{ALIGNMENT, Layout},
};

use crate::ir::PackedSizes;

use super::BackendError;

/// Which backend runs a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    Reference,
    Cpu,
    Cuda,
}

impl Runner {
    pub(super) fn of(tier: Tier) -> Self {
        match tier {
            Tier::Reference => Self::Reference,
            Tier::Portable | Tier::Neon | Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx => {
                Self::Cpu
            }
            Tier::Cuda => Self::Cuda,
        }
    }
}

/// Whether a tier multiplies native activations over weights of this format rounded to as many bits as these have.
pub fn rounds_activations(tier: Tier, format: WeightFormat) -> bool {
    match tier {
        Tier::Avx512Bf16 | Tier::Amx => format == WeightFormat::BF16,
        // To halves where weights are halves.
        Tier::Cuda => format != WeightFormat::F32,
        Tier::Reference | Tier::Portable | Tier::Neon | Tier::Avx2 | Tier::Avx512 => false,
    }
}

/// Whether the device of a tier has memory of its own for sessions and resident weights, to which streamed weights are
/// copied from pinned memory of the host. Else all are in the host's, and streamed weights are read from a file.
pub fn has_own_memory(tier: Tier) -> bool {
    Runner::of(tier) == Runner::Cuda
}

/// How large weights become on a tier; `None` if it streams none.
pub fn packed_sizes(tier: Tier) -> Option<PackedSizes> {
    match Runner::of(tier) {
        Runner::Reference => None,
        Runner::Cpu => Some(PackedSizes {
            product: cpu::packed_bytes,
            rows: None,
            vector: |numbers| numbers * size_of::<f32>(),
            pools: true,
        }),
        Runner::Cuda => Some(PackedSizes {
            product: cuda_stack_bytes,
            rows: Some(cuda_rows_bytes),
            vector: cuda_words_bytes,
            // Which experts rows use is known on the device only, and copies are asked for by the host.
            pools: false,
        }),
    }
}

/// Codes and scales of a stack of matrices.
pub(super) fn cuda_stack_bytes(format: WeightFormat, rows: usize, columns: usize) -> usize {
    let (codes, scales) = Layout::of(format).stack_bytes(rows, columns);
    codes + scales
}

/// Rows that are embedded, as the model's file has them where kernels decode that.
pub(super) fn cuda_rows_bytes(format: WeightFormat, rows: usize, columns: usize) -> usize {
    let row = Layout::of_rows(format).row_bytes(columns).expect("the model's loader has checked sizes");
    (rows * row).next_multiple_of(ALIGNMENT)
}

/// Numbers of four bytes.
pub(super) fn cuda_words_bytes(count: usize) -> usize {
    (count * size_of::<u32>()).next_multiple_of(ALIGNMENT)
}

/// A GPU, as its driver tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// CUDA version that the driver offers.
    pub driver: String,
    /// Whether it is the tests' emulation: its results count, its timings mean nothing.
    pub is_emulated: bool,
}

/// The GPU that runs a tier, looked at without loading kernels; `None` of a tier that this processor runs.
///
/// # Errors
/// [`BackendError::NoCuda`] that says what is missing.
pub fn gpu(tier: Tier) -> Result<Option<Gpu>, BackendError> {
    match Runner::of(tier) {
        Runner::Reference | Runner::Cpu => Ok(None),
        #[cfg(feature = "cuda")]
        Runner::Cuda => super::cuda::first_gpu().map(Some),
        #[cfg(not(feature = "cuda"))]
        Runner::Cuda => Err(super::not_built_in()),
    }
}
