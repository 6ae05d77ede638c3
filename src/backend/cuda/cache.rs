//! The cache in device memory, and the kernels that change it outside of forwards. Those that the host launches do not
//! wait for the kernels before them, and are begun when those have ended.

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

/// Planes of equal size, each with all slots.
#[derive(Clone, Copy, Debug)]
struct Planes {
    at: u64,
    count: usize,
    /// Of a slot in one plane.
    elements: usize,
    format: KvFormat,
}

impl Planes {
    fn slot_bytes(&self) -> u32 {
        number(self.elements * self.format.bytes())
    }
}

/// Keys and values, `[layers][keys, values][G, S, D]` of f16 or f32, and what convolutions keep, `[layers][S, C]` of
/// f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    slots: u32,
    planes: [Planes; 2],
}

impl Cache {
    /// The cache at two addresses: of keys and values, and of what convolutions keep.
    pub(super) fn new(kv: &KvSpec, format: KvFormat, options: &ReplayOptions, [at, kept]: [u64; 2]) -> Self {
        let KvSpec { layers, kv_heads, head_dim, conv } = *kv;
        let planes = [
            Planes { at, count: 2 * layers * kv_heads, elements: head_dim, format },
            Planes { at: kept, count: conv.layers, elements: conv.channels, format: KvFormat::F32 },
        ];
        Self { slots: number(options.layout.slots()), planes }
    }

    pub(super) fn at(&self) -> u64 {
        self.planes[0].at
    }

    pub(super) fn kept_at(&self) -> u64 {
        self.planes[1].at
    }

    /// A launch for each kind of planes that there are.
    fn each(
        &self,
        launch: impl Fn(&Planes) -> Result<Launch, BackendError>,
    ) -> Result<Vec<Launch>, BackendError> {
        self.planes.iter().filter(|planes| planes.count > 0).map(launch).collect()
    }

    /// Moves of slots that the host names with every launch; none so far.
    pub(super) fn moves(&self, device: &Device) -> Result<Vec<Launch>, BackendError> {
        self.each(|planes| {
            let params = YggMoves {
                cache: planes.at as *mut u8,
                planes: number(planes.count),
                slots: self.slots,
                slot_bytes: planes.slot_bytes(),
                first: 0,
                count: 0,
                from: [0; YGG_MOST_WIDTH as usize],
            };
            let grid = [planes.count, 1, 1];
            Ok(Launch::new(device, "ygg_move_slots", grid, YGG_ROW_THREADS, 0, params)?.alone())
        })
    }

    /// Moves of the rows of a path, by the slots `[W]` that a forward wrote its rows to.
    pub(super) fn path_moves(
        &self,
        device: &Device,
        row_slots: *const u32,
        path: YggPath,
    ) -> Result<Vec<Launch>, BackendError> {
        self.each(|planes| {
            let (cache, slot_bytes) = (planes.at as *mut u8, planes.slot_bytes());
            let params = YggPathMoves { cache, slots: self.slots, slot_bytes, row_slots, path };
            Launch::new(device, "ygg_move_path", [planes.count, 1, 1], YGG_ROW_THREADS, 0, params)
        })
    }

    /// Noise into slots that the host names with every launch; none so far.
    pub(super) fn poison(&self, device: &Device) -> Result<Vec<Launch>, BackendError> {
        self.each(|planes| {
            let params = YggPoison {
                cache: planes.at as *mut std::ffi::c_void,
                planes: number(planes.count),
                slots: self.slots,
                head_dim: number(planes.elements),
                first: 0,
                count: 0,
                halves: u32::from(planes.format == KvFormat::F16),
                seed: 0,
            };
            let grid = [planes.count, 1, 1];
            Ok(Launch::new(device, "ygg_poison_slots", grid, YGG_ROW_THREADS, 0, params)?.alone())
        })
    }
}
