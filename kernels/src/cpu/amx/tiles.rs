//! The operations on tile registers that kernels use.

/// Rows of a full tile of palette 1; `detection` compares it and the following with what CPUID (leaf 1DH) reports.
pub(in crate::cpu) const ROWS: usize = 16;
/// Bytes of a row, of every tile.
pub(in crate::cpu) const ROW_BYTES: usize = 64;
/// Bytes of a full tile.
pub(super) const TILE_BYTES: usize = ROWS * ROW_BYTES;

/// Shape of a tile register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct Shape {
    /// 1 to 16.
    pub(in crate::cpu) rows: u8,
    /// Bytes of a row: a multiple of 4, at most 64.
    pub(in crate::cpu) row_bytes: u8,
}

impl Shape {
    pub(super) const FULL: Self = Self::of_rows(ROWS as u8);

    /// Full rows.
    pub(in crate::cpu) const fn of_rows(rows: u8) -> Self {
        Self { rows, row_bytes: ROW_BYTES as u8 }
    }
}

/// Eight tile registers, configured together.
///
/// A register is 0 to 7. Those of a product differ, and have shapes that fit: `C[rows][16]` of 32 bits, `A[rows][4 k]`
/// bytes and `B[k][64]` bytes, where row `i` of `B` holds the bytes `4 i .. 4 i + 4` of 16 columns side by side.
pub(in crate::cpu) trait Tiles: Sized {
    /// Tiles of such shapes, with unknown contents. Released when dropped.
    ///
    /// # Safety
    /// [`super::usable`] said so, if these are the processor's.
    unsafe fn configured(shapes: [Shape; 8]) -> Self;

    /// Fills a tile with zeros.
    fn zero<const TILE: usize>(&mut self);

    /// Reads all rows of a tile, `stride` bytes from one to the next.
    ///
    /// # Safety
    /// They are readable at `from`.
    unsafe fn load<const TILE: usize>(&mut self, from: *const u8, stride: usize);

    /// Adds products of bf16 pairs to f32: see [`super`] for the order.
    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self);

    /// Adds products of signed bytes of `A` and of `B` to 32-bit integers, modulo 2^32.
    fn multiply_signed<const C: usize, const A: usize, const B: usize>(&mut self);

    /// As [`Tiles::multiply_signed`], with unsigned bytes in `B`.
    fn multiply_unsigned<const C: usize, const A: usize, const B: usize>(&mut self);

    /// Writes all rows of a tile, of 64 bytes, one after the other.
    ///
    /// # Safety
    /// They are writable at `to`.
    unsafe fn store<const TILE: usize>(&mut self, to: *mut u8);
}
