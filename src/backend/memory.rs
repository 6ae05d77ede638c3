//! Memory of one request: the arena that steps share and the cache.

#[cfg(feature = "planner")]
use std::collections::BTreeMap;
use std::{alloc::Layout, ops::Range, ptr::NonNull};

use ygg_kernels::{
    ConvLayer, KvFormat, KvLayer, Rows, RowsMut, StateLayer,
    cpu::{ALIGNMENT, allocate},
};

use crate::ir::{ConvSpec, KvSpec, Region, StateSpec};

use super::{BackendError, SlotLayout, SlotMoves};

/// Zeroed bytes, aligned for vectors, shared between threads by the rules of whoever hands out views. They are touched
/// when allocated, so that no forward waits for the system to find a page.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is plain memory; views of it are made by unsafe functions that state their rules.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// # Errors
    /// [`BackendError::Memory`] if the system refuses.
    pub(super) fn zeroed(bytes: usize, what: &'static str) -> Result<Self, BackendError> {
        let (start, layout) = allocate(bytes).ok_or(BackendError::Memory { what, bytes })?;
        // SAFETY: just allocated, with as many bytes.
        unsafe { start.write_bytes(0, layout.size()) };
        Ok(Self { start, layout })
    }

    /// First byte of a part.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            offset <= self.layout.size() && bytes <= self.layout.size() - offset,
            "part outside the block"
        );
        // SAFETY: inside the block by the assertion.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// One of `parts` equal parts of a block that was made for them, for one thread.
    ///
    /// # Safety
    /// Nobody else uses this part while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the part's only user")]
    pub(super) unsafe fn part(&self, index: usize, bytes: usize) -> &mut [u8] {
        let start = self.at(index * bytes, bytes);
        // SAFETY: inside the block, initialised, and ours alone by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }

    /// First of `bytes` bytes that all threads share, aligned to 64.
    pub(super) fn start(&self, bytes: usize) -> *mut u8 {
        self.at(0, bytes)
    }

    /// The first `bytes` bytes, for all threads.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    pub(super) unsafe fn bytes(&self, bytes: usize) -> &[u8] {
        let start = self.at(0, bytes);
        // SAFETY: inside the block, initialised, and unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Asks for memory and gives it back untouched: said before what would end the process where it is refused.
///
/// # Errors
/// [`BackendError::Memory`] if the system refuses.
pub(super) fn probe(bytes: usize, what: &'static str) -> Result<(), BackendError> {
    let (start, layout) = allocate(bytes).ok_or(BackendError::Memory { what, bytes })?;
    // SAFETY: just allocated with this layout, and nobody has it.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    Ok(())
}

/// The arena that a program's steps read and write.
#[derive(Debug)]
pub(super) struct Arena(Places);

#[derive(Debug)]
enum Places {
    /// Offsets are those of one block.
    Together(Block),
    /// Of eager execution: every value has a buffer while it is claimed, found by its offset; released ones wait in a
    /// cache, by size, to be claimed again.
    #[cfg(feature = "planner")]
    Apart { claimed: BTreeMap<usize, Block>, released: BTreeMap<usize, Vec<Block>> },
}

impl Arena {
    pub(super) fn new(bytes: usize) -> Result<Self, BackendError> {
        let block = Block::zeroed(bytes, "the arena of activations")?;
        Ok(Self(Places::Together(block)))
    }

    fn start(&self, region: &Region) -> *mut f32 {
        let elements = (region.rows - 1) * region.row_stride + region.columns;
        let bytes = elements * size_of::<f32>();
        match &self.0 {
            Places::Together(block) => block.at(region.offset_bytes, bytes).cast(),
            #[cfg(feature = "planner")]
            Places::Apart { claimed, released: _ } => {
                let (start, block) =
                    claimed.range(..=region.offset_bytes).next_back().expect("a claimed value");
                block.at(region.offset_bytes - start, bytes).cast()
            }
        }
    }

    /// # Safety
    /// While the view lives nobody writes the region.
    pub(super) unsafe fn rows(&self, region: &Region) -> Rows<'_> {
        // SAFETY: inside the arena by `start`; unwritten by the caller's promise.
        unsafe { Rows::from_raw(self.start(region), region.rows, region.columns, region.row_stride) }
    }

    /// # Safety
    /// While the view lives nobody else touches what ops are told to write through it.
    pub(super) unsafe fn rows_mut(&self, region: &Region) -> RowsMut<'_> {
        // SAFETY: inside the arena by `start`; not shared by the caller's promise.
        unsafe { RowsMut::from_raw(self.start(region), region.rows, region.columns, region.row_stride) }
    }

    /// One row of a region.
    ///
    /// # Safety
    /// While the slice lives nobody else touches that row.
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the row's only user")]
    pub(super) unsafe fn row_mut(&self, region: &Region, row: usize) -> &mut [f32] {
        assert!(row < region.rows, "row {row} of {}", region.rows);
        // SAFETY: a row of the region, which is inside the arena by `start` and initialised; ours alone by the caller's
        // promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.start(region).add(row * region.row_stride), region.columns)
        }
    }
}

#[cfg(feature = "planner")]
impl Arena {
    /// An arena without bytes, for programs whose values have bytes of their own: each must be claimed before it is
    /// written.
    pub(super) fn apart() -> Self {
        Self(Places::Apart { claimed: BTreeMap::new(), released: BTreeMap::new() })
    }

    /// Gives a value its buffer.
    ///
    /// # Panics
    /// If all values live together, the value has a buffer, or the system refuses memory.
    pub(super) fn claim(&mut self, region: &Region) {
        let Places::Apart { claimed, released } = &mut self.0 else { unreachable!("a value of one block") };
        let bytes = region.rows * region.row_stride * size_of::<f32>();
        let spare = released.get_mut(&bytes).and_then(Vec::pop);
        let new = || Block::zeroed(bytes, "a result").unwrap_or_else(|error| panic!("{error}"));
        let before = claimed.insert(region.offset_bytes, spare.unwrap_or_else(new));
        assert!(before.is_none(), "a value is claimed once");
    }

    /// Takes the buffer of the value at `offset` back; nothing if it has none.
    ///
    /// # Panics
    /// If all values live together.
    pub(super) fn release(&mut self, offset: usize) {
        let Places::Apart { claimed, released } = &mut self.0 else { unreachable!("a value of one block") };
        if let Some(block) = claimed.remove(&offset) {
            released.entry(block.layout.size()).or_default().push(block);
        }
    }

    /// Takes all buffers back.
    ///
    /// # Panics
    /// If all values live together.
    pub(super) fn release_all(&mut self) {
        while let Places::Apart { claimed, .. } = &self.0
            && let Some(offset) = claimed.keys().next().copied()
        {
            self.release(offset);
        }
    }
}

/// Keys and values of all layers: `[layer][keys, values]`, each as [`KvLayer`] says, and what convolutions keep:
/// `[layer]`, as [`ConvLayer`] says; and what recurrences keep: `[layer]`, as [`StateLayer`] says. Zeroed at first so
/// that whatever is read is finite.
#[derive(Debug)]
pub(super) struct KvCache {
    block: Block,
    kept: Block,
    states: Block,
    spec: KvSpec,
    format: KvFormat,
    slots: usize,
    scratch: usize,
}

impl KvCache {
    pub(super) fn bytes(spec: KvSpec, format: KvFormat, layout: SlotLayout) -> usize {
        let slots = layout.slots();
        Self::kv_bytes(spec, format, slots)
            + Self::conv_bytes(spec, slots)
            + spec.states.layers * Self::layer_of_states_bytes(spec.states, layout.scratch)
    }

    /// Bytes of one layer, in whole lines; none where there are no layers.
    fn layer_of_states_bytes(StateSpec { layers, shape }: StateSpec, scratch: usize) -> usize {
        if layers == 0 {
            0
        } else {
            StateLayer::bytes(shape, StateLayer::ring(scratch)).next_multiple_of(ALIGNMENT)
        }
    }

    fn kv_bytes(spec: KvSpec, format: KvFormat, slots: usize) -> usize {
        Self::start(spec, format, slots, spec.layers)
    }

    /// Where the keys of a layer begin: after keys and values of all layers before it.
    fn start(spec: KvSpec, format: KvFormat, slots: usize, layer: usize) -> usize {
        let [first, others] = spec.shapes().map(|(layers, _)| layers);
        let counts = [layer.min(first), layer.saturating_sub(first).min(others)];
        let bytes = |([kv_heads, head_dim], count): ([usize; 2], usize)| {
            2 * count * KvLayer::bytes(format, kv_heads, slots, head_dim)
        };
        spec.shapes().map(|(_, heads)| heads).into_iter().zip(counts).map(bytes).sum()
    }

    fn conv_bytes(KvSpec { conv: ConvSpec { layers, channels }, .. }: KvSpec, slots: usize) -> usize {
        layers * ConvLayer::bytes(slots, channels)
    }

    pub(super) fn new(spec: KvSpec, format: KvFormat, layout: SlotLayout) -> Result<Self, BackendError> {
        let (slots, scratch) = (layout.slots(), layout.scratch);
        let block = Block::zeroed(Self::kv_bytes(spec, format, slots), "the key/value cache")?;
        let kept = Block::zeroed(Self::conv_bytes(spec, slots), "what convolutions keep")?;
        let states = spec.states.layers * Self::layer_of_states_bytes(spec.states, scratch);
        let states = Block::zeroed(states, "the states of rows")?;
        Ok(Self { block, kept, states, spec, format, slots, scratch })
    }

    /// # Safety
    /// While the view lives, only ops touch the layer, and no two of them the same (slot, head) if one writes.
    pub(super) unsafe fn layer(&self, layer: usize) -> KvLayer<'_> {
        let [kv_heads, head_dim] = self.spec.heads(layer);
        let half = KvLayer::bytes(self.format, kv_heads, self.slots, head_dim);
        let start = Self::start(self.spec, self.format, self.slots, layer);
        let keys = self.block.at(start, half);
        let values = self.block.at(start + half, half);
        // SAFETY: both halves are inside the block, zeroed or written by ops; sharing is the caller's promise.
        unsafe { KvLayer::from_raw(keys, values, self.format, kv_heads, self.slots, head_dim) }
    }

    /// # Safety
    /// While the view lives, only ops touch the layer, and no two of them the same channel.
    pub(super) unsafe fn conv(&self, layer: usize) -> ConvLayer<'_> {
        let ConvSpec { channels, .. } = self.spec.conv;
        let bytes = ConvLayer::bytes(self.slots, channels);
        let start = self.kept.at(layer * bytes, bytes).cast();
        // SAFETY: inside the block, zeroed or written by ops; sharing is the caller's promise.
        unsafe { ConvLayer::from_raw(start, self.slots, channels) }
    }

    /// # Safety
    /// While the view lives, only ops touch the layer, and no two of them the same unit.
    pub(super) unsafe fn recurrence(&self, layer: usize) -> StateLayer<'_> {
        let bytes = Self::layer_of_states_bytes(self.spec.states, self.scratch);
        let start = self.states.at(layer * bytes, bytes).cast();
        // SAFETY: inside the block, in whole lines, zeroed at first; sharing is the caller's promise.
        unsafe { StateLayer::from_raw(start, StateLayer::ring(self.scratch), self.spec.states.shape) }
    }

    /// Every layer of recurrences, to change what it keeps.
    fn recurrences(&self) -> impl Iterator<Item = StateLayer<'_>> {
        // SAFETY: callers have `&mut self`, or only read while nothing runs.
        (0..self.spec.states.layers).map(move |layer| unsafe { self.recurrence(layer) })
    }

    /// Every layer of keys and values, to change its slots.
    fn layers(&mut self) -> impl Iterator<Item = KvLayer<'_>> {
        let cache = &*self;
        // SAFETY: `&mut self` is borrowed as long as the views live, so nothing else touches the cache.
        (0..cache.spec.layers).map(move |layer| unsafe { cache.layer(layer) })
    }

    /// Every layer of convolutions, to change its slots.
    fn convs(&mut self) -> impl Iterator<Item = ConvLayer<'_>> {
        let cache = &*self;
        // SAFETY: as for the layers of keys and values.
        (0..cache.spec.conv.layers).map(move |layer| unsafe { cache.conv(layer) })
    }

    fn conv_bytes_moved(conv: ConvSpec, slots: usize) -> usize {
        conv.layers * ConvLayer::bytes(slots.min(ConvLayer::READ_SLOTS), conv.channels)
    }

    /// Fills slots with finite noise from a linear congruential sequence.
    pub(super) fn poison(&mut self, slots: Range<u32>, seed: u64) {
        let mut state = seed | 1;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 20) as f32 - 8.0
        };
        for layer in self.layers() {
            for slot in slots.clone() {
                // SAFETY: the cache is ours alone.
                unsafe { layer.fill_slot(slot as usize, &mut noise) };
            }
        }
        for layer in self.convs() {
            for slot in slots.clone() {
                // SAFETY: as above.
                unsafe { layer.fill_slot(slot as usize, &mut noise) };
            }
        }
        // Places of further slots are those of committed ones.
        let in_scratch = slots.take(self.scratch);
        for layer in self.recurrences() {
            for slot in in_scratch.clone() {
                // SAFETY: as above.
                unsafe { layer.fill_slot(slot as usize, &mut noise) };
            }
        }
    }
}

impl SlotMoves for KvCache {
    fn copy_slots(&mut self, from: &[u32], first: u32) {
        let moves = || from.iter().map(|slot| *slot as usize).zip(first as usize..);
        for layer in self.layers() {
            for (source, destination) in moves() {
                // SAFETY: the cache is ours alone.
                unsafe { layer.copy_slot(source, destination) };
            }
        }
        for layer in self.convs() {
            for (source, destination) in moves() {
                // SAFETY: as above.
                unsafe { layer.copy_slot(source, destination) };
            }
        }
        for layer in self.recurrences() {
            for (source, destination) in moves() {
                // SAFETY: as above.
                unsafe { layer.copy_slot(source, destination) };
            }
        }
    }

    fn resume_point(&mut self, len: usize) -> usize {
        // SAFETY: nothing runs while the cache is asked.
        self.recurrences().map(|layer| unsafe { layer.resume_point(len) }).min().unwrap_or(len)
    }

    fn forget(&mut self, len: usize) {
        for layer in self.recurrences() {
            // SAFETY: the cache is ours alone.
            unsafe { layer.forget(len) };
        }
    }

    fn assume(&mut self, len: usize) {
        for layer in self.recurrences() {
            // SAFETY: the cache is ours alone.
            unsafe { layer.assume(len) };
        }
    }

    fn state_bytes(&self) -> usize {
        self.recurrences().map(|layer| StateLayer::moved_bytes(layer.shape())).sum()
    }

    fn state_end(&mut self) -> Option<usize> {
        // SAFETY: nothing runs while the cache is asked.
        self.recurrences().map(|layer| unsafe { layer.state_end() }).min().flatten()
    }

    fn read_state(&mut self, end: usize, mut bytes: &mut [u8]) {
        for layer in self.recurrences() {
            let (of_layer, rest) = bytes.split_at_mut(StateLayer::moved_bytes(layer.shape()));
            // SAFETY: the cache is ours alone.
            unsafe { layer.copy_state_out(end, of_layer) };
            bytes = rest;
        }
        assert!(bytes.is_empty(), "{} bytes too many", bytes.len());
    }

    fn write_state(&mut self, end: usize, mut bytes: &[u8]) {
        for layer in self.recurrences() {
            let (of_layer, rest) = bytes.split_at(StateLayer::moved_bytes(layer.shape()));
            // SAFETY: the cache is ours alone.
            unsafe { layer.copy_state_in(end, of_layer) };
            bytes = rest;
        }
        assert!(bytes.is_empty(), "{} bytes too many", bytes.len());
    }

    fn moved_bytes(&self, slots: usize) -> usize {
        let of_shape = |(layers, [kv_heads, head_dim]): (usize, [usize; 2])| {
            layers * KvLayer::moved_bytes(self.format, kv_heads, slots, head_dim)
        };
        self.spec.shapes().map(of_shape).iter().sum::<usize>() + Self::conv_bytes_moved(self.spec.conv, slots)
    }

    /// Keys and values layer by layer, and of what convolutions keep the slots that are read after the last one.
    fn read_slots(&mut self, slots: Range<u32>, mut bytes: &mut [u8]) {
        let (slots, conv_slots) = moved_slots(&slots);
        let (format, conv) = (self.format, self.spec.conv);
        for layer in self.layers() {
            let layer_bytes = KvLayer::moved_bytes(format, layer.kv_heads(), slots.len(), layer.head_dim());
            let (of_layer, rest) = bytes.split_at_mut(layer_bytes);
            // SAFETY: the cache is ours alone.
            unsafe { layer.copy_slots_out(slots.clone(), of_layer) };
            bytes = rest;
        }
        for layer in self.convs() {
            let (of_layer, rest) = bytes.split_at_mut(ConvLayer::bytes(conv_slots.len(), conv.channels));
            // SAFETY: as above.
            unsafe { layer.copy_slots_out(conv_slots.clone(), of_layer) };
            bytes = rest;
        }
        assert!(bytes.is_empty(), "{} bytes too many", bytes.len());
    }

    fn write_slots(&mut self, slots: Range<u32>, mut bytes: &[u8]) {
        let (slots, conv_slots) = moved_slots(&slots);
        let (format, conv) = (self.format, self.spec.conv);
        for layer in self.layers() {
            let layer_bytes = KvLayer::moved_bytes(format, layer.kv_heads(), slots.len(), layer.head_dim());
            let (of_layer, rest) = bytes.split_at(layer_bytes);
            // SAFETY: the cache is ours alone; a caller who got the bytes elsewhere breaks results, not memory.
            unsafe { layer.copy_slots_in(slots.clone(), of_layer) };
            bytes = rest;
        }
        for layer in self.convs() {
            let (of_layer, rest) = bytes.split_at(ConvLayer::bytes(conv_slots.len(), conv.channels));
            // SAFETY: as above.
            unsafe { layer.copy_slots_in(conv_slots.clone(), of_layer) };
            bytes = rest;
        }
        assert!(bytes.is_empty(), "{} bytes too many", bytes.len());
    }
}

/// Slots as places of a cache: those whose keys and values are moved, and the last of them, which convolutions read.
fn moved_slots(slots: &Range<u32>) -> (Range<usize>, Range<usize>) {
    let slots = slots.start as usize..slots.end as usize;
    let first_read = slots.end - slots.len().min(ConvLayer::READ_SLOTS);
    (slots.clone(), first_read..slots.end)
}
