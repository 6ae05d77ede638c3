//! Tile registers in memory: what the instructions mean.

use super::tiles::{ROW_BYTES, ROWS, Shape, Tiles};

/// Tiles as the processor's, with the rules that it enforces as assertions.
///
/// The manual's pseudocode, but for one case: a result so little below the smallest normal number that rounding lifts
/// it there is kept. <https://www.felixcloutier.com/x86/tdpbf16ps>
#[derive(Debug)]
pub(in crate::cpu) struct Emulated {
    shapes: [Shape; 8],
    /// `[tile][row][4 bytes]`.
    tiles: [[[u32; ROWS]; ROWS]; 8],
}

// Out of line: kernels are many, and what they call need not be built into each.
impl Emulated {
    /// As [`Tiles::configured`].
    ///
    /// # Panics
    /// If a tile has no rows or more than 16, or its rows are empty, longer than 64 bytes, or not of whole fours of
    /// bytes.
    pub(super) fn new(shapes: [Shape; 8]) -> Self {
        for Shape { rows, row_bytes } in shapes {
            assert!((1..=ROWS).contains(&usize::from(rows)), "tiles of {shapes:?}");
            assert!(
                (1..=ROW_BYTES).contains(&usize::from(row_bytes)) && row_bytes % 4 == 0,
                "tiles of {shapes:?}"
            );
        }
        Self { shapes, tiles: [[[0; ROWS]; ROWS]; 8] }
    }

    /// As [`Tiles::zero`].
    #[inline(never)]
    pub(super) fn zero(&mut self, tile: usize) {
        self.tiles[tile] = [[0; ROWS]; ROWS];
    }

    /// As [`Tiles::load`].
    ///
    /// # Safety
    /// The rows are readable at `from`.
    #[inline(never)]
    pub(super) unsafe fn load(&mut self, tile: usize, from: *const u8, stride: usize) {
        self.zero(tile);
        let Shape { rows, row_bytes } = self.shapes[tile];
        for (m, row) in self.tiles[tile][..usize::from(rows)].iter_mut().enumerate() {
            for (i, four) in row[..usize::from(row_bytes) / 4].iter_mut().enumerate() {
                // SAFETY: promised by the caller.
                *four = unsafe { from.add(m * stride + 4 * i).cast::<u32>().read_unaligned() };
            }
        }
    }

    /// As [`Tiles::multiply`].
    ///
    /// # Panics
    /// If the processor would refuse the tiles.
    #[inline(never)]
    pub(super) fn multiply(&mut self, c: usize, a: usize, b: usize) {
        for m in 0..self.product_rows(c, a, b) {
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

    /// As [`Tiles::multiply_signed`], or [`Tiles::multiply_unsigned`] with a conversion to unsigned bytes.
    ///
    /// # Panics
    /// As [`Emulated::multiply`].
    #[inline(never)]
    pub(super) fn multiply_bytes(&mut self, c: usize, a: usize, b: usize, b_byte: fn(u8) -> i32) {
        for m in 0..self.product_rows(c, a, b) {
            for (a, row) in self.tiles[a][m].into_iter().zip(self.tiles[b]) {
                for (n, b) in row.into_iter().enumerate() {
                    let bytes = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
                    let sum: i32 = bytes.map(|(a, b)| i32::from(a.cast_signed()) * b_byte(b)).sum();
                    let c = &mut self.tiles[c][m][n];
                    *c = c.wrapping_add(sum.cast_unsigned());
                }
            }
        }
    }

    /// Rows of a product's result.
    fn product_rows(&self, c: usize, a: usize, b: usize) -> usize {
        assert!(c != a && c != b && a != b, "tiles {c}, {a} and {b} of a product must differ");
        let shapes = [c, a, b].map(|tile| self.shapes[tile]);
        let fit = [
            Shape::of_rows(shapes[0].rows),
            Shape { rows: shapes[0].rows, row_bytes: 4 * shapes[2].rows },
            Shape::of_rows(shapes[2].rows),
        ];
        assert_eq!(shapes, fit, "shapes of tiles {c}, {a} and {b} of a product");
        usize::from(shapes[0].rows)
    }

    /// As [`Tiles::store`].
    ///
    /// # Safety
    /// The rows are writable at `to`.
    #[inline(never)]
    pub(super) unsafe fn store(&mut self, tile: usize, to: *mut u8) {
        let Shape { rows, row_bytes } = self.shapes[tile];
        assert_eq!(usize::from(row_bytes), ROW_BYTES, "tile {tile} has rows that are not full");
        for (m, row) in self.tiles[tile][..usize::from(rows)].iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe { to.cast::<[u32; ROWS]>().add(m).write_unaligned(*row) }
        }
    }
}

impl Tiles for Emulated {
    unsafe fn configured(shapes: [Shape; 8]) -> Self {
        Self::new(shapes)
    }

    fn zero<const TILE: usize>(&mut self) {
        self.zero(TILE);
    }

    unsafe fn load<const TILE: usize>(&mut self, from: *const u8, stride: usize) {
        // SAFETY: promised by the caller.
        unsafe { self.load(TILE, from, stride) }
    }

    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.multiply(C, A, B);
    }

    fn multiply_signed<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.multiply_bytes(C, A, B, |b| i32::from(b.cast_signed()));
    }

    fn multiply_unsigned<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.multiply_bytes(C, A, B, i32::from);
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
