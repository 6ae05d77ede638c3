//! Kernels that are launched by themselves, beside forwards: what moves and overwrites slots, and what measures the machine. They do not
//! wait for the kernels before them, and are begun when those have ended.

use ygg_kernels::{
    KvFormat,
    cuda::abi::{YGG_MOST_WIDTH, YGG_ROW_THREADS, YGG_WARP, YggMoves, YggMultiply, YggPoison, YggRead},
};

use crate::ir::KvSpec;

use super::{
    super::{BackendError, ReplayOptions},
    device::{Device, Launch},
    weights::Weights,
};

/// Blocks of a kernel that measures the machine, for each multiprocessor.
const BLOCKS_EACH: u32 = 8;

fn planes(kv: &KvSpec) -> usize {
    2 * kv.layers * kv.kv_heads
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("sizes of a cache are far below 2^32")
}

pub(super) fn moves_launch(
    device: &Device,
    kv: &KvSpec,
    format: KvFormat,
    options: &ReplayOptions,
    cache: u64,
) -> Result<Launch, BackendError> {
    let params = YggMoves {
        cache: cache as *mut u8,
        planes: number(planes(kv)),
        slots: number(options.layout.slots()),
        slot_bytes: number(kv.head_dim * format.bytes()),
        first: 0,
        count: 0,
        from: [0; YGG_MOST_WIDTH as usize],
    };
    Ok(Launch::new(device, "ygg_move_slots", [planes(kv), 1, 1], YGG_ROW_THREADS, 0, params)?.alone())
}

pub(super) fn poison_launch(
    device: &Device,
    kv: &KvSpec,
    format: KvFormat,
    options: &ReplayOptions,
    cache: u64,
) -> Result<Launch, BackendError> {
    let params = YggPoison {
        cache: cache as *mut std::ffi::c_void,
        planes: number(planes(kv)),
        slots: number(options.layout.slots()),
        head_dim: number(kv.head_dim),
        first: 0,
        count: 0,
        halves: u32::from(format == KvFormat::F16),
        seed: 0,
    };
    Ok(Launch::new(device, "ygg_poison_slots", [planes(kv), 1, 1], YGG_ROW_THREADS, 0, params)?.alone())
}

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
