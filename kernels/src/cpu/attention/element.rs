//! Elements of keys and values as f32.

use crate::cpu::lanes::{LANES, Lanes};

/// A format of elements.
pub(super) trait Element {
    /// Bytes of one.
    const BYTES: usize;
    /// Whether the elements of a key or a value are multiplied with a scale.
    const IS_SCALED: bool;

    /// The values of 16 elements.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V;

    /// The values of the first `count` of less than 16 elements, then zeros.
    ///
    /// # Safety
    /// `count` elements are readable.
    #[inline(always)]
    unsafe fn load_first<S: Lanes>(s: S, from: *const u8, count: usize) -> S::V {
        let mut bytes = [0_u8; 4 * LANES];
        for (i, byte) in bytes.iter_mut().enumerate().take(count * Self::BYTES) {
            // SAFETY: promised by the caller.
            *byte = unsafe { *from.add(i) };
        }
        // SAFETY: the array has 16 elements of any format.
        unsafe { Self::load(s, bytes.as_ptr()) }
    }
}

/// f16.
pub(super) struct Half;

impl Element for Half {
    const BYTES: usize = 2;
    const IS_SCALED: bool = false;

    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V {
        // SAFETY: promised by the caller.
        unsafe { s.load_halves(from) }
    }
}

/// f32.
pub(super) struct Float;

impl Element for Float {
    const BYTES: usize = 4;
    const IS_SCALED: bool = false;

    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V {
        // SAFETY: promised by the caller.
        unsafe { s.load(from.cast()) }
    }
}

/// A signed byte.
pub(super) struct Code;

impl Element for Code {
    const BYTES: usize = 1;
    const IS_SCALED: bool = true;

    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V {
        // SAFETY: promised by the caller.
        unsafe { s.load_bytes(from) }
    }
}
