//! Products with bf16 tiles: the stored pairs are what a tile register loads.

use super::{Totals, operands::Operands};
use crate::cpu::amx::tiles::{TILE_BYTES, Tiles};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Writes `totals[row][n]` for the rows of `G` groups: block after block added in the results' registers.
///
/// # Safety
/// `operands` name a bf16 tile and a prepared chunk of `G` groups; `registers` are configured for it.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn dense<T: Tiles, const G: usize>(
    registers: &mut T,
    operands: Operands,
    totals: &mut Totals,
) {
    let at_once = const { if G <= 2 { 2 } else { 1 } };
    registers.zero::<0>();
    registers.zero::<1>();
    registers.zero::<2>();
    registers.zero::<3>();
    for b in (0..operands.blocks).step_by(at_once) {
        let weights = operands.tile.wrapping_add(b * TILE_BYTES);
        for line in 0..at_once * TILE_BYTES / 64 {
            _mm_prefetch::<_MM_HINT_T0>(weights.wrapping_add(operands.ahead + 64 * line).cast());
        }
        // SAFETY: the blocks are inside what the caller named.
        unsafe { operands.multiply_together::<T, G>(registers, weights, b) }
    }
    let to = totals.0.as_mut_ptr().cast::<u8>();
    // SAFETY: results hold 16 rows of a chunk each, and the chunk has room for all.
    unsafe {
        registers.store::<0>(to);
        if G > 1 {
            registers.store::<1>(to.add(TILE_BYTES));
        }
        if G > 2 {
            registers.store::<2>(to.add(2 * TILE_BYTES));
        }
        if G > 3 {
            registers.store::<3>(to.add(3 * TILE_BYTES));
        }
    }
}
