//! Products in tile registers alone: what the processor can do at most.

use super::{
    hardware::Hardware,
    tiles::{ROW_BYTES, ROWS, Shape, TILE_BYTES, Tiles},
};
use std::hint::black_box;

/// Results in flight: as many tile registers as the kernels' products hold results in.
const RESULTS: u64 = 4;

/// Adds a full product to each of four results, `rounds` times. Multiplications and additions of a round, and the first
/// element of all results.
///
/// # Safety
/// [`super::usable`] said that tiles can be used.
pub(in crate::cpu) unsafe fn products(rounds: u64) -> (u64, f32) {
    // SAFETY: promised by the caller.
    unsafe { products_in::<Hardware>(rounds) }
}

/// # Safety
/// Such tiles may be used.
unsafe fn products_in<T: Tiles>(rounds: u64) -> (u64, f32) {
    // 0.5 in bf16.
    let halves = black_box([0x3f00_u16; TILE_BYTES / 2]);
    let mut result = [0.0_f32; TILE_BYTES / 4];
    let mut sum = 0.0;
    // SAFETY: promised by the caller; every operand is as large as a full tile.
    unsafe {
        let mut tiles = T::configured([Shape::FULL; 8]);
        tiles.zero::<0>();
        tiles.zero::<1>();
        tiles.zero::<2>();
        tiles.zero::<3>();
        tiles.load::<4>(halves.as_ptr().cast(), ROW_BYTES);
        tiles.load::<5>(halves.as_ptr().cast(), ROW_BYTES);
        for _ in 0..rounds {
            tiles.multiply::<0, 4, 5>();
            tiles.multiply::<1, 4, 5>();
            tiles.multiply::<2, 4, 5>();
            tiles.multiply::<3, 4, 5>();
        }
        let to = result.as_mut_ptr().cast::<u8>();
        tiles.store::<0>(to);
        sum += result[0];
        tiles.store::<1>(to);
        sum += result[0];
        tiles.store::<2>(to);
        sum += result[0];
        tiles.store::<3>(to);
        sum += result[0];
    }
    (2 * RESULTS * (ROWS * TILE_BYTES / 2) as u64, sum)
}

#[cfg(test)]
mod tests {
    use super::{super::emulated::Emulated, *};

    #[test]
    fn a_round_is_as_many_products_as_were_added() {
        // SAFETY: emulated tiles need nothing.
        let (flops, sum) = unsafe { products_in::<Emulated>(3) };
        assert_eq!(flops, 2 * 4 * 16 * 16 * 32);
        assert_eq!(sum, 4.0 * 3.0 * 32.0 * 0.25);
    }
}
