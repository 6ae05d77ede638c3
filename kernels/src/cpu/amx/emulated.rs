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

impl Tiles for Emulated {
    unsafe fn configured(rows: [u8; 8]) -> Self {
        let rows = rows.map(usize::from);
        assert!(rows.iter().all(|rows| (1..=ROWS).contains(rows)), "tiles of {rows:?} rows");
        Self { rows, tiles: [[[0; ROWS]; ROWS]; 8] }
    }

    fn zero<const TILE: usize>(&mut self) {
        self.tiles[TILE] = [[0; ROWS]; ROWS];
    }

    unsafe fn load<const TILE: usize>(&mut self, from: *const u8) {
        let mut tile = [[0; ROWS]; ROWS];
        for (m, row) in tile[..self.rows[TILE]].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            *row = unsafe { from.cast::<[u32; ROWS]>().add(m).read_unaligned() };
        }
        self.tiles[TILE] = tile;
    }

    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
        assert!(C != A && C != B && A != B, "tiles {C}, {A} and {B} of a product must differ");
        assert!(
            self.rows[C] == self.rows[A] && self.rows[B] == ROWS,
            "tiles {C}, {A} and {B} of a product have {:?} rows",
            [self.rows[C], self.rows[A], self.rows[B]]
        );
        for m in 0..self.rows[C] {
            let (mut even, mut odd) = ([0.0; ROWS], [0.0; ROWS]);
            for (a, row) in self.tiles[A][m].iter().zip(&self.tiles[B]) {
                for (n, b) in row.iter().enumerate() {
                    even[n] = fused(low(*a), low(*b), even[n]);
                    odd[n] = fused(high(*a), high(*b), odd[n]);
                }
            }
            for (n, c) in self.tiles[C][m].iter_mut().enumerate() {
                *c = sum(f32::from_bits(*c), sum(even[n], odd[n])).to_bits();
            }
        }
    }

    unsafe fn store<const TILE: usize>(&mut self, to: *mut u8) {
        for (m, row) in self.tiles[TILE][..self.rows[TILE]].iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe { to.cast::<[u32; ROWS]>().add(m).write_unaligned(*row) }
        }
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
