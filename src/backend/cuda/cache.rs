//! The key/value cache in device memory, and the kernels that change it outside of forwards. Those that the host launches do not wait for the
//! kernels before them, and are begun when those have ended.

use ygg_kernels::{
    KvFormat,
    cuda::abi::{YGG_MOST_WIDTH, YGG_ROW_THREADS, YggMoves, YggPath, YggPathMoves, YggPoison},
};

use crate::ir::KvSpec;

use super::{
    super::{BackendError, ReplayOptions},
    device::{Device, Launch},
    layout::number,
};

/// `[layers][keys, values][G, S, D]`, of f16 or f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    at: u64,
    /// `2 * layers * G`.
    planes: usize,
    slots: u32,
    head_dim: usize,
    format: KvFormat,
}

impl Cache {
    /// The cache at an address.
    pub(super) fn new(kv: &KvSpec, format: KvFormat, options: &ReplayOptions, at: u64) -> Self {
        let slots = number(options.layout.slots());
        Self { at, planes: 2 * kv.layers * kv.kv_heads, slots, head_dim: kv.head_dim, format }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    fn slot_bytes(&self) -> u32 {
        number(self.head_dim * self.format.bytes())
    }

    /// Moves of slots that the host names with every launch; none so far.
    pub(super) fn moves(&self, device: &Device) -> Result<Launch, BackendError> {
        let params = YggMoves {
            cache: self.at as *mut u8,
            planes: number(self.planes),
            slots: self.slots,
            slot_bytes: self.slot_bytes(),
            first: 0,
            count: 0,
            from: [0; YGG_MOST_WIDTH as usize],
        };
        Ok(Launch::new(device, "ygg_move_slots", [self.planes, 1, 1], YGG_ROW_THREADS, 0, params)?.alone())
    }

    /// Moves of the rows of a path, by the slots `[W]` that a forward wrote its rows to.
    pub(super) fn path_moves(
        &self,
        device: &Device,
        row_slots: *const u32,
        path: YggPath,
    ) -> Result<Launch, BackendError> {
        let params = YggPathMoves {
            cache: self.at as *mut u8,
            slots: self.slots,
            slot_bytes: self.slot_bytes(),
            row_slots,
            path,
        };
        Launch::new(device, "ygg_move_path", [self.planes, 1, 1], YGG_ROW_THREADS, 0, params)
    }

    /// Noise into slots that the host names with every launch; none so far.
    pub(super) fn poison(&self, device: &Device) -> Result<Launch, BackendError> {
        let params = YggPoison {
            cache: self.at as *mut std::ffi::c_void,
            planes: number(self.planes),
            slots: self.slots,
            head_dim: number(self.head_dim),
            first: 0,
            count: 0,
            halves: u32::from(self.format == KvFormat::F16),
            seed: 0,
        };
        Ok(Launch::new(device, "ygg_poison_slots", [self.planes, 1, 1], YGG_ROW_THREADS, 0, params)?.alone())
    }
}
