//! Kernels that measure the machine. Each begins when the kernels before it have ended; none overlaps with another.

use ygg_kernels::cuda::abi::{YGG_ROW_THREADS, YGG_WARP, YggMultiply, YggRead};

use super::{
    super::BackendError,
    device::{Device, Launch},
    weights::Weights,
};

/// Blocks of a kernel that measures the machine, for each multiprocessor: with [`YGG_ROW_THREADS`] threads each they
/// are the 2,048 threads that one holds on compute capabilities 8.0 and 9.0.
const BLOCKS_EACH: u32 = 8;

fn blocks(device: &Device) -> [usize; 3] {
    [(device.processors() * BLOCKS_EACH) as usize, 1, 1]
}

/// One for each block of weights, with its bytes.
pub(super) fn read_launches(
    device: &Device,
    weights: &Weights,
    sink: u64,
) -> Result<Vec<(Launch, u64)>, BackendError> {
    let launch = |(start, bytes): (u64, usize)| {
        let count = bytes as u64 / 16;
        let params = YggRead { data: start as *const std::ffi::c_void, count, sink: sink as *mut u32 };
        let launch = Launch::new(device, "ygg_read", blocks(device), YGG_ROW_THREADS, 0, params)?.alone();
        Ok((launch, 16 * count))
    };
    weights.blocks().map(launch).collect()
}

pub(super) fn multiply_launch(device: &Device, sink: u64) -> Result<Launch, BackendError> {
    let params = YggMultiply { rounds: 0, sink: sink as *mut u32 };
    Ok(Launch::new(device, "ygg_multiply_adds", blocks(device), YGG_ROW_THREADS, 0, params)?.alone())
}

/// Threads that multiply and add.
pub(super) fn multiplying_threads(device: &Device) -> u32 {
    device.processors() * BLOCKS_EACH * YGG_ROW_THREADS
}

pub(super) fn nothing_launch(device: &Device, sink: u64) -> Result<Launch, BackendError> {
    let params = YggMultiply { rounds: 0, sink: sink as *mut u32 };
    Ok(Launch::new(device, "ygg_nothing", [1, 1, 1], YGG_WARP, 0, params)?.alone())
}
