//! Eager execution: programs run op by op, to measure static programs against.

use std::{borrow::Cow, sync::Arc};

use crate::ir::{DeviceSpec, Program, WeightId, WeightSource};

#[cfg(not(feature = "cuda"))]
use super::NOT_BUILT_IN;
#[cfg(feature = "cuda")]
use super::cuda;
use super::{BackendError, Executables, Tier, available_tiers, cpu};

/// Like [`load`](super::load), for programs that are to be run op by op, each by itself: what static programs are
/// measured against. They must be unfused, with bytes of its own for every value. What is opened from them allocates.
///
/// # Errors
/// As `load`, and [`BackendError::NeverEager`] for the reference tier, which is no measure of anything.
pub fn load_eager(
    programs: Vec<Program>,
    device: &DeviceSpec,
    weights: &dyn WeightSource,
    threads: usize,
) -> Result<Arc<dyn Executables>, BackendError> {
    assert!(!programs.is_empty(), "at least one program");
    match device.tier {
        Tier::Reference => {
            let available = available_tiers().iter().map(|tier| tier.name()).collect::<Vec<_>>().join(", ");
            Err(BackendError::NeverEager { found: device.tier, available })
        }
        #[cfg(feature = "cuda")]
        Tier::Cuda => Ok(Arc::new(cuda::CudaExecutables::load_eager(programs, device, weights, threads)?)),
        #[cfg(not(feature = "cuda"))]
        Tier::Cuda => Err(BackendError::NoCuda { reason: NOT_BUILT_IN.to_owned() }),
        Tier::Portable | Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx => {
            let unfused = cpu::CpuExecutables::load(programs, device, &NotKept(weights), threads)?;
            Ok(Arc::new(cpu::EagerExecutables::new(unfused)))
        }
    }
}

/// Weights of which no packed copy is kept, since they are packed for a measurement.
struct NotKept<'a>(&'a dyn WeightSource);

impl WeightSource for NotKept<'_> {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        self.0.bytes(weight)
    }

    fn note_loaded(&self, weight: WeightId) {
        self.0.note_loaded(weight);
    }
}
