//! Slots moved out of a cache and into it as bytes, piece of memory by piece of memory.

use std::ops::Range;

use super::{ConvLayer, KvFormat, KvLayer, ShortConv};

/// Copies what lies at `pieces`, one after the other, to bytes.
///
/// # Safety
/// Every piece is initialised memory that nobody writes meanwhile.
unsafe fn copy_out(pieces: impl Iterator<Item = (*mut u8, usize)>, mut to: &mut [u8]) {
    for (piece, bytes) in pieces {
        let (first, rest) = to.split_at_mut(bytes);
        // SAFETY: promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(piece, first.as_mut_ptr(), bytes) };
        to = rest;
    }
    assert!(to.is_empty(), "{} bytes too many", to.len());
}

/// Copies bytes to where `pieces` are, one after the other.
///
/// # Safety
/// Every piece is memory that nothing else touches meanwhile.
unsafe fn copy_in(pieces: impl Iterator<Item = (*mut u8, usize)>, mut from: &[u8]) {
    for (piece, bytes) in pieces {
        let (first, rest) = from.split_at(bytes);
        // SAFETY: promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), piece, bytes) };
        from = rest;
    }
    assert!(from.is_empty(), "{} bytes too many", from.len());
}

impl KvLayer<'_> {
    /// Bytes of the keys and values of `slots` slots, whole blocks of them.
    pub const fn moved_bytes(format: KvFormat, kv_heads: usize, slots: usize, head_dim: usize) -> usize {
        2 * Self::bytes(format, kv_heads, slots, head_dim)
    }

    /// Where the keys and values of whole blocks of slots lie, with their scales: head by head.
    ///
    /// # Panics
    /// If the slots are no whole blocks of [`KvLayer::KEY_BLOCK`] inside the cache.
    fn pieces(&self, slots: Range<usize>) -> impl Iterator<Item = (*mut u8, usize)> {
        assert!(
            slots.start.is_multiple_of(Self::KEY_BLOCK)
                && slots.end.is_multiple_of(Self::KEY_BLOCK)
                && slots.start < slots.end
                && slots.end <= self.slots(),
            "slots {slots:?} of {self:?}"
        );
        let codes = slots.len() * self.head_dim() * self.format().bytes();
        let scales = slots.len() * size_of::<f32>();
        (0..self.kv_heads()).flat_map(move |head| {
            let keys = self.key_block(head, slots.start / Self::KEY_BLOCK);
            let values = self.value(head, slots.start);
            let scaled = (self.format() == KvFormat::Q8).then(|| {
                [self.key_scale(head, slots.start), self.value_scale(head, slots.start)]
                    .map(|scale| (scale.cast::<u8>(), scales))
            });
            [(keys, codes), (values, codes)].into_iter().chain(scaled.into_iter().flatten())
        })
    }

    /// Copies keys and values of whole blocks of slots to `to`, of [`moved_bytes`](Self::moved_bytes).
    ///
    /// # Safety
    /// Nobody writes the slots meanwhile.
    ///
    /// # Panics
    /// If the slots are no whole blocks inside the cache, or there is another number of bytes.
    pub unsafe fn copy_slots_out(&self, slots: Range<usize>, to: &mut [u8]) {
        // SAFETY: pieces of the cache, which is initialised; unwritten by the caller's promise.
        unsafe { copy_out(self.pieces(slots), to) };
    }

    /// Copies keys and values of whole blocks of slots from what [`copy_slots_out`](Self::copy_slots_out) made of slots
    /// of a layer of the same shape.
    ///
    /// # Safety
    /// Nothing else touches the slots meanwhile, and the bytes are those of a layer of the same shape.
    ///
    /// # Panics
    /// As `copy_slots_out`.
    pub unsafe fn copy_slots_in(&self, slots: Range<usize>, from: &[u8]) {
        // SAFETY: pieces of the cache, ours alone by the caller's promise.
        unsafe { copy_in(self.pieces(slots), from) };
    }
}

impl ConvLayer<'_> {
    /// Slots at the end of a text that rows after it read.
    pub const READ_SLOTS: usize = ShortConv::MOST_TAPS - 1;

    /// Copies the channels of slots to `to`, of [`ConvLayer::bytes`].
    ///
    /// # Safety
    /// Nobody writes the slots meanwhile.
    ///
    /// # Panics
    /// If a slot is outside the cache, or there is another number of bytes.
    pub unsafe fn copy_slots_out(&self, slots: Range<usize>, to: &mut [u8]) {
        // SAFETY: as promised by the caller.
        unsafe { copy_out(self.pieces(slots), to) };
    }

    /// Copies the channels of slots from what [`copy_slots_out`](Self::copy_slots_out) made of as many.
    ///
    /// # Safety
    /// Nothing else touches the slots meanwhile, and the bytes are those of finite numbers.
    ///
    /// # Panics
    /// As `copy_slots_out`.
    pub unsafe fn copy_slots_in(&self, slots: Range<usize>, from: &[u8]) {
        // SAFETY: as promised by the caller.
        unsafe { copy_in(self.pieces(slots), from) };
    }
}
