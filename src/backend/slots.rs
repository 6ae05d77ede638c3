//! Slots of a cache: how many there are, and how they are moved out of it and into it.

use std::ops::Range;

use ygg_kernels::{KvLayer, StateLayer};

/// Slots are moved by multiples of so many, whose keys lie together in some caches.
pub const MOVED_SLOTS: usize = KvLayer::KEY_BLOCK;

/// Committed slots that can be forgotten in any case where rows have a state.
pub const CUT_SLOTS: usize = StateLayer::STRIDE;

/// A cache whose slots can be copied, within it, to bytes, and from such bytes. Allocates nothing.
pub trait SlotMoves {
    /// Copies the keys and values of slots `from[i]` to slots `first + i`, in order. Sources may lie among the
    /// destinations as long as `from[i] >= first + i`.
    fn copy_slots(&mut self, from: &[u32], first: u32);

    /// The longest beginning of the first `len` committed slots that rows can follow: all of it, unless rows have a
    /// state and no state that is kept is after so few rows.
    fn resume_point(&mut self, len: usize) -> usize {
        len
    }

    /// Forgets all slots but the first `len`, which are a [`resume_point`](Self::resume_point): what is kept of rows
    /// together, not slot by slot.
    ///
    /// # Panics
    /// If rows cannot follow those.
    fn forget(&mut self, _len: usize) {}

    /// Takes what is kept for that of `len` rows, whatever it is: for measuring.
    fn assume(&mut self, _len: usize) {}

    /// Bytes of a state as [`read_state`](Self::read_state) gives it; 0 where rows have none.
    fn state_bytes(&self) -> usize {
        0
    }

    /// After how many committed slots, a multiple of [`CUT_SLOTS`], the latest state is that is kept; `None` without
    /// one.
    fn state_end(&mut self) -> Option<usize> {
        None
    }

    /// Copies the state after the first `end` slots, a [`state_end`](Self::state_end), to bytes.
    ///
    /// # Panics
    /// If there is none, or there is another number of bytes than [`state_bytes`](Self::state_bytes).
    fn read_state(&mut self, end: usize, bytes: &mut [u8]) {
        assert!(bytes.is_empty(), "{} bytes of a state after {end} slots, where rows have none", bytes.len());
    }

    /// Takes what `read_state` made of a state for the only one that is kept.
    ///
    /// # Panics
    /// If there is another number of bytes.
    fn write_state(&mut self, end: usize, bytes: &[u8]) {
        assert!(bytes.is_empty(), "{} bytes of a state after {end} slots, where rows have none", bytes.len());
    }

    /// Bytes of `slots` slots as [`read_slots`](Self::read_slots) gives them.
    fn moved_bytes(&self, slots: usize) -> usize;

    /// Copies keys and values of slots to bytes, and of what convolutions keep as much as rows after the last slot
    /// read. Waits for what was begun. After a failure the bytes are arbitrary.
    ///
    /// # Panics
    /// If the slots are not whole blocks of [`MOVED_SLOTS`], or there is another number of bytes than
    /// [`moved_bytes`](Self::moved_bytes).
    fn read_slots(&mut self, slots: Range<u32>, bytes: &mut [u8]);

    /// Copies slots from what [`read_slots`](Self::read_slots) made of as many, of a cache of the same programs and
    /// format. Waits for what was begun, and until the bytes were read.
    ///
    /// # Panics
    /// As `read_slots`.
    fn write_slots(&mut self, slots: Range<u32>, bytes: &[u8]);
}
