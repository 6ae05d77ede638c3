//! Whether tiles can be used here: processor, system, and a product that comes out right.

use super::{
    emulated::Emulated,
    hardware::Hardware,
    tiles::{ROW_BYTES, ROWS, Shape, TILE_BYTES, Tiles},
};
use std::arch::x86_64::{__cpuid_count, _xgetbv};

/// Whether the processor has tiles with products of bf16 and of bytes, the system lets this process use them, and they
/// compute what [`Emulated`] does. Takes a system call: ask once.
///
/// The processor must have AVX-512, with the system saving its registers.
pub(in crate::cpu) fn usable() -> bool {
    // SAFETY: a processor with AVX-512 has `XGETBV`, and the system enabled it.
    has_instructions() && unsafe { registers_are_saved() } && permitted() && {
        // SAFETY: instructions, saved registers and permission are there.
        unsafe { computes_right() }
    }
}

/// AMX-TILE, AMX-BF16 and AMX-INT8, with tiles of the shape that the kernels are written for.
pub(super) fn has_instructions() -> bool {
    const TILE: u32 = 1 << 24;
    const BF16: u32 = 1 << 22;
    const INT8: u32 = 1 << 25;
    const ALL: u32 = TILE | BF16 | INT8;
    let highest = __cpuid_count(0, 0).eax;
    if highest < 0x1e || __cpuid_count(7, 0).edx & ALL != ALL {
        return false;
    }
    let (palette, products) = (__cpuid_count(0x1d, 1), __cpuid_count(0x1e, 0));
    let bytes_and_rows = palette.eax >> 16 == TILE_BYTES as u32 && palette.ecx & 0xffff == ROWS as u32;
    let row_bytes_and_tiles = palette.ebx == 8 << 16 | ROW_BYTES as u32;
    let largest_product =
        products.ebx & 0xff >= ROWS as u32 && products.ebx >> 8 & 0xffff >= ROW_BYTES as u32;
    bytes_and_rows && row_bytes_and_tiles && largest_product
}

/// The system saves configuration and contents of tiles when it switches threads.
#[target_feature(enable = "xsave")]
fn registers_are_saved() -> bool {
    const TILE_STATES: u64 = 0b11 << 17;
    // SAFETY: the feature is enabled here.
    (unsafe { _xgetbv(0) }) & TILE_STATES == TILE_STATES
}

/// Asks Linux for the tiles' contents: it grants them to the whole process, threads that run already included.
/// <https://docs.kernel.org/arch/x86/xstate.html>
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: this call touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

/// How to ask other systems is not known.
#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// # Safety
/// Tiles may be used.
pub(super) unsafe fn computes_right() -> bool {
    [ROWS as u8, 5].into_iter().all(|rows| {
        let inputs = Inputs::new();
        // SAFETY: promised by the caller; emulated tiles need nothing.
        let (found, expected) =
            unsafe { (inputs.products::<Hardware>(rows), inputs.products::<Emulated>(rows)) };
        found == expected
    })
}

/// Operands and results of one product of each type.
struct Inputs {
    c: [u32; TILE_BYTES / 4],
    a: [u16; TILE_BYTES / 2],
    b: [u16; TILE_BYTES / 2],
}

impl Inputs {
    /// Numbers of either sign and many magnitudes, so that another order or rounding shows.
    fn new() -> Self {
        let mut state = 1_u32;
        let mut number = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let exponent = 120 + (state >> 8 & 15);
            state & 0x807f_ffff | exponent << 23
        };
        let c = std::array::from_fn(|_| number());
        let mut pairs = || std::array::from_fn(|_| (number() >> 16) as u16);
        Self { c, a: pairs(), b: pairs() }
    }

    /// The bits of the results, zeros after their rows.
    ///
    /// # Safety
    /// Such tiles may be used.
    unsafe fn products<T: Tiles>(&self, rows: u8) -> [[u32; TILE_BYTES / 4]; 3] {
        let mut results = [[0; TILE_BYTES / 4]; 3];
        // SAFETY: promised by the caller; every operand is as large as a full tile.
        unsafe {
            let mut tiles = T::configured([rows, rows, ROWS as u8, rows, rows, 1, 1, 1].map(Shape::of_rows));
            tiles.load::<0>(self.c.as_ptr().cast(), ROW_BYTES);
            tiles.load::<3>(self.c.as_ptr().cast(), ROW_BYTES);
            tiles.zero::<4>();
            tiles.load::<1>(self.a.as_ptr().cast(), ROW_BYTES);
            tiles.load::<2>(self.b.as_ptr().cast(), ROW_BYTES);
            tiles.multiply::<0, 1, 2>();
            tiles.multiply_signed::<3, 1, 2>();
            tiles.multiply_unsigned::<4, 1, 2>();
            let [bf16, signed, unsigned] = results.each_mut().map(|result| result.as_mut_ptr().cast());
            tiles.store::<0>(bf16);
            tiles.store::<3>(signed);
            tiles.store::<4>(unsigned);
        }
        results
    }
}
