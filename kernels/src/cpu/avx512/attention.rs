//! Attention of up to four units at once, which share the keys and values of a KV head.

use super::lanes::{exp, first, load, store, sum};
use crate::{
    Attention, KvFormat, KvLayer, RowsMut,
    cpu::batch::{Batch, UNITS, batch_len},
};
use std::{arch::x86_64::*, ops::Range};

/// Slots scored together.
const BLOCK: usize = KvLayer::KEY_BLOCK;

/// Computes the given units.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn attend<const HALF: bool, const U: usize>(
    args: &Attention<'_>,
    unit: usize,
    scratch: &mut [f32],
    out: &mut RowsMut<'_>,
) {
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let batch = Batch::<U>::new(args, unit);
    let padded_dim = head_dim.next_multiple_of(16);
    let (queries, scratch) = scratch.split_at_mut(U * padded_dim);
    let (totals, scores) = scratch.split_at_mut(U * padded_dim);
    let stride = scores.len() / U / BLOCK * BLOCK;
    assert!(stride >= batch.blocks * BLOCK && batch.blocks <= kv.blocks(), "room for scores");
    totals.fill(0.0);
    for (u, query) in queries.chunks_exact_mut(padded_dim).enumerate() {
        batch.turn_query(u, &mut query[..head_dim]);
    }

    let keys = Keys { head_dim, scale: args.scale, block_bytes: kv.block_bytes() };
    let mut block = 0;
    // SAFETY: blocks of the cache in the format that `HALF` tells; queries and scores have room for `U` units.
    unsafe {
        let (query, scores) = (queries.as_ptr(), scores.as_mut_ptr());
        while block + 4 <= batch.blocks {
            let at = kv.key_block(batch.kv_head, block).cast_const();
            keys.score::<HALF, U, 4>(at, query, padded_dim, scores.add(block * BLOCK), stride);
            block += 4;
        }
        while block < batch.blocks {
            let at = kv.key_block(batch.kv_head, block).cast_const();
            keys.score::<HALF, U, 1>(at, query, padded_dim, scores.add(block * BLOCK), stride);
            block += 1;
        }
    }

    let mut factors = [0.0; U];
    for (u, factor) in factors.iter_mut().enumerate() {
        let scores = &mut scores[u * stride..][..stride];
        let query = &queries[u * padded_dim..][..padded_dim];
        batch.order(u, scores, |slot| {
            let mut lanes = [0.0; BLOCK];
            let at = kv.key_block(batch.kv_head, slot / BLOCK).cast_const();
            // SAFETY: as above, for one unit and one block.
            unsafe { keys.score::<HALF, 1, 1>(at, query.as_ptr(), padded_dim, lanes.as_mut_ptr(), BLOCK) };
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
            weigh::<HALF, U>(0..batch.shared, value, scores, stride, head_dim, totals);
        }
        for (u, factor) in factors.into_iter().enumerate() {
            let (scores, total) =
                (&scores[u * stride..][..stride], &mut totals[u * padded_dim..][..padded_dim]);
            let value = |position| kv.value(batch.kv_head, batch.slot(u, position)).cast_const();
            weigh::<HALF, 1>(batch.shared..batch.len(u), value, scores, stride, head_dim, total);
            let (w, columns) = batch.place(u);
            let out = out.span(w, columns);
            for at in (0..head_dim).step_by(16) {
                store(out, at, _mm512_mul_ps(load(total, at), _mm512_set1_ps(factor)));
            }
        }
    }
}

/// How keys lie, and what their products are multiplied with.
#[derive(Clone, Copy)]
struct Keys {
    head_dim: usize,
    scale: f32,
    block_bytes: usize,
}

impl Keys {
    /// Scaled products of `U` queries with `B` blocks of keys, `[U, stride]`: a product has one chain over the elements.
    ///
    /// # Safety
    /// `B` blocks are readable at `keys`, `head_dim` elements every `padded_dim` at `queries`, and `16 B` scores are
    /// writable every `stride` at `scores`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
    unsafe fn score<const HALF: bool, const U: usize, const B: usize>(
        self,
        keys: *const u8,
        queries: *const f32,
        padded_dim: usize,
        scores: *mut f32,
        stride: usize,
    ) {
        let line = const { BLOCK * if HALF { 2 } else { 4 } };
        let mut sums = [[_mm512_setzero_ps(); B]; U];
        for i in 0..self.head_dim {
            let mut lanes = [_mm512_setzero_ps(); B];
            for (b, lanes) in lanes.iter_mut().enumerate() {
                let at = keys.wrapping_add(b * self.block_bytes + i * line);
                // SAFETY: promised by the caller.
                unsafe {
                    *lanes = if HALF {
                        _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))
                    } else {
                        _mm512_loadu_ps(at.cast())
                    };
                }
            }
            for (u, sums) in sums.iter_mut().enumerate() {
                // SAFETY: promised by the caller.
                let query = _mm512_set1_ps(unsafe { *queries.add(u * padded_dim + i) });
                for (sum, lanes) in sums.iter_mut().zip(lanes) {
                    *sum = _mm512_fmadd_ps(query, lanes, *sum);
                }
            }
        }
        let scale = _mm512_set1_ps(self.scale);
        for (u, sums) in sums.into_iter().enumerate() {
            for (b, sum) in sums.into_iter().enumerate() {
                // SAFETY: promised by the caller.
                unsafe { _mm512_storeu_ps(scores.add(u * stride + b * BLOCK), _mm512_mul_ps(sum, scale)) };
            }
        }
    }
}

/// Replaces scores by `exp(score - max)` and returns the inverse of their sum, which has one chain per lane.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn soften(scores: &mut [f32], len: usize) -> f32 {
    if len == 0 {
        return 0.0;
    }
    let scores = &mut scores[..len.next_multiple_of(BLOCK)];
    let mut max = _mm512_set1_ps(f32::NEG_INFINITY);
    for block in scores.chunks_exact(BLOCK) {
        max = _mm512_max_ps(max, load(block, 0));
    }
    let max = _mm512_set1_ps(_mm512_reduce_max_ps(max));
    let mut sums = _mm512_setzero_ps();
    for block in scores.chunks_exact_mut(BLOCK) {
        // The filling of the last block, minus infinity, becomes 0.
        let weights = exp(_mm512_sub_ps(load(block, 0), max));
        sums = _mm512_add_ps(sums, weights);
        store(block, 0, weights);
    }
    1.0 / sum(sums)
}

/// Adds the weighted values of `positions` to the totals of `U` units, one chain per element, in logical order.
///
/// # Safety
/// `value` gives pointers to `head_dim` readable elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn weigh<const HALF: bool, const U: usize>(
    positions: Range<usize>,
    value: impl Fn(usize) -> *const u8,
    weights: &[f32],
    stride: usize,
    head_dim: usize,
    totals: &mut [f32],
) {
    const COLUMNS: usize = 4;
    let padded_dim = head_dim.next_multiple_of(16);
    assert!(totals.len() >= U * padded_dim && weights.len() >= (U - 1) * stride + positions.end);
    for start in (0..head_dim).step_by(16 * COLUMNS) {
        let mut masks = [0; COLUMNS];
        for (c, mask) in masks.iter_mut().enumerate() {
            *mask = first(head_dim.saturating_sub(start + 16 * c));
        }
        let place = |u: usize, c: usize| u * padded_dim + start + 16 * c;
        let to = totals.as_mut_ptr();
        let mut sums = [[_mm512_setzero_ps(); COLUMNS]; U];
        for (u, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                // SAFETY: masks keep to `head_dim` elements, which the assertion covers.
                *sum = unsafe { _mm512_maskz_loadu_ps(masks[c], to.wrapping_add(place(u, c))) };
            }
        }
        for position in positions.clone() {
            let value = value(position);
            let mut values = [_mm512_setzero_ps(); COLUMNS];
            for (c, lanes) in values.iter_mut().enumerate() {
                // SAFETY: masks keep to the elements that the caller promised.
                *lanes = unsafe { elements::<HALF>(value, start + 16 * c, masks[c]) };
            }
            for (u, sums) in sums.iter_mut().enumerate() {
                // SAFETY: inside `weights` by the assertion.
                let weight = _mm512_set1_ps(unsafe { *weights.as_ptr().add(u * stride + position) });
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = _mm512_fmadd_ps(weight, value, *sum);
                }
            }
        }
        for (u, sums) in sums.into_iter().enumerate() {
            for (c, sum) in sums.into_iter().enumerate() {
                // SAFETY: as for the loads.
                unsafe { _mm512_mask_storeu_ps(to.wrapping_add(place(u, c)), masks[c], sum) };
            }
        }
    }
}

/// Elements `at..at + 16` of a head as f32, zeros where the mask is clear.
///
/// # Safety
/// The elements of the mask are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn elements<const HALF: bool>(head: *const u8, at: usize, mask: __mmask16) -> __m512 {
    // SAFETY: promised by the caller; masked lanes are not accessed.
    unsafe {
        if HALF {
            _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, head.cast::<i16>().wrapping_add(at)))
        } else {
            _mm512_maskz_loadu_ps(mask, head.cast::<f32>().wrapping_add(at))
        }
    }
}
