//! Products over weights of codes, written once for all formats and instruction sets.
//!
//! [`Vector`] is an instruction set, [`Kind`](crate::format::Kind) a format; the kernels are generic over both and are
//! compiled where the instructions of the vector are enabled. A kernel reads a tile of weights once, for all rows of a
//! group:
//! * up to four rows keep their sums in registers, and each vector of codes meets all of them; where a processor
//!   fetches more ahead of two rising streams than of one, two tiles are read in turn;
//! * more rows take turns over eight vectors of codes in registers, with their sums in the first cache; or, where there
//!   are tile registers, [`tiled`](mod@tiled) writes the weights of a block as bytes to the first cache, and tiles
//!   multiply them.
//!
//! Sums of integers are exact and have no order; the f32 operations of a result are those of
//! [`linear_int8`](crate::reference::linear_int8), or those that [`native`](mod@native) names, one by one. Hence the
//! bits are the same for every vector, number of rows and place of a row.

mod array;
mod int8;
mod native;
mod scales;
#[cfg(target_arch = "x86_64")]
mod tiled;
mod unpack;
mod vector;

#[cfg(test)]
mod tests;

pub(super) use array::Array;
pub(super) use int8::int8;
pub(super) use native::native;
#[cfg(target_arch = "x86_64")]
pub(super) use tiled::{Room, TileVector, shapes, tiled};
pub(super) use unpack::{bias, is_wide};
pub(super) use vector::{ByteProducts, Vector};

use super::packing::{CodeLayout, TILE};

/// Rows in a full group. Their sums over a tile take 4 KiB, and so do the integers in progress: both stay in the first
/// cache.
pub(super) const MANY: usize = 64;

/// Results of one stored tile: `[row][output]`.
#[repr(align(64))]
pub(super) struct Sums(pub(super) [[f32; TILE]; MANY]);

impl Sums {
    pub(super) const ZERO: Self = Self([[0.0; TILE]; MANY]);
}

/// Integers of rows in progress: `[row][output]`.
#[repr(align(64))]
struct Ints([[i32; TILE]; MANY]);

impl Ints {
    const ZERO: Self = Self([[0; TILE]; MANY]);
}

/// Tiles that a kernel takes at once: as many as it reads as streams of memory.
pub(super) const TOGETHER: usize = 2;

/// Operands of a kernel: tiles of weights, and a prepared group of rows.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// The first of the tiles, which are consecutive in memory.
    pub(super) tile: *const u8,
    pub(super) blocks: usize,
    /// Prepared group of exactly `rows` rows.
    pub(super) x: *const u8,
    pub(super) rows: usize,
    /// Tiles that vectors read in turn.
    pub(super) streams: usize,
    pub(super) fetching: Fetching,
}

/// What is fetched of weights before their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetching {
    /// Distance from a weight to the one to fetch while it is used; 0 leaves it to the processor.
    pub(super) ahead: usize,
    /// Whether one line of every two is fetched.
    pub(super) in_pairs: bool,
}

impl Operands {
    /// The same of tile `t` alone.
    #[inline(always)]
    fn of_tile(self, layout: CodeLayout, t: usize) -> Self {
        Self { tile: self.tile.wrapping_add(t * self.blocks * layout.bytes), ..self }
    }
}

/// Distances of fetching in tiles that are read in turn: the next tile of a stream comes after those of the other
/// streams.
#[derive(Clone, Copy)]
struct Distances {
    /// For blocks before `far_from`.
    near: usize,
    /// For the others, whose distance reaches one tile further.
    far: usize,
    far_from: usize,
    in_pairs: bool,
}

impl Distances {
    #[inline(always)]
    fn new(layout: CodeLayout, operands: &Operands, streams: usize) -> Self {
        let Operands { blocks, fetching: Fetching { ahead, in_pairs }, .. } = *operands;
        let tile = blocks * layout.bytes;
        if ahead == 0 || streams == 1 {
            return Self { near: ahead, far: ahead, far_from: 0, in_pairs };
        }
        let others = (streams - 1) * tile;
        let near = ahead + ahead / tile * others;
        Self { near, far: near + others, far_from: blocks - ahead % tile / layout.bytes, in_pairs }
    }

    /// What to fetch while block `b` of a tile is used.
    #[inline(always)]
    fn at(self, b: usize) -> Fetching {
        Fetching { ahead: if b < self.far_from { self.near } else { self.far }, in_pairs: self.in_pairs }
    }
}

/// From this distance on, what is fetched goes to the second cache: the first may lose it before its use.
const FAR: usize = 4096;

/// Lines that a processor brings together.
const PAIR: usize = 128;

/// Prefetches part `p` of a block, and what of the block is before or after all parts, as far ahead as it says.
#[inline(always)]
fn fetch(layout: CodeLayout, block: *const u8, p: usize, Fetching { ahead, in_pairs }: Fetching) {
    if ahead == 0 {
        return;
    }
    let share = layout.bytes / layout.parts;
    let at = block.wrapping_add(ahead + p * share);
    if in_pairs {
        let first = at.wrapping_sub(at.addr() % PAIR);
        for pair in 0..share.div_ceil(PAIR) {
            fetch_line::<false>(first.wrapping_add(PAIR * pair));
        }
        return;
    }
    for line in 0..share.div_ceil(64) {
        let line = at.wrapping_add(64 * line);
        if ahead < FAR {
            fetch_line::<true>(line);
        } else {
            fetch_line::<false>(line);
        }
    }
}

/// Asks for the line of an address, which may be anywhere, for the first cache or the second.
#[inline(always)]
fn fetch_line<const FIRST: bool>(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fetching touches nothing, and every processor of the architecture has the instruction.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        if FIRST {
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
        } else {
            _mm_prefetch::<_MM_HINT_T1>(at.cast());
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        use std::arch::asm;
        if FIRST {
            asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        } else {
            asm!("prfm pldl2keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    let _ = at;
}
