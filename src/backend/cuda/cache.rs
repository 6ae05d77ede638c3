//! The cache in device memory, and the kernels that change it outside of forwards. Those that the host launches do not
//! wait for the kernels before them, and are begun when those have ended.

use std::ops::Range;

use cudarc::driver::{CudaStream, sys};
use ygg_kernels::{
    ConvLayer, KvFormat,
    cuda::abi::{YGG_MOST_WIDTH, YGG_ROW_THREADS, YggMoves, YggPath, YggPathMoves, YggPoison},
};

use crate::ir::KvSpec;

use super::{
    super::{BackendError, ReplayOptions},
    device::{Device, Launch, check},
    layout::number,
    states::{StateSizes, States},
};

/// Planes of equal size, each with all slots.
#[derive(Clone, Copy, Debug)]
struct Planes {
    at: u64,
    count: usize,
    /// Of a slot in one plane.
    elements: usize,
    format: KvFormat,
    /// Slots in one plane; of a ring less than the cache has, where slot `s` is place `s mod slots`.
    slots: u32,
    /// How many slots at the end of a text are read after it; none where all are.
    most_moved: Option<u32>,
}

impl Planes {
    fn slot_bytes(&self) -> u32 {
        number(self.elements * self.format.bytes())
    }

    /// Bytes of a slot in all planes.
    fn row_bytes(&self) -> usize {
        self.count * self.slot_bytes() as usize
    }

    /// Which of these slots are moved.
    fn moved(&self, slots: Range<u32>) -> Range<u32> {
        let most = self.most_moved.unwrap_or(u32::MAX);
        slots.end - (slots.end - slots.start).min(most)..slots.end
    }
}

/// The host's side of a move of slots.
pub(super) enum MovedSlots<'a> {
    Fetched(&'a mut [u8]),
    Sent(&'a [u8]),
}

impl MovedSlots<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Fetched(bytes) => bytes.len(),
            Self::Sent(bytes) => bytes.len(),
        }
    }
}

/// Where the keys of a layer begin in the cache, and bytes from there to its values: `[layers][keys, values][G, S, D]`,
/// where layers with heads of another shape are the last ones.
pub(super) fn keys_and_values(kv: &KvSpec, layer: usize, slots: usize, format: KvFormat) -> [usize; 2] {
    let [(usual, of_usual), (_, of_others)] = kv.shapes();
    let plane = |[kv_heads, head_dim]: [usize; 2]| kv_heads * slots * head_dim * format.bytes();
    let before = 2 * (layer.min(usual) * plane(of_usual) + layer.saturating_sub(usual) * plane(of_others));
    [before, plane(kv.heads(layer))]
}

/// Keys and values as [`keys_and_values`] says, of f16 or f32, those of layers with heads of another shape apart; what
/// convolutions keep, `[layers][S, C]` of f32; and what recurrences keep of rows, in rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    slots: u32,
    scratch: u32,
    planes: [Planes; 4],
}

impl Cache {
    /// The cache at two addresses: of keys and values, and of what convolutions keep; and what recurrences keep.
    pub(super) fn new(
        kv: &KvSpec,
        format: KvFormat,
        options: &ReplayOptions,
        [at, kept]: [u64; 2],
        states: &States,
    ) -> Self {
        let conv = kv.conv;
        let slots = number(options.layout.slots());
        let [(usual, of_usual), (others, of_others)] = kv.shapes();
        let of_keys = |at, layers: usize, [kv_heads, head_dim]: [usize; 2]| Planes {
            at,
            count: 2 * layers * kv_heads,
            elements: head_dim,
            format,
            slots,
            most_moved: None,
        };
        let [before_others, _] = keys_and_values(kv, usual, slots as usize, format);
        let of_floats = |at, count, elements, slots, most_moved: usize| Planes {
            at,
            count,
            elements,
            format: KvFormat::F32,
            slots,
            most_moved: Some(number(most_moved)),
        };
        let StateSizes { layers: followed, ring, .. } = states.sizes;
        let planes = [
            of_keys(at, usual, of_usual),
            of_keys(at + before_others as u64, others, of_others),
            of_floats(kept, conv.layers, conv.channels, slots, ConvLayer::READ_SLOTS),
            // States are moved in place of rows.
            of_floats(states.kept, followed, states.sizes.row(), number(ring), 0),
        ];
        Self { slots, scratch: number(options.layout.scratch), planes }
    }

    pub(super) fn at(&self) -> u64 {
        self.planes[0].at
    }

    pub(super) fn kept_at(&self) -> u64 {
        self.planes[2].at
    }

    /// The slots that noise may go to: places of further ones in a ring are those of committed rows.
    pub(super) fn poisoned(&self, slots: Range<u32>) -> Range<u32> {
        let is_ringed = self.planes[3].count > 0;
        slots.start..if is_ringed { slots.end.min(slots.start + self.scratch) } else { slots.end }
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
                slots: planes.slots,
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
            let params = YggPathMoves { cache, slots: planes.slots, slot_bytes, row_slots, path };
            Launch::new(device, "ygg_move_path", [planes.count, 1, 1], YGG_ROW_THREADS, 0, params)
        })
    }

    /// Bytes of slots as they are [moved](Self::move_slots).
    pub(super) fn moved_bytes(&self, slots: usize) -> usize {
        self.planes.iter().map(|planes| planes.moved(0..number(slots)).len() * planes.row_bytes()).sum()
    }

    /// Fetches or sends slots, plane by plane, and waits for that: of keys and values all, of what convolutions keep
    /// those that rows after the last one read.
    pub(super) fn move_slots(
        &self,
        slots: Range<u32>,
        mut host: MovedSlots<'_>,
        stream: &CudaStream,
    ) -> Result<(), BackendError> {
        assert!(slots.start < slots.end && slots.end <= self.slots, "slots {slots:?} of {}", self.slots);
        let mut place = 0;
        for planes in &self.planes {
            let moved = planes.moved(slots.clone());
            if planes.count == 0 || moved.is_empty() {
                continue;
            }
            let slot_bytes = planes.slot_bytes() as usize;
            let row = moved.len() * slot_bytes;
            let device = planes.at + u64::from(moved.start) * slot_bytes as u64;
            let pitch = self.slots as usize * slot_bytes;
            let of_planes = place..place + row * planes.count;
            place = of_planes.end;
            let (host_side, device_side) =
                (sys::CUmemorytype::CU_MEMORYTYPE_HOST, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
            let rows = sys::CUDA_MEMCPY2D {
                srcXInBytes: 0,
                srcY: 0,
                srcMemoryType: host_side,
                srcHost: std::ptr::null(),
                srcDevice: 0,
                srcArray: std::ptr::null_mut(),
                srcPitch: row,
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: host_side,
                dstHost: std::ptr::null_mut(),
                dstDevice: 0,
                dstArray: std::ptr::null_mut(),
                dstPitch: row,
                WidthInBytes: row,
                Height: planes.count,
            };
            let copy = match &mut host {
                MovedSlots::Fetched(to) => sys::CUDA_MEMCPY2D {
                    srcMemoryType: device_side,
                    srcDevice: device,
                    srcPitch: pitch,
                    dstHost: to[of_planes].as_mut_ptr().cast(),
                    ..rows
                },
                MovedSlots::Sent(from) => sys::CUDA_MEMCPY2D {
                    srcHost: from[of_planes].as_ptr().cast(),
                    dstMemoryType: device_side,
                    dstDevice: device,
                    dstPitch: pitch,
                    ..rows
                },
            };
            // SAFETY: a row in every plane, inside the cache by the assertion, and as many bytes of the host, which
            // live until the stream has been waited for.
            check("move slots", unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.cu_stream()) }.result())?;
        }
        assert_eq!(place, host.len(), "bytes of the slots");
        check("move slots", stream.synchronize())
    }

    /// Noise into slots that the host names with every launch; none so far.
    pub(super) fn poison(&self, device: &Device) -> Result<Vec<Launch>, BackendError> {
        self.each(|planes| {
            let params = YggPoison {
                cache: planes.at as *mut std::ffi::c_void,
                planes: number(planes.count),
                slots: planes.slots,
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
