//! The processor's tile registers.
//!
//! Intel's manual, volume 2: <https://www.felixcloutier.com/x86/ldtilecfg> and the pages of the other instructions
//! there.

use super::tiles::{ROW_BYTES, Shape, Tiles};
use std::{arch::asm, marker::PhantomData};

/// The thread's tile registers, configured.
///
/// They keep their contents from one `asm!` to the next: the compiler, which does not know of them, never uses them,
/// and no code of others runs in between but the system's, which saves them.
#[derive(Debug)]
pub(super) struct Hardware(PhantomData<*mut ()>);

/// Operand of `LDTILECFG`: palette 1, eight tiles.
#[derive(Debug)]
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 8],
    reserved_row_bytes: [u16; 8],
    rows: [u8; 8],
    reserved_rows: [u8; 8],
}

/// A row of zeros in one line of the cache.
#[repr(align(64))]
struct Zeros([u8; ROW_BYTES]);

/// The instructions, written once for the kernels and for the test of their encodings.
macro_rules! text {
    (configure $at:literal) => {
        concat!("ldtilecfg [", $at, "]")
    };
    (release) => {
        "tilerelease"
    };
    (load $at:literal, $stride:literal) => {
        concat!("tileloadd tmm{tile}, [", $at, " + 1*", $stride, "]")
    };
    (multiply) => {
        "tdpbf16ps tmm{c}, tmm{a}, tmm{b}"
    };
    (multiply_signed) => {
        "tdpbssd tmm{c}, tmm{a}, tmm{b}"
    };
    (multiply_unsigned) => {
        "tdpbsud tmm{c}, tmm{a}, tmm{b}"
    };
    (store $at:literal, $stride:literal) => {
        concat!("tilestored [", $at, " + 1*", $stride, "], tmm{tile}")
    };
}

// No block promises `nomem`: each is a barrier for memory, so that what the instructions read has been written.
impl Tiles for Hardware {
    #[inline(always)]
    unsafe fn configured(shapes: [Shape; 8]) -> Self {
        let config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: shapes.map(|shape| u16::from(shape.row_bytes)),
            reserved_row_bytes: [0; 8],
            rows: shapes.map(|shape| shape.rows),
            reserved_rows: [0; 8],
        };
        // SAFETY: the caller promised that tiles may be used; 64 bytes are read.
        unsafe {
            asm!(text!(configure "{at}"), at = in(reg) &raw const config, options(nostack, preserves_flags));
        }
        Self(PhantomData)
    }

    /// By a load: a product that adds to what `TILEZERO` left waits for all products before it (57 cycles for one of
    /// 16, on a Xeon with 480 MiB of L3).
    #[inline(always)]
    fn zero<const TILE: usize>(&mut self) {
        const ZEROS: &Zeros = &Zeros([0; ROW_BYTES]);
        // SAFETY: every row is the same 64 bytes, the most that a row has.
        unsafe { self.load::<TILE>(ZEROS.0.as_ptr(), 0) }
    }

    #[inline(always)]
    unsafe fn load<const TILE: usize>(&mut self, from: *const u8, stride: usize) {
        // SAFETY: the tile is configured, and the caller promised that its rows are readable.
        unsafe {
            asm!(
                text!(load "{at}", "{stride}"),
                tile = const TILE, at = in(reg) from, stride = in(reg) stride,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: the tiles are configured; shapes that do not fit would end the process, not corrupt memory.
        unsafe {
            asm!(text!(multiply), c = const C, a = const A, b = const B, options(nostack, preserves_flags))
        }
    }

    #[inline(always)]
    fn multiply_signed<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: see `multiply`.
        unsafe {
            asm!(text!(multiply_signed), c = const C, a = const A, b = const B, options(nostack, preserves_flags))
        }
    }

    #[inline(always)]
    fn multiply_unsigned<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: see `multiply`.
        unsafe {
            asm!(text!(multiply_unsigned), c = const C, a = const A, b = const B, options(nostack, preserves_flags))
        }
    }

    #[inline(always)]
    unsafe fn store<const TILE: usize>(&mut self, to: *mut u8) {
        // SAFETY: the tile is configured, and the caller promised that its rows are writable.
        unsafe {
            asm!(
                text!(store "{at}", "{stride}"),
                tile = const TILE, at = in(reg) to, stride = in(reg) ROW_BYTES,
                options(nostack, preserves_flags),
            );
        }
    }
}

impl Drop for Hardware {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: tiles may be used, as a value exists.
        unsafe { asm!(text!(release), options(nostack, preserves_flags)) }
    }
}

#[cfg(test)]
mod tests {
    use super::Config;
    use std::{arch::naked_asm, slice};

    /// Every instruction once. Never called: its bytes are read.
    #[unsafe(naked)]
    extern "C" fn every_instruction() {
        naked_asm!(
            text!(configure "rdi"),
            text!(load "rdi", "rsi"),
            text!(multiply),
            text!(multiply_signed),
            text!(multiply_unsigned),
            text!(store "rdi", "rsi"),
            text!(release),
            tile = const 3, c = const 0, a = const 4, b = const 6,
        )
    }

    /// By Intel's manual, volume 2: a VEX prefix of three bytes with map 0F38 and W 0, opcode, ModRM, and SIB for rows
    /// at `rdi` with the stride in `rsi`. The third operand of a product is the inverted `vvvv` of the prefix.
    #[test]
    fn instructions_are_encoded_as_the_manual_says() {
        #[rustfmt::skip]
        let expected = [
            0xc4, 0xe2, 0x78, 0x49, 0x07,             // no prefix 49 !(11):000:bbb
            0xc4, 0xe2, 0x7b, 0x4b, 0b00_011_100, 0b00_110_111, // F2 4B !(11):rrr:100
            0xc4, 0xe2, 0x4a, 0x5c, 0b11_000_100, // F3 5C 11:rrr:bbb
            0xc4, 0xe2, 0x4b, 0x5e, 0b11_000_100, // F2 5E 11:rrr:bbb
            0xc4, 0xe2, 0x4a, 0x5e, 0b11_000_100, // F3 5E 11:rrr:bbb
            0xc4, 0xe2, 0x7a, 0x4b, 0b00_011_100, 0b00_110_111, // F3 4B !(11):rrr:100
            0xc4, 0xe2, 0x78, 0x49, 0xc0,             // no prefix 49 11:000:000
        ];
        // SAFETY: the code of the function is readable, and no shorter.
        let found = unsafe { slice::from_raw_parts(every_instruction as *const u8, expected.len()) };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_configuration_lies_as_the_manual_says() {
        assert_eq!(size_of::<Config>(), 64);
        assert_eq!(std::mem::offset_of!(Config, row_bytes), 16);
        assert_eq!(std::mem::offset_of!(Config, rows), 48);
    }
}
