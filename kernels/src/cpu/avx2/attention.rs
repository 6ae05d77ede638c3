//! Attention of up to four units at once, which share the keys and values of a KV head.

use super::lanes::{LANES, exp, first, halves, largest, load, store, sum};
use crate::{
    Attention, KvFormat, KvLayer, RowsMut,
    cpu::batch::{Batch, UNITS, batch_len},
};
use std::{arch::x86_64::*, ops::Range};

/// Slots scored together.
const BLOCK: usize = KvLayer::KEY_BLOCK;

/// Computes the given units.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn attention(
    args: &Attention<'_>,
    units: Range<usize>,
    scratch: &mut [f32],
    out: &mut RowsMut<'_>,
) {
    match args.kv.format() {
        KvFormat::F16 => each_batch::<true>(args, units, scratch, out),
        KvFormat::F32 => each_batch::<false>(args, units, scratch, out),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn each_batch<const HALF: bool>(
    args: &Attention<'_>,
    units: Range<usize>,
    scratch: &mut [f32],
    out: &mut RowsMut<'_>,
) {
    let mut unit = units.start;
    while unit < units.end {
        let count = batch_len(args, unit, units.end);
        match count {
            1 => attend::<HALF, 1>(args, unit, scratch, out),
            2 => attend::<HALF, 2>(args, unit, scratch, out),
            3 => attend::<HALF, 3>(args, unit, scratch, out),
            UNITS => attend::<HALF, UNITS>(args, unit, scratch, out),
            _ => unreachable!("a batch of {count} units"),
        }
        unit += count;
    }
}

/// Units `unit..unit + U`, all of one KV head.
#[target_feature(enable = "avx2,fma,f16c")]
fn attend<const HALF: bool, const U: usize>(
    args: &Attention<'_>,
    unit: usize,
    scratch: &mut [f32],
    out: &mut RowsMut<'_>,
) {
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let batch = Batch::<U>::new(args, unit);
    let padded_dim = head_dim.next_multiple_of(LANES);
    let (queries, scratch) = scratch.split_at_mut(U * padded_dim);
    let (totals, scores) = scratch.split_at_mut(U * padded_dim);
    let stride = scores.len() / U / BLOCK * BLOCK;
    assert!(stride >= batch.blocks * BLOCK && batch.blocks <= kv.blocks(), "room for scores");
    totals.fill(0.0);
    for (u, query) in queries.chunks_exact_mut(padded_dim).enumerate() {
        batch.turn_query(u, &mut query[..head_dim]);
    }

    let keys = Keys { head_dim, scale: args.scale };
    for block in 0..batch.blocks {
        let at = kv.key_block(batch.kv_head, block).cast_const();
        let scores = scores[block * BLOCK..].as_mut_ptr();
        // SAFETY: blocks of the cache in the format that `HALF` tells; queries and scores have room for `U` units.
        unsafe { keys.score::<HALF, U>(at, queries.as_ptr(), padded_dim, scores, stride) };
    }

    let mut factors = [0.0; U];
    for (u, factor) in factors.iter_mut().enumerate() {
        let scores = &mut scores[u * stride..][..stride];
        let query = &queries[u * padded_dim..][..padded_dim];
        batch.order(u, scores, |slot| {
            let mut lanes = [0.0; BLOCK];
            let at = kv.key_block(batch.kv_head, slot / BLOCK).cast_const();
            // SAFETY: as above, for one unit and one block.
            unsafe { keys.score::<HALF, 1>(at, query.as_ptr(), padded_dim, lanes.as_mut_ptr(), BLOCK) };
            lanes[slot % BLOCK]
        });
        *factor = soften(scores, batch.len(u));
    }

    let row_bytes = head_dim * kv.format().bytes();
    // SAFETY: every value is followed by `head_dim` elements of the cache.
    unsafe {
        if batch.shared > 0 {
            let values = kv.value(batch.kv_head, 0).cast_const();
            let last = kv.value(batch.kv_head, batch.shared - 1).cast_const();
            debug_assert_eq!(last.addr() - values.addr(), (batch.shared - 1) * row_bytes);
            let value = |position: usize| values.wrapping_add(position * row_bytes);
            // More columns would not fit the registers of three or four units.
            if U > 2 {
                weigh::<HALF, U, 2>(0..batch.shared, value, scores, stride, head_dim, totals);
            } else {
                weigh::<HALF, U, 4>(0..batch.shared, value, scores, stride, head_dim, totals);
            }
        }
        for (u, factor) in factors.into_iter().enumerate() {
            let (scores, total) =
                (&scores[u * stride..][..stride], &mut totals[u * padded_dim..][..padded_dim]);
            let value = |position| kv.value(batch.kv_head, batch.slot(u, position)).cast_const();
            weigh::<HALF, 1, 4>(batch.shared..batch.len(u), value, scores, stride, head_dim, total);
            let (w, columns) = batch.place(u);
            let out = out.span(w, columns);
            for at in (0..head_dim).step_by(LANES) {
                store(out, at, _mm256_mul_ps(load(total, at), _mm256_set1_ps(factor)));
            }
        }
    }
}

/// Elements of a key, and what its products are multiplied with.
#[derive(Clone, Copy)]
struct Keys {
    head_dim: usize,
    scale: f32,
}

impl Keys {
    /// Scaled products of `U` queries with a block of keys, `[U, stride]`: a product has one chain over the elements.
    ///
    /// # Safety
    /// A block is readable at `keys`, `head_dim` elements every `padded_dim` at `queries`, and 16 scores are writable
    /// every `stride` at `scores`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn score<const HALF: bool, const U: usize>(
        self,
        keys: *const u8,
        queries: *const f32,
        padded_dim: usize,
        scores: *mut f32,
        stride: usize,
    ) {
        const VECTORS: usize = BLOCK / LANES;
        let vector = const { LANES * if HALF { 2 } else { 4 } };
        let mut sums = [[_mm256_setzero_ps(); VECTORS]; U];
        for i in 0..self.head_dim {
            let mut lanes = [_mm256_setzero_ps(); VECTORS];
            for (v, lanes) in lanes.iter_mut().enumerate() {
                let at = keys.wrapping_add((VECTORS * i + v) * vector);
                // SAFETY: promised by the caller.
                *lanes = unsafe { if HALF { halves(at) } else { _mm256_loadu_ps(at.cast()) } };
            }
            for (u, sums) in sums.iter_mut().enumerate() {
                // SAFETY: promised by the caller.
                let query = _mm256_set1_ps(unsafe { *queries.add(u * padded_dim + i) });
                for (sum, lanes) in sums.iter_mut().zip(lanes) {
                    *sum = _mm256_fmadd_ps(query, lanes, *sum);
                }
            }
        }
        let scale = _mm256_set1_ps(self.scale);
        for (u, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                // SAFETY: promised by the caller.
                unsafe { _mm256_storeu_ps(scores.add(u * stride + v * LANES), _mm256_mul_ps(sum, scale)) };
            }
        }
    }
}

/// Replaces scores by `exp(score - max)` and returns the inverse of their sum, which has one chain per lane.
#[target_feature(enable = "avx2,fma,f16c")]
fn soften(scores: &mut [f32], len: usize) -> f32 {
    if len == 0 {
        return 0.0;
    }
    let scores = &mut scores[..len.next_multiple_of(LANES)];
    let mut max = _mm256_set1_ps(f32::NEG_INFINITY);
    for block in scores.chunks_exact(LANES) {
        max = _mm256_max_ps(max, load(block, 0));
    }
    let max = _mm256_set1_ps(largest(max));
    let mut sums = _mm256_setzero_ps();
    for block in scores.chunks_exact_mut(LANES) {
        // The filling of the last vector, minus infinity, becomes 0.
        let weights = exp(_mm256_sub_ps(load(block, 0), max));
        sums = _mm256_add_ps(sums, weights);
        store(block, 0, weights);
    }
    1.0 / sum(sums)
}

/// Adds the weighted values of `positions` to the totals of `U` units, one chain per element, in logical order; `C`
/// vectors of a head at a time.
///
/// # Safety
/// `value` gives pointers to `head_dim` readable elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn weigh<const HALF: bool, const U: usize, const C: usize>(
    positions: Range<usize>,
    value: impl Fn(usize) -> *const u8,
    weights: &[f32],
    stride: usize,
    head_dim: usize,
    totals: &mut [f32],
) {
    let padded_dim = head_dim.next_multiple_of(LANES);
    assert!(totals.len() >= U * padded_dim && weights.len() >= (U - 1) * stride + positions.end);
    for start in (0..head_dim).step_by(LANES * C) {
        let mut sums = [[_mm256_setzero_ps(); C]; U];
        for (u, sums) in sums.iter_mut().enumerate() {
            let total = &totals[u * padded_dim..][..padded_dim];
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = load(total, start + LANES * c);
            }
        }
        for position in positions.clone() {
            let value = value(position);
            let mut values = [_mm256_setzero_ps(); C];
            for (c, lanes) in values.iter_mut().enumerate() {
                // SAFETY: `head_dim` elements were promised.
                *lanes = unsafe { elements::<HALF>(value, start + LANES * c, head_dim) };
            }
            for (u, sums) in sums.iter_mut().enumerate() {
                // SAFETY: inside `weights` by the assertion.
                let weight = _mm256_set1_ps(unsafe { *weights.as_ptr().add(u * stride + position) });
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = _mm256_fmadd_ps(weight, value, *sum);
                }
            }
        }
        for (u, sums) in sums.into_iter().enumerate() {
            let total = &mut totals[u * padded_dim..][..padded_dim];
            for (c, sum) in sums.into_iter().enumerate() {
                store(total, start + LANES * c, sum);
            }
        }
    }
}

/// Elements `at..at + 8` of a head of `len` as f32, zeros past the end.
///
/// # Safety
/// `len` elements are readable at `head`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn elements<const HALF: bool>(head: *const u8, at: usize, len: usize) -> __m256 {
    let count = len.saturating_sub(at);
    // SAFETY: eight elements are there, or only those that are there are read; masked lanes are not accessed.
    unsafe {
        if HALF {
            let head = head.cast::<u16>().wrapping_add(at);
            if count >= LANES { halves(head.cast()) } else { first_halves(head, count) }
        } else {
            let head = head.cast::<f32>().wrapping_add(at);
            if count >= LANES { _mm256_loadu_ps(head) } else { _mm256_maskload_ps(head, first(count)) }
        }
    }
}

/// Less than eight f16 numbers, then zeros. Joined in numbers, as a copy would be a call, around which the loops over
/// positions would save all their registers.
///
/// # Safety
/// `count` elements are readable at `head`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn first_halves(head: *const u16, count: usize) -> __m256 {
    let mut words = [0u64; 2];
    for i in 0..count.min(LANES) {
        // SAFETY: promised by the caller.
        words[i / 4] |= u64::from(unsafe { *head.wrapping_add(i) }) << (16 * (i % 4));
    }
    _mm256_cvtph_ps(_mm_set_epi64x(words[1].cast_signed(), words[0].cast_signed()))
}
