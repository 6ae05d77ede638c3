//! What short convolutions keep of every slot, and the inputs of the op that keeps and reads it.

use super::{KvLayer, Tails};
use crate::{Rows, RowsMut};
use std::{cell::UnsafeCell, marker::PhantomData, ops::Range};

/// What the short convolution of one layer keeps: `[S, C]`, slot and channel. It is of f32 in every format of keys and
/// values, so that a row that reads it from the cache gets the bits that a row of the same forward would have handed
/// on.
#[derive(Clone, Copy, Debug)]
pub struct ConvLayer<'a> {
    start: *mut f32,
    slots: usize,
    channels: usize,
    memory: PhantomData<&'a UnsafeCell<f32>>,
}

// SAFETY: `from_raw` promises that the memory is shared by the rules it states, whichever thread uses the view.
unsafe impl Send for ConvLayer<'_> {}
// SAFETY: as above.
unsafe impl Sync for ConvLayer<'_> {}

impl ConvLayer<'_> {
    /// Bytes of a layer.
    pub const fn bytes(slots: usize, channels: usize) -> usize {
        slots * channels * size_of::<f32>()
    }

    /// A view of memory that a cache owns.
    ///
    /// # Safety
    /// For the view's lifetime `start` points to [`ConvLayer::bytes`] initialised bytes, aligned for f32, that hold
    /// finite numbers. While an op works on a channel, nothing else touches the channel in any slot.
    ///
    /// # Panics
    /// If a size is 0.
    pub unsafe fn from_raw(start: *mut f32, slots: usize, channels: usize) -> Self {
        assert!(slots > 0 && channels > 0, "{slots} slots of {channels} channels");
        Self { start, slots, channels, memory: PhantomData }
    }

    /// The channels of a slot.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn kept(&self, slot: usize, channels: Range<usize>) -> &[f32] {
        let start = self.at(slot, &channels);
        // SAFETY: inside the memory that `from_raw` was promised; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(start, channels.len()) }
    }

    /// The channels of a slot, to be written.
    ///
    /// # Safety
    /// Nothing else touches them while the slice lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the only user")]
    pub(crate) unsafe fn kept_mut(&self, slot: usize, channels: Range<usize>) -> &mut [f32] {
        let start = self.at(slot, &channels);
        // SAFETY: inside the memory that `from_raw` was promised; ours alone by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, channels.len()) }
    }

    #[inline(always)]
    fn at(&self, slot: usize, channels: &Range<usize>) -> *mut f32 {
        assert!(
            slot < self.slots && channels.start <= channels.end && channels.end <= self.channels,
            "channels {channels:?} of slot {slot} of {self:?}"
        );
        // SAFETY: inside the memory by the assertion.
        unsafe { self.start.add(slot * self.channels + channels.start) }
    }

    /// Where the channels of slots lie, in one piece.
    pub(super) fn pieces(&self, slots: Range<usize>) -> impl Iterator<Item = (*mut u8, usize)> {
        assert!(slots.start < slots.end && slots.end <= self.slots, "slots {slots:?} of {self:?}");
        let bytes = Self::bytes(slots.len(), self.channels);
        std::iter::once((self.at(slots.start, &(0..self.channels)).cast(), bytes))
    }

    /// Copies a slot to another.
    ///
    /// # Safety
    /// Nothing else touches the two slots meanwhile.
    ///
    /// # Panics
    /// If a slot is outside the cache.
    pub unsafe fn copy_slot(&self, from: usize, to: usize) {
        let all = 0..self.channels;
        // SAFETY: inside the memory, and ours by the caller's promise.
        unsafe { std::ptr::copy(self.at(from, &all), self.at(to, &all), self.channels) };
    }

    /// Overwrites a slot, channel by channel.
    ///
    /// # Safety
    /// Nothing else touches the slot meanwhile.
    ///
    /// # Panics
    /// If the slot is outside the cache.
    pub unsafe fn fill_slot(&self, slot: usize, mut next: impl FnMut() -> f32) {
        // SAFETY: promised by the caller.
        unsafe { self.kept_mut(slot, 0..self.channels) }.fill_with(&mut next);
    }
}

/// Inputs of `short_conv`: a convolution of every channel over the last rows of each row's logical sequence, between
/// two gates.
///
/// With `x = (b, c, v)`, a row keeps `k = b * v` in its slot and gives
/// `c * (taps[T - 1] * k + taps[T - 2] * k' + ...)`, where `k'` is what the row before it keeps, and so on. Before the
/// first row of a sequence there are zeros.
#[derive(Clone, Copy, Debug)]
pub struct ShortConv<'a> {
    /// `[W, 3 C]`: gates of what goes in, gates of what comes out, values.
    pub x: Rows<'a>,
    /// `[C, T]`: of each channel, the tap of the row itself last.
    pub taps: &'a [f32],
    /// `[W]`: where each row goes, or [`KvLayer::NO_SLOT`].
    pub slots: &'a [u32],
    /// What each row sees.
    pub tails: Tails<'a>,
    /// What rows keep.
    pub memory: ConvLayer<'a>,
}

impl ShortConv<'_> {
    /// Most taps of a channel, `T`.
    pub const MOST_TAPS: usize = 8;
    /// Channels of a unit.
    pub(crate) const UNIT: usize = 16;

    /// Independent pieces of work: channels `16 u .. 16 u + 16` of all rows, as rows read what those before them keep.
    pub fn units(&self) -> usize {
        self.memory.channels.div_ceil(Self::UNIT)
    }

    /// The channels of a unit.
    pub(crate) fn channels(&self, unit: usize) -> Range<usize> {
        let all = self.memory.channels;
        (unit * Self::UNIT).min(all)..((unit + 1) * Self::UNIT).min(all)
    }

    /// `T`.
    pub(crate) fn tap_count(&self) -> usize {
        self.taps.len() / self.memory.channels
    }

    /// The gates of what goes in, the gates of what comes out and the values of some channels of row `w`.
    #[inline(always)]
    pub(crate) fn parts(&self, w: usize, channels: &Range<usize>) -> [&[f32]; 3] {
        let (row, all) = (self.x.row(w), self.memory.channels);
        [0, all, 2 * all].map(|first| &row[first + channels.start..first + channels.end])
    }

    /// Rows that are kept, with their slots.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (usize, usize)> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| **slot != KvLayer::NO_SLOT).map(|(w, slot)| (w, *slot as usize))
    }

    /// Slots of the rows before row `w` that have a tap, the nearest first, with the numbers of their taps.
    #[inline(always)]
    pub(crate) fn before(&self, w: usize) -> impl Iterator<Item = (usize, usize)> {
        let (len, taps) = (self.tails.len(w), self.tap_count());
        (1..taps.min(len)).map(move |back| (self.tails.slot(w, len - 1 - back), taps - 1 - back))
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self, out: &RowsMut<'_>) {
        let (width, channels) = (self.x.width(), self.memory.channels);
        assert!(
            self.x.columns() == 3 * channels && out.columns() == channels && out.width() == width,
            "[{width}, {}] to [{}, {}] over {channels} channels",
            self.x.columns(),
            out.width(),
            out.columns()
        );
        assert!(
            self.taps.len().is_multiple_of(channels) && (1..=Self::MOST_TAPS).contains(&self.tap_count()),
            "{} taps of {channels} channels",
            self.taps.len()
        );
        assert_eq!(self.slots.len(), width, "slots of the rows");
        self.tails.check(width, self.memory.slots);
    }
}
