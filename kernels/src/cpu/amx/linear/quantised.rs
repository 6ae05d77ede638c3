//! Products with quantised tiles: exact codes expanded to bf16 tiles, scales applied per block.

use super::{
    Totals,
    operands::{GROUPS, Operands},
};
use crate::{
    WeightFormat,
    cpu::{
        amx::tiles::{ROWS, TILE_BYTES, Tiles},
        avx512::lanes::{load, store},
        packing::{TILE, block_bytes},
    },
};
use std::arch::x86_64::*;

/// Where things lie in a packed block, and what codes mean.
pub(super) trait Codes {
    const FORMAT: WeightFormat;
    /// Whether f16 minima follow the f16 scales.
    const HAS_MIN: bool;
    /// The 4-bit code that means zero, or `None` for signed bytes.
    const ZERO: Option<i8>;
}

pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q8_0;

impl Codes for Q4_0 {
    const FORMAT: WeightFormat = WeightFormat::Q4_0;
    const HAS_MIN: bool = false;
    const ZERO: Option<i8> = Some(8);
}

impl Codes for Q4_1 {
    const FORMAT: WeightFormat = WeightFormat::Q4_1;
    const HAS_MIN: bool = true;
    const ZERO: Option<i8> = Some(0);
}

impl Codes for Q8_0 {
    const FORMAT: WeightFormat = WeightFormat::Q8_0;
    const HAS_MIN: bool = false;
    const ZERO: Option<i8> = None;
}

/// The values of 4-bit codes as bf16, twice: bit 4 of an index belongs to the next code and must not matter.
const fn values(zero: Option<i8>) -> [u16; 32] {
    let mut values = [0; 32];
    if let Some(zero) = zero {
        let mut code = 0;
        while code < 32 {
            values[code] = (((code % 16) as f32 - zero as f32).to_bits() >> 16) as u16;
            code += 1;
        }
    }
    values
}

/// Where a kernel meets its tile registers, in the nearest cache: expanded weights, and products of blocks.
#[repr(C, align(64))]
pub(super) struct Buffers {
    weights: [[u8; TILE_BYTES]; GROUPS],
    /// `[result][row][output]`.
    products: [[[f32; TILE]; ROWS]; GROUPS],
}

impl Buffers {
    pub(super) const ZERO: Self =
        Self { weights: [[0; TILE_BYTES]; GROUPS], products: [[[0.0; TILE]; ROWS]; GROUPS] };
}

/// Writes `totals[row][n]` for the rows of `G` groups: a block's products, scaled, are added to a row's total, block
/// after block.
///
/// # Safety
/// `operands` name a tile of `C::FORMAT` and a prepared chunk of `G` groups; `registers` are configured for it.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn quantised<C: Codes, T: Tiles, const G: usize>(
    registers: &mut T,
    operands: Operands,
    buffers: &mut Buffers,
    totals: &mut Totals,
) {
    let (block_bytes, at_once) = const { (block_bytes(C::FORMAT), GROUPS / G) };
    let values = const { values(C::ZERO) };
    // SAFETY: 64 bytes on the stack.
    let values = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
    for totals in &mut totals.0[..(G - 1) * ROWS + operands.last] {
        store(totals, 0, _mm512_setzero_ps());
    }
    for b in (0..operands.blocks).step_by(at_once) {
        let present = at_once.min(operands.blocks - b);
        let first = operands.tile.wrapping_add(b * block_bytes);
        for (i, weights) in buffers.weights[..present].iter_mut().enumerate() {
            let block = first.wrapping_add(i * block_bytes);
            // SAFETY: the block is inside the tile that the caller named; prefetching touches nothing.
            unsafe {
                for line in 0..block_bytes.div_ceil(64) {
                    _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(operands.ahead + 64 * line).cast());
                }
                expand::<C>(block, values, weights);
            }
        }
        registers.zero::<0>();
        registers.zero::<1>();
        registers.zero::<2>();
        registers.zero::<3>();
        let to = buffers.products.as_mut_ptr().cast::<u8>();
        // SAFETY: the blocks are inside what the caller named; there is room for four full results.
        unsafe {
            operands.multiply_apart::<T, G>(registers, buffers.weights.as_ptr().cast(), b);
            registers.store::<0>(to);
            registers.store::<1>(to.add(TILE_BYTES));
            registers.store::<2>(to.add(2 * TILE_BYTES));
            registers.store::<3>(to.add(3 * TILE_BYTES));
        }
        for (i, products) in buffers.products.chunks_exact(G).take(present).enumerate() {
            // SAFETY: the block and its rows' sums are inside what the caller named.
            unsafe {
                let block = first.wrapping_add(i * block_bytes);
                add_block::<C, G>(block, operands, b + i, products, totals);
            }
        }
    }
}

/// Adds the scaled products of a block, `products[group][row][n]`, to `totals`.
///
/// # Safety
/// `block` is packed block `b` of `C::FORMAT`, `operands` name a chunk of `G` groups that has such a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn add_block<C: Codes, const G: usize>(
    block: *const u8,
    operands: Operands,
    b: usize,
    products: &[[[f32; TILE]; ROWS]],
    totals: &mut Totals,
) {
    // SAFETY: scales, and minima where the format has them, are the first bytes of a block.
    let (d, m) = unsafe {
        (halves(block), if C::HAS_MIN { halves(block.add(2 * TILE)) } else { _mm512_setzero_ps() })
    };
    for (g, products) in products.iter().enumerate() {
        let rows = operands.rows::<G>(g);
        let sums = operands.sums.wrapping_add(operands.place::<G>(b, g));
        let totals = &mut totals.0[g * ROWS..][..rows];
        for (r, (total, products)) in totals.iter_mut().zip(products).enumerate() {
            let mut sum = _mm512_fmadd_ps(d, load(products, 0), load(total, 0));
            if C::HAS_MIN {
                // SAFETY: the row is one of the block's rows in the group.
                let x = unsafe { sums.add(r).read() };
                sum = _mm512_fmadd_ps(m, _mm512_set1_ps(x), sum);
            }
            store(total, 0, sum);
        }
    }
}

/// Writes the codes of a block as bf16 pairs `[k/2][n][k%2]`, exactly.
///
/// # Safety
/// `block` is a packed block of `C::FORMAT`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn expand<C: Codes>(block: *const u8, values: __m512i, weights: &mut [u8; TILE_BYTES]) {
    let codes_at = const { if C::HAS_MIN { 4 * TILE } else { 2 * TILE } };
    let (codes, to) = (block.wrapping_add(codes_at), weights.as_mut_ptr());
    for four in 0..4 {
        // SAFETY: the codes of a block; 16 pairs of 64 bytes.
        unsafe {
            if C::ZERO.is_some() {
                let mut codes = _mm512_loadu_si512(codes.add(64 * four).cast());
                for pair in 4 * four..4 * four + 4 {
                    _mm512_storeu_si512(to.add(64 * pair).cast(), _mm512_permutexvar_epi16(codes, values));
                    codes = _mm512_srli_epi16::<4>(codes);
                }
            } else {
                for pair in 4 * four..4 * four + 4 {
                    let codes = codes.add(2 * TILE * pair);
                    let (low, high) = (_mm_loadu_si128(codes.cast()), _mm_loadu_si128(codes.add(16).cast()));
                    let low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low));
                    let high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high));
                    let weights = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                    _mm512_storeu_si512(to.add(64 * pair).cast(), weights);
                }
            }
        }
    }
}

/// 16 f16 numbers.
///
/// # Safety
/// 32 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: promised by the caller.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
}
