//! Tile registers in memory: what the instructions mean.

use super::tiles::{ROWS, Tiles};

/// Tiles as the processor's, with the rules that it enforces as assertions.
///
/// The manual's pseudocode, but for one case: a result so little below the smallest normal number that rounding lifts
/// it there is kept. <https://www.felixcloutier.com/x86/tdpbf16ps>
#[derive(Debug)]
pub(super) struct Emulated {
    rows: [usize; 8],
    /// `[tile][row][4 bytes]`.
    tiles: [[[u32; ROWS]; ROWS]; 8],
}

impl Emulated {
    /// As [`Tiles::configured`].
    ///
    /// # Panics
    /// If a tile has no rows or more than 16.
    pub(super) fn new(rows: [u8; 8]) -> Self {
        let rows = rows.map(usize::from);
        assert!(rows.iter().all(|rows| (1..=ROWS).contains(rows)), "tiles of {rows:?} rows");
        Self { rows, tiles: [[[0; ROWS]; ROWS]; 8] }
    }

    /// As [`Tiles::zero`].
    pub(super) fn zero(&mut self, tile: usize) {
        self.tiles[tile] = [[0; ROWS]; ROWS];
    }

    /// As [`Tiles::load`].
    ///
    /// # Safety
    /// The rows are readable at `from`.
    pub(super) unsafe fn load(&mut self, tile: usize, from: *const u8) {
        self.zero(tile);
        for (m, row) in self.tiles[tile][..self.rows[tile]].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            *row = unsafe { from.cast::<[u32; ROWS]>().add(m).read_unaligned() };
        }
    }

    /// As [`Tiles::multiply`].
    ///
    /// # Panics
    /// If the processor would refuse the tiles.
    pub(super) fn multiply(&mut self, c: usize, a: usize, b: usize) {
        assert!(c != a && c != b && a != b, "tiles {c}, {a} and {b} of a product must differ");
        let rows = [c, a, b].map(|tile| self.rows[tile]);
        assert!(
            rows[0] == rows[1] && rows[2] == ROWS,
            "tiles {c}, {a} and {b} of a product have {rows:?} rows"
        );
        for m in 0..rows[0] {
            let (mut even, mut odd) = ([0.0; ROWS], [0.0; ROWS]);
            for (a, row) in self.tiles[a][m].iter().zip(&self.tiles[b]) {
                for (n, b) in row.iter().enumerate() {
                    even[n] = fused(low(*a), low(*b), even[n]);
                    odd[n] = fused(high(*a), high(*b), odd[n]);
                }
            }
            for (n, c) in self.tiles[c][m].iter_mut().enumerate() {
                *c = sum(f32::from_bits(*c), sum(even[n], odd[n])).to_bits();
            }
        }
    }

    /// As [`Tiles::store`].
    ///
    /// # Safety
    /// The rows are writable at `to`.
    pub(super) unsafe fn store(&mut self, tile: usize, to: *mut u8) {
        for (m, row) in self.tiles[tile][..self.rows[tile]].iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe { to.cast::<[u32; ROWS]>().add(m).write_unaligned(*row) }
        }
    }
}

impl Tiles for Emulated {
    unsafe fn configured(rows: [u8; 8]) -> Self {
        Self::new(rows)
    }

    fn zero<const TILE: usize>(&mut self) {
        self.zero(TILE);
    }

    unsafe fn load<const TILE: usize>(&mut self, from: *const u8) {
        // SAFETY: promised by the caller.
        unsafe { self.load(TILE, from) }
    }

    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.multiply(C, A, B);
    }

    unsafe fn store<const TILE: usize>(&mut self, to: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe { self.store(TILE, to) }
    }
}

/// The lower bf16 of a pair.
fn low(pair: u32) -> f32 {
    f32::from_bits(pair << 16)
}

/// The upper bf16 of a pair.
fn high(pair: u32) -> f32 {
    f32::from_bits(pair & 0xffff_0000)
}

/// Denormal operands count as zeros, denormal results become zeros.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

fn fused(a: f32, b: f32, c: f32) -> f32 {
    flushed(flushed(a).mul_add(flushed(b), flushed(c)))
}

fn sum(a: f32, b: f32) -> f32 {
    flushed(flushed(a) + flushed(b))
}
