//! Views of one layer's KV memory and of what each row sees of it, and the inputs of the two ops over it.

use crate::{Rope, Rows, RowsMut};
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

/// Keys and values of one layer, each `[G, S, D]`: KV head, slot, element.
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

    /// Bytes of the keys, and of the values.
    pub const fn bytes(format: KvFormat, kv_heads: usize, slots: usize, head_dim: usize) -> usize {
        kv_heads * slots * head_dim * format.bytes()
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

    #[inline]
    fn offset(&self, head: usize, slot: usize) -> usize {
        assert!(head < self.kv_heads && slot < self.slots, "head {head}, slot {slot} of {self:?}");
        (head * self.slots + slot) * self.head_dim * self.format.bytes()
    }

    /// First byte of the key of `(head, slot)`.
    #[inline]
    pub(crate) fn key(&self, head: usize, slot: usize) -> *mut u8 {
        // SAFETY: `offset` is inside the memory that `from_raw` was promised.
        unsafe { self.keys.add(self.offset(head, slot)) }
    }

    /// First byte of the value of `(head, slot)`.
    #[inline]
    pub(crate) fn value(&self, head: usize, slot: usize) -> *mut u8 {
        // SAFETY: as in `key`.
        unsafe { self.values.add(self.offset(head, slot)) }
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

/// Inputs of `append_kv`: turns the keys of `W` new rows and stores keys and values.
#[derive(Clone, Copy, Debug)]
pub struct AppendKv<'a> {
    /// `[W, G * D]`.
    pub keys: Rows<'a>,
    /// `[W, G * D]`.
    pub values: Rows<'a>,
    /// `[W]`: position of each row in the text.
    pub positions: &'a [u32],
    /// `[W]`: where each row goes, or [`KvLayer::NO_SLOT`].
    pub slots: &'a [u32],
    /// Rotation of the keys.
    pub rope: Option<Rope<'a>>,
    /// Destination.
    pub kv: KvLayer<'a>,
}

impl AppendKv<'_> {
    /// Independent pieces of work: unit `w * G + g` stores KV head `g` of row `w`.
    pub fn units(&self) -> usize {
        self.keys.width() * self.kv.kv_heads
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self) {
        let (width, columns) = (self.keys.width(), self.kv.kv_heads * self.kv.head_dim);
        assert!(self.values.width() == width && self.positions.len() == width && self.slots.len() == width);
        assert!(
            self.keys.columns() == columns && self.values.columns() == columns,
            "keys of {columns} columns"
        );
    }

    /// Row, KV head and slot of a unit; `None` if it is not stored.
    pub(crate) fn place(&self, unit: usize) -> Option<(usize, usize, usize)> {
        let (w, head) = (unit / self.kv.kv_heads, unit % self.kv.kv_heads);
        (self.slots[w] != KvLayer::NO_SLOT).then_some((w, head, self.slots[w] as usize))
    }
}

/// Inputs of `attention`: each query head reads the logical sequence of its row.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// `[W, H * D]`.
    pub queries: Rows<'a>,
    /// Rotation of the queries.
    pub rope: Option<Rope<'a>>,
    /// Keys and values; `H` is a multiple of its heads.
    pub kv: KvLayer<'a>,
    /// What each row sees.
    pub tails: Tails<'a>,
    /// Query heads, `H`.
    pub heads: usize,
    /// Factor of the scores, `1 / sqrt(D)` as a rule.
    pub scale: f32,
}

impl Attention<'_> {
    /// Independent pieces of work, ordered by KV head, then row, then query head of the group: near units share keys.
    pub fn units(&self) -> usize {
        self.queries.width() * self.heads
    }

    /// Row, query head and KV head of a unit.
    pub(crate) fn place(&self, unit: usize) -> (usize, usize, usize) {
        let group = self.heads / self.kv.kv_heads;
        let (row, i) = (unit / group, unit % group);
        let (kv_head, w) = (row / self.queries.width(), row % self.queries.width());
        (w, kv_head * group + i, kv_head)
    }

    /// Length of the longest logical sequence.
    pub fn longest(&self) -> usize {
        (0..self.queries.width()).map(|w| self.tails.len(w)).max().unwrap_or(0)
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self, out: &RowsMut<'_>) {
        let (width, columns) = (self.queries.width(), self.heads * self.kv.head_dim);
        assert!(
            self.heads.is_multiple_of(self.kv.kv_heads),
            "{} heads over {} KV heads",
            self.heads,
            self.kv.kv_heads
        );
        assert!(
            self.queries.columns() == columns && out.columns() == columns,
            "queries of {columns} columns"
        );
        assert_eq!(out.width(), width, "rows of queries and output");
        self.tails.check(width, self.kv.slots);
    }
}
