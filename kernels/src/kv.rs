//! Views of what one layer keeps of every slot, and of what each row sees of it.

pub(crate) mod codes;
mod inputs;
mod moved;
mod recurrence;
mod short_conv;
mod states;

pub use inputs::{AppendKv, Attention, PartialsShape, Scoring};
pub(crate) use recurrence::{LEAST_SQUARES, Source};
pub use recurrence::{Recurrence, ScanWeights, StateForm, StateWeights};
pub use short_conv::{ConvLayer, ShortConv};
pub(crate) use states::STATE_LANES;
pub use states::{StateLayer, StateRule, StateShape};

use std::{cell::UnsafeCell, fmt, marker::PhantomData};

/// Element type of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvFormat {
    /// IEEE half, rounded to nearest even; values beyond its range become its largest finite value.
    F16,
    /// IEEE single.
    F32,
    /// A signed byte for each element, and an f32 that they are multiplied with for each key and each value: their
    /// largest magnitude by 127. What is not a number becomes 0.
    Q8,
}

impl KvFormat {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::Q8 => 1,
        }
    }

    /// Bytes of one key, and of one value, of `head_dim` elements.
    pub const fn head_bytes(self, head_dim: usize) -> usize {
        let scale = match self {
            Self::F16 | Self::F32 => 0,
            Self::Q8 => size_of::<f32>(),
        };
        head_dim * self.bytes() + scale
    }

    /// What keys and values are aligned to.
    const fn alignment(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::Q8 => 4,
        }
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Q8 => "q8",
        }
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Keys and values of one layer.
///
/// Values are `[G, S, D]`: KV head, slot, element. Keys are `[G, S / 16, D, 16]`: the keys of 16 slots lie element by
/// element, so that one vector holds an element of all of them and scores need no sums over lanes. After both lie, for
/// formats that have them, the scales, `[G, S]`. Memory is reserved for whole blocks of slots.
#[derive(Clone, Copy, Debug)]
pub struct KvLayer<'a> {
    keys: *mut u8,
    values: *mut u8,
    format: KvFormat,
    kv_heads: usize,
    slots: usize,
    head_dim: usize,
    memory: PhantomData<&'a UnsafeCell<u8>>,
}

// SAFETY: `from_raw` promises that the memory is shared by the rules it states, whichever thread uses the view.
unsafe impl Send for KvLayer<'_> {}
// SAFETY: as above.
unsafe impl Sync for KvLayer<'_> {}

impl KvLayer<'_> {
    /// A row with this slot is not stored: padding rows keep their keys to themselves.
    pub const NO_SLOT: u32 = u32::MAX;
    /// Largest head dimension: kernels turn a head in a buffer of this size.
    pub const MAX_HEAD_DIM: usize = 512;
    /// Slots whose keys lie together, a vector of scores; elements from one element of a key to the next.
    pub const KEY_BLOCK: usize = 16;

    /// Bytes of the keys, and of the values.
    pub const fn bytes(format: KvFormat, kv_heads: usize, slots: usize, head_dim: usize) -> usize {
        kv_heads * slots.next_multiple_of(Self::KEY_BLOCK) * format.head_bytes(head_dim)
    }

    /// A view of memory that a cache owns.
    ///
    /// # Safety
    /// For the view's lifetime `keys` and `values` each point to [`KvLayer::bytes`] initialised bytes, aligned to the
    /// largest number in it, and hold finite numbers. While an op appends to a (slot, KV head), nothing else touches
    /// it.
    ///
    /// # Panics
    /// If a size is 0, or above [`KvLayer::MAX_HEAD_DIM`] for `head_dim`.
    pub unsafe fn from_raw(
        keys: *mut u8,
        values: *mut u8,
        format: KvFormat,
        kv_heads: usize,
        slots: usize,
        head_dim: usize,
    ) -> Self {
        assert!(
            kv_heads > 0 && slots > 0 && slots < Self::NO_SLOT as usize,
            "{kv_heads} KV heads, {slots} slots"
        );
        assert!(0 < head_dim && head_dim <= Self::MAX_HEAD_DIM, "head dimension {head_dim}");
        debug_assert!(
            keys.addr().is_multiple_of(format.alignment())
                && values.addr().is_multiple_of(format.alignment())
        );
        Self { keys, values, format, kv_heads, slots, head_dim, memory: PhantomData }
    }

    /// Element type.
    pub fn format(&self) -> KvFormat {
        self.format
    }

    /// KV heads, `G`.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Slots, `S`.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Elements of a head, `D`.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Blocks of slots that memory is reserved for.
    pub(crate) fn blocks(&self) -> usize {
        self.slots.div_ceil(Self::KEY_BLOCK)
    }

    /// Bytes of a block of keys.
    #[inline]
    pub(crate) fn block_bytes(&self) -> usize {
        Self::KEY_BLOCK * self.head_dim * self.format.bytes()
    }

    /// First byte of the keys of a KV head, which need not be there.
    #[inline]
    pub(crate) fn keys(&self, head: usize) -> *const u8 {
        self.keys.wrapping_add(head * self.blocks() * self.block_bytes())
    }

    /// First byte of the values of a KV head, which need not be there.
    #[inline]
    pub(crate) fn values(&self, head: usize) -> *const u8 {
        self.values.wrapping_add(head * self.blocks() * self.block_bytes())
    }

    /// First byte of the keys of a KV head in slots `16 block .. 16 block + 16`.
    #[inline]
    pub(crate) fn key_block(&self, head: usize, block: usize) -> *mut u8 {
        assert!(head < self.kv_heads && block < self.blocks(), "head {head}, block {block} of {self:?}");
        // SAFETY: inside the memory that `from_raw` was promised.
        unsafe { self.keys.add((head * self.blocks() + block) * self.block_bytes()) }
    }

    /// First element of the key of `(head, slot)`; each other is [`KvLayer::KEY_BLOCK`] elements after the one before.
    #[inline]
    pub(crate) fn key(&self, head: usize, slot: usize) -> *mut u8 {
        assert!(slot < self.slots, "slot {slot} of {self:?}");
        let block = self.key_block(head, slot / Self::KEY_BLOCK);
        // SAFETY: inside the block's first line.
        unsafe { block.add(slot % Self::KEY_BLOCK * self.format.bytes()) }
    }

    /// First byte of the value of `(head, slot)`; its elements follow each other.
    #[inline]
    pub(crate) fn value(&self, head: usize, slot: usize) -> *mut u8 {
        assert!(head < self.kv_heads && slot < self.slots, "head {head}, slot {slot} of {self:?}");
        let row = head * self.blocks() * Self::KEY_BLOCK + slot;
        // SAFETY: inside the memory that `from_raw` was promised.
        unsafe { self.values.add(row * self.head_dim * self.format.bytes()) }
    }

    /// Scale of the key of `(head, slot)`; those of the next slots of the head follow. Only where the format has
    /// scales.
    #[inline]
    pub(crate) fn key_scale(&self, head: usize, slot: usize) -> *mut f32 {
        self.scale(self.keys, head, slot)
    }

    /// Scale of the value of `(head, slot)`; those of the next slots of the head follow. Only where the format has
    /// scales.
    #[inline]
    pub(crate) fn value_scale(&self, head: usize, slot: usize) -> *mut f32 {
        self.scale(self.values, head, slot)
    }

    #[inline]
    fn scale(&self, half: *mut u8, head: usize, slot: usize) -> *mut f32 {
        let slots = self.blocks() * Self::KEY_BLOCK;
        assert!(self.format == KvFormat::Q8 && head < self.kv_heads && slot < slots, "a scale of {self:?}");
        let codes = self.kv_heads * slots * self.head_dim;
        // SAFETY: inside the memory that `from_raw` was promised, which is aligned for numbers, as the codes are whole
        // blocks.
        unsafe { half.add(codes).cast::<f32>().add(head * slots + slot) }
    }

    /// Copies keys and values of all heads from one slot to another.
    ///
    /// # Safety
    /// Nothing else touches the two slots meanwhile.
    ///
    /// # Panics
    /// If a slot is outside the cache.
    pub unsafe fn copy_slot(&self, from: usize, to: usize) {
        // SAFETY: promised by the caller.
        unsafe { self.copy_slot_of(self, from, to) }
    }

    /// Copies keys and values of all heads from slot `from` of another layer of the same shape to slot `to`.
    ///
    /// # Safety
    /// Nothing else touches the two slots meanwhile.
    ///
    /// # Panics
    /// If a slot is outside the cache, or shapes differ.
    pub unsafe fn copy_slot_of(&self, other: &Self, from: usize, to: usize) {
        let Self { format, kv_heads, head_dim, .. } = *self;
        assert!(
            (format, kv_heads, head_dim) == (other.format, other.kv_heads, other.head_dim),
            "{other:?} to {self:?}"
        );
        for head in 0..kv_heads {
            // SAFETY: both values are inside the cache, and ours by the caller's promise.
            unsafe {
                std::ptr::copy(other.value(head, from), self.value(head, to), head_dim * format.bytes())
            };
            let (source, destination) = (other.key(head, from), self.key(head, to));
            for i in 0..head_dim {
                let at = i * Self::KEY_BLOCK * format.bytes();
                // SAFETY: element `i` of both keys, as above.
                unsafe { std::ptr::copy(source.add(at), destination.add(at), format.bytes()) };
            }
            if format == KvFormat::Q8 {
                // SAFETY: the scales of both, as above.
                unsafe {
                    *self.key_scale(head, to) = *other.key_scale(head, from);
                    *self.value_scale(head, to) = *other.value_scale(head, from);
                }
            }
        }
    }

    /// Overwrites keys and values of all heads of a slot, element by element.
    ///
    /// # Safety
    /// Nothing else touches the slot meanwhile.
    ///
    /// # Panics
    /// If the slot is outside the cache.
    pub unsafe fn fill_slot(&self, slot: usize, mut next: impl FnMut() -> f32) {
        let (mut key, mut value) = ([0.0; Self::MAX_HEAD_DIM], [0.0; Self::MAX_HEAD_DIM]);
        for head in 0..self.kv_heads {
            for (key, value) in key.iter_mut().zip(&mut value).take(self.head_dim) {
                (*key, *value) = (next(), next());
            }
            // SAFETY: promised by the caller.
            unsafe { self.write(head, slot, &key[..self.head_dim], &value[..self.head_dim]) };
        }
    }

    /// Writes the key and the value of `(head, slot)` (`[D]`), rounded to the format: the meaning of storing.
    ///
    /// # Safety
    /// Nothing else touches them meanwhile.
    pub(crate) unsafe fn write(&self, head: usize, slot: usize, key: &[f32], value: &[f32]) {
        assert!(key.len() == self.head_dim && value.len() == self.head_dim, "elements of {self:?}");
        let (to_key, to_value) = (self.key(head, slot), self.value(head, slot));
        match self.format {
            KvFormat::F16 => {
                let limit = half::f16::MAX.to_f32();
                let rounded = |x: f32| half::f16::from_f32(x.clamp(-limit, limit));
                for i in 0..self.head_dim {
                    // SAFETY: elements of (head, slot), the caller's to write.
                    unsafe {
                        to_key.cast::<half::f16>().add(i * Self::KEY_BLOCK).write(rounded(key[i]));
                        to_value.cast::<half::f16>().add(i).write(rounded(value[i]));
                    }
                }
            }
            KvFormat::F32 => {
                for i in 0..self.head_dim {
                    // SAFETY: as above.
                    unsafe {
                        to_key.cast::<f32>().add(i * Self::KEY_BLOCK).write(key[i]);
                        to_value.cast::<f32>().add(i).write(value[i]);
                    }
                }
            }
            KvFormat::Q8 => {
                let mut codes = [0; Self::MAX_HEAD_DIM];
                // SAFETY: as above.
                unsafe {
                    *self.key_scale(head, slot) = codes::encode(key, &mut codes);
                    for (i, code) in codes.iter().enumerate().take(self.head_dim) {
                        to_key.cast::<i8>().add(i * Self::KEY_BLOCK).write(*code);
                    }
                    *self.value_scale(head, slot) = codes::encode(value, &mut codes);
                    to_value.cast::<i8>().copy_from_nonoverlapping(codes.as_ptr(), self.head_dim);
                }
            }
        }
    }

    /// Reads element `i` of the key and of the value of `(head, slot)`.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    pub(crate) unsafe fn read(&self, head: usize, slot: usize, i: usize) -> (f32, f32) {
        assert!(i < self.head_dim, "element {i} of {self:?}");
        let (key, value) = (self.key(head, slot), self.value(head, slot));
        // SAFETY: element `i` of both, which nobody writes by the caller's promise.
        unsafe {
            match self.format {
                KvFormat::F16 => (
                    key.cast::<half::f16>().add(i * Self::KEY_BLOCK).read().to_f32(),
                    value.cast::<half::f16>().add(i).read().to_f32(),
                ),
                KvFormat::F32 => {
                    (key.cast::<f32>().add(i * Self::KEY_BLOCK).read(), value.cast::<f32>().add(i).read())
                }
                KvFormat::Q8 => (
                    f32::from(key.cast::<i8>().add(i * Self::KEY_BLOCK).read()) * *self.key_scale(head, slot),
                    f32::from(value.cast::<i8>().add(i).read()) * *self.value_scale(head, slot),
                ),
            }
        }
    }
}

/// What each row sees: a committed prefix, where slot equals position, then the slots of its ancestors.
///
/// The *logical* sequence of row `w` is slots `0..prefix[w]` followed by its tail; position `i` of it is the `i`-th
/// of these. Attention depends on that sequence only. A row with neither sees nothing and gets zeros.
#[derive(Clone, Copy, Debug)]
pub struct Tails<'a> {
    /// `[W]`: position of each row in the text, for the rotation of its query.
    pub positions: &'a [u32],
    /// `[W]`: committed slots that the row sees.
    pub prefix: &'a [u32],
    /// `[W]`: slots in the row's tail.
    pub tail_len: &'a [u32],
    /// `[W, tail_capacity]`: slots of the tail, root first, the row itself last.
    pub tails: &'a [u32],
    /// Row stride of `tails`.
    pub tail_capacity: usize,
}

impl<'a> Tails<'a> {
    /// Rows described.
    pub fn width(&self) -> usize {
        self.positions.len()
    }

    /// Slots that row `w` sees after the prefix.
    #[inline]
    pub fn tail(&self, w: usize) -> &'a [u32] {
        &self.tails[w * self.tail_capacity..][..self.tail_len[w] as usize]
    }

    /// Length of the logical sequence of row `w`.
    #[inline]
    pub fn len(&self, w: usize) -> usize {
        self.prefix[w] as usize + self.tail_len[w] as usize
    }

    /// Slot of logical position `position` of row `w`.
    #[inline]
    pub fn slot(&self, w: usize, position: usize) -> usize {
        let prefix = self.prefix[w] as usize;
        if position < prefix { position } else { self.tail(w)[position - prefix] as usize }
    }

    /// # Panics
    /// If the arrays do not describe the same rows, or a row leaves a cache of `slots` slots.
    pub(crate) fn check(&self, width: usize, slots: usize) {
        let Self { positions, prefix, tail_len, tails, tail_capacity } = *self;
        assert!(
            positions.len() == width && prefix.len() == width && tail_len.len() == width,
            "tails of {} rows for {width}",
            positions.len()
        );
        assert!(
            tails.len() >= width * tail_capacity,
            "{} tail slots for {width} x {tail_capacity}",
            tails.len()
        );
        for w in 0..width {
            assert!(
                tail_len[w] as usize <= tail_capacity,
                "tail of {} in room for {tail_capacity}",
                tail_len[w]
            );
            assert!(prefix[w] as usize <= slots, "prefix of {} in {slots} slots", prefix[w]);
        }
    }
}
