//! What the kernels ask of tile registers.

/// Rows of a full tile.
pub(super) const ROWS: usize = 16;
/// Bytes of a row, of every tile.
pub(super) const ROW_BYTES: usize = 64;
/// Bytes of a full tile.
pub(super) const TILE_BYTES: usize = ROWS * ROW_BYTES;

/// Eight tile registers of rows of 64 bytes, configured together. Memory holds rows without gaps.
///
/// A register is 0 to 7; of a product it must have the number of rows that the product needs.
pub(super) trait Tiles: Sized {
    /// Tiles with so many rows each, 1 to 16, and unknown contents. Released when dropped.
    ///
    /// # Safety
    /// [`super::usable`] said so, if these are the processor's.
    unsafe fn configured(rows: [u8; 8]) -> Self;

    /// Fills a tile with zeros.
    fn zero<const TILE: usize>(&mut self);

    /// Reads all rows of a tile.
    ///
    /// # Safety
    /// They are readable at `from`.
    unsafe fn load<const TILE: usize>(&mut self, from: *const u8);

    /// `C[m][n] += sum over k of A[m][k] * B[k/2][n][k%2]` for f32 `C[rows][16]`, bf16 `A[rows][32]` and bf16
    /// `B[16][16][2]`: three different tiles, `C` and `A` of equal rows, `B` of 16.
    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self);

    /// Writes all rows of a tile.
    ///
    /// # Safety
    /// They are writable at `to`.
    unsafe fn store<const TILE: usize>(&mut self, to: *mut u8);
}
