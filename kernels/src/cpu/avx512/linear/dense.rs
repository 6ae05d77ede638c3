//! Products with dense tiles: weights by f32 activations, or pairs of bf16 by pairs.

use crate::{
    WeightFormat,
    cpu::{
        activations::Layout,
        avx512::lanes::store,
        codes::{Fetching, Operands},
        packing::{BLOCK, TILE, block_bytes},
    },
};
use std::arch::x86_64::*;

/// A dense format, and how it meets activations.
pub(super) trait Dense {
    const FORMAT: WeightFormat;
    /// Columns of two steps, one of each chain.
    const COLUMNS: usize;
    const LAYOUT: Layout;

    /// Weights of the two steps at `at`.
    ///
    /// # Safety
    /// `at` is inside a tile, and the processor has the features.
    unsafe fn weights(at: *const u8) -> [__m512; 2];

    /// `chain` and the products of one step with a row's activations at `x`.
    ///
    /// # Safety
    /// `x` is inside a prepared row, and the processor has the features.
    unsafe fn add(chain: __m512, weights: __m512, x: *const u8) -> __m512;
}

/// Pairs of bf16 by pairs.
pub(super) struct BF16Pairs;
pub(super) struct BF16;
pub(super) struct F16;
pub(super) struct F32;

impl Dense for BF16Pairs {
    const FORMAT: WeightFormat = WeightFormat::BF16;
    const COLUMNS: usize = 4;
    const LAYOUT: Layout = Layout::Bf16;

    #[inline(always)]
    unsafe fn weights(at: *const u8) -> [__m512; 2] {
        // SAFETY: promised by the caller.
        unsafe { [_mm512_loadu_ps(at.cast()), _mm512_loadu_ps(at.add(64).cast())] }
    }

    #[inline(always)]
    unsafe fn add(chain: __m512, weights: __m512, x: *const u8) -> __m512 {
        // SAFETY: promised by the caller; all are 64 bytes of plain data.
        unsafe {
            let x = _mm512_set1_epi32(x.cast::<i32>().read_unaligned());
            let [weights, x] =
                [_mm512_castps_si512(weights), x].map(|bits| std::mem::transmute::<__m512i, __m512bh>(bits));
            _mm512_dpbf16_ps(chain, weights, x)
        }
    }
}

/// Formats whose values are multiplied as f32.
macro_rules! by_f32 {
    ($kind:ident, $at:ident, $weights:expr) => {
        impl Dense for $kind {
            const FORMAT: WeightFormat = WeightFormat::$kind;
            const COLUMNS: usize = 2;
            const LAYOUT: Layout = Layout::F32;

            #[inline(always)]
            unsafe fn weights($at: *const u8) -> [__m512; 2] {
                // SAFETY: promised by the caller.
                unsafe { $weights }
            }

            #[inline(always)]
            unsafe fn add(chain: __m512, weights: __m512, x: *const u8) -> __m512 {
                // SAFETY: promised by the caller.
                unsafe { _mm512_fmadd_ps(weights, _mm512_set1_ps(x.cast::<f32>().read_unaligned()), chain) }
            }
        }
    };
}

by_f32!(BF16, at, {
    let pairs = _mm512_loadu_si512(at.cast());
    let even = _mm512_slli_epi32::<16>(pairs);
    let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    [even, odd].map(|bits| _mm512_castsi512_ps(bits))
});
by_f32!(F16, at, {
    let halves = _mm512_loadu_si512(at.cast());
    let (even, odd) = (_mm512_castsi512_si256(halves), _mm512_extracti64x4_epi64::<1>(halves));
    [even, odd].map(|halves| _mm512_cvtph_ps(halves))
});
by_f32!(F32, at, [_mm512_loadu_ps(at.cast()), _mm512_loadu_ps(at.add(64).cast())]);

/// Writes `sums[r][n]` for `R` rows of f32 activations.
///
/// # Safety
/// `operands` names a tile of `D::FORMAT` and a group of `R` rows, prepared in its layout.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn dense<D: Dense, const R: usize>(operands: Operands, sums: &mut [[f32; TILE]]) {
    // SAFETY: promised by the caller.
    unsafe { walk::<D, R>(operands, sums) }
}

/// As [`dense`], of activations in bf16.
///
/// # Safety
/// As [`dense`]'s; the processor has BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn dense_pairs<D: Dense, const R: usize>(operands: Operands, sums: &mut [[f32; TILE]]) {
    // SAFETY: promised by the caller.
    unsafe { walk::<D, R>(operands, sums) }
}

/// Two chains of alternate steps over all blocks, then their sum.
///
/// # Safety
/// As of the function that it is inlined into.
#[inline(always)]
unsafe fn walk<D: Dense, const R: usize>(operands: Operands, sums: &mut [[f32; TILE]]) {
    let block_bytes = const { block_bytes(D::FORMAT) };
    let (weight_bytes, x_bytes) = (block_bytes / BLOCK, D::LAYOUT.block_bytes() / BLOCK);
    let Operands { mut tile, blocks, mut x, fetching: Fetching { ahead, .. }, .. } = operands;
    // SAFETY: the caller has the features.
    let zero = unsafe { _mm512_setzero_ps() };
    let (mut even, mut odd) = ([zero; R], [zero; R]);
    for _ in 0..blocks {
        // SAFETY: the block of the tile and of the group is inside what the caller named; prefetching touches nothing.
        unsafe {
            for line in 0..block_bytes / 64 {
                _mm_prefetch::<_MM_HINT_T0>(tile.wrapping_add(ahead + 64 * line).cast());
            }
            for column in (0..BLOCK).step_by(D::COLUMNS) {
                let weights = D::weights(tile.add(column * weight_bytes));
                for r in 0..R {
                    let x = x.add(r * D::LAYOUT.block_bytes() + column * x_bytes);
                    even[r] = D::add(even[r], weights[0], x);
                    odd[r] = D::add(odd[r], weights[1], x.add(4));
                }
            }
        }
        tile = tile.wrapping_add(block_bytes);
        x = x.wrapping_add(R * D::LAYOUT.block_bytes());
    }
    for (r, sums) in sums[..R].iter_mut().enumerate() {
        // SAFETY: the caller has the features.
        unsafe { store(sums, 0, _mm512_add_ps(even[r], odd[r])) };
    }
}
