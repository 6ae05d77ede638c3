//! Views of one layer's KV memory and of what each row sees of it.

mod inputs;

pub use inputs::{AppendKv, Attention, PartialsShape};

use std::{cell::UnsafeCell, marker::PhantomData};

/// Element type of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvFormat {
    /// IEEE half, rounded to nearest even; values beyond its range become its largest finite value.
    F16,
    /// IEEE single.
    F32,
}

impl KvFormat {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

/// Keys and values of one layer.
///
/// Values are `[G, S, D]`: KV head, slot, element. Keys are `[G, S / 16, D, 16]`: the keys of 16 slots lie element by
/// element, so that one vector holds an element of all of them and scores need no sums over lanes. Memory is reserved
/// for whole blocks of slots.
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
    /// Slots whose keys lie together; elements from one element of a key to the next.
    pub const KEY_BLOCK: usize = 16;

    /// Bytes of the keys, and of the values.
    pub const fn bytes(format: KvFormat, kv_heads: usize, slots: usize, head_dim: usize) -> usize {
        kv_heads * slots.next_multiple_of(Self::KEY_BLOCK) * head_dim * format.bytes()
    }

    /// A view of memory that a cache owns.
    ///
    /// # Safety
    /// For the view's lifetime `keys` and `values` each point to [`KvLayer::bytes`] initialised bytes, aligned to the
    /// element, and hold finite numbers. While an op appends to a (slot, KV head), nothing else touches it.
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
            keys.addr().is_multiple_of(format.bytes()) && values.addr().is_multiple_of(format.bytes())
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

    /// First element of the key of `(head, slot)`; each other is [`KvLayer::KEY_BLOCK`] elements behind the one before.
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

    /// Copies keys and values of all heads from one slot to another.
    ///
    /// # Safety
    /// Nothing else touches the two slots meanwhile.
    ///
    /// # Panics
    /// If a slot is outside the cache.
    pub unsafe fn copy_slot(&self, from: usize, to: usize) {
        let row = self.head_dim * self.format.bytes();
        for head in 0..self.kv_heads {
            // SAFETY: both values are inside the cache, and ours by the caller's promise.
            unsafe { std::ptr::copy(self.value(head, from), self.value(head, to), row) };
            let (source, destination) = (self.key(head, from), self.key(head, to));
            for i in 0..self.head_dim {
                let at = i * Self::KEY_BLOCK * self.format.bytes();
                // SAFETY: element `i` of both keys, as above.
                unsafe { std::ptr::copy(source.add(at), destination.add(at), self.format.bytes()) };
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
        for head in 0..self.kv_heads {
            for i in 0..self.head_dim {
                // SAFETY: element `i` of the key and of the value, ours by the caller's promise.
                unsafe {
                    self.write(self.key(head, slot), i * Self::KEY_BLOCK, next());
                    self.write(self.value(head, slot), i, next());
                }
            }
        }
    }

    /// Writes an element, rounded to the format.
    ///
    /// # Safety
    /// Element `i` after `first` is the caller's to write.
    pub(crate) unsafe fn write(&self, first: *mut u8, i: usize, value: f32) {
        match self.format {
            KvFormat::F16 => {
                let limit = half::f16::MAX.to_f32();
                let value = half::f16::from_f32(value.clamp(-limit, limit));
                // SAFETY: promised by the caller.
                unsafe { first.cast::<half::f16>().add(i).write(value) }
            }
            // SAFETY: promised by the caller.
            KvFormat::F32 => unsafe { first.cast::<f32>().add(i).write(value) },
        }
    }

    /// Reads an element.
    ///
    /// # Safety
    /// Element `i` after `first` is in the cache, and nobody writes it meanwhile.
    pub(crate) unsafe fn read(&self, first: *const u8, i: usize) -> f32 {
        match self.format {
            // SAFETY: promised by the caller.
            KvFormat::F16 => unsafe { first.cast::<half::f16>().add(i).read() }.to_f32(),
            // SAFETY: promised by the caller.
            KvFormat::F32 => unsafe { first.cast::<f32>().add(i).read() },
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
