//! Eager execution: programs run op by op, to measure static programs against.

use std::sync::Arc;

use crate::ir::{DeviceSpec, Program, WeightSource};

#[cfg(feature = "cuda")]
use super::cuda;
#[cfg(not(feature = "cuda"))]
use super::not_built_in;
use super::{BackendError, Executables, Loading, Runner, available_tiers, cpu};

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
    let loading = Loading::of(weights);
    match Runner::of(device.tier) {
        Runner::Reference => {
            let available = available_tiers().iter().map(|tier| tier.name()).collect::<Vec<_>>().join(", ");
            Err(BackendError::NeverEager { found: device.tier, available })
        }
        #[cfg(feature = "cuda")]
        Runner::Cuda => {
            Ok(Arc::new(cuda::CudaExecutables::load(cuda::Way::Eager, programs, device, &loading, threads)?))
        }
        #[cfg(not(feature = "cuda"))]
        Runner::Cuda => Err(not_built_in()),
        Runner::Cpu => {
            let unfused = cpu::CpuExecutables::load(programs, device, &loading, threads)?;
            Ok(Arc::new(cpu::EagerExecutables::new(unfused)))
        }
    }
}
