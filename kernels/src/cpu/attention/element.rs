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

/// Declares formats of elements: bytes of one, whether there are scales, and how 16 of them are loaded.
macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident = $bytes:literal, $is_scaled:literal, $load:ident;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl Element for $name {
                const BYTES: usize = $bytes;
                const IS_SCALED: bool = $is_scaled;

                #[inline(always)]
                unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V {
                    // SAFETY: promised by the caller.
                    unsafe { s.$load(from.cast()) }
                }
            }
        )*
    };
}

elements! {
    /// f16.
    Half = 2, false, load_halves;
    /// f32.
    Float = 4, false, load;
    /// A signed byte.
    Code = 1, true, load_bytes;
}
