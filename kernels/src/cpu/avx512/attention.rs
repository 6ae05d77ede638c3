//! Attention of up to four units at once, which share the keys and values that they all see.

use super::lanes::{exp, first, load, store, sum, sum_rows};
use crate::{Attention, KvFormat, RowsMut, cpu::generic::ATTENTION_UNITS};
use std::{arch::x86_64::*, array, ops::Range};

/// Logical positions scored together; a block starts at a multiple of it.
const BLOCK: usize = 16;

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
        let kv_head = args.place(unit).2;
        let most = ATTENTION_UNITS.min(units.end - unit);
        let count = (1..most).find(|&i| args.place(unit + i).2 != kv_head).unwrap_or(most);
        match count {
            1 => batch::<HALF, 1>(args, unit, scratch, out),
            2 => batch::<HALF, 2>(args, unit, scratch, out),
            3 => batch::<HALF, 3>(args, unit, scratch, out),
            _ => batch::<HALF, ATTENTION_UNITS>(args, unit, scratch, out),
        }
        unit += count;
    }
}

/// Units `unit..unit + U`, all of one KV head.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn batch<const HALF: bool, const U: usize>(
    args: &Attention<'_>,
    unit: usize,
    scratch: &mut [f32],
    out: &mut RowsMut<'_>,
) {
    let (kv, head_dim, tails) = (args.kv, args.kv.head_dim(), args.tails);
    let padded_dim = head_dim.next_multiple_of(16);
    let places: [_; U] = array::from_fn(|u| args.place(unit + u));
    let (rows, kv_head) = (places.map(|(w, ..)| w), places[0].2);
    let (queries, scratch) = scratch.split_at_mut(U * padded_dim);
    let (totals, scores) = scratch.split_at_mut(U * padded_dim);
    let stride = scores.len() / U / 16 * 16;

    queries.fill(0.0);
    totals.fill(0.0);
    for (&(w, head, _), query) in places.iter().zip(queries.chunks_exact_mut(padded_dim)) {
        let raw = &args.queries.row(w)[head * head_dim..(head + 1) * head_dim];
        match args.rope {
            Some(rope) => rope.rotate(tails.positions[w] as usize, raw, &mut query[..head_dim]),
            None => query[..head_dim].copy_from_slice(raw),
        }
    }

    // Heads of one row share all it sees; rows share whole blocks of the prefix.
    let lens = rows.map(|w| tails.len(w));
    let shared = if rows.iter().all(|&w| w == rows[0]) {
        lens[0]
    } else {
        rows.iter().map(|&w| tails.prefix[w] as usize).min().unwrap_or(0) / BLOCK * BLOCK
    };
    let key = |w: usize, position| kv.key(kv_head, tails.slot(w, position)).cast_const();
    let value = |w: usize, position| kv.value(kv_head, tails.slot(w, position)).cast_const();
    // SAFETY: every key and value is followed by `head_dim` elements of the cache, in the format that `HALF` tells.
    unsafe {
        score::<HALF, U>(0..shared, |i| key(rows[0], i), queries, head_dim, args.scale, scores, stride);
        for u in 0..U {
            let (query, scores) =
                (&queries[u * padded_dim..][..padded_dim], &mut scores[u * stride..][..stride]);
            score::<HALF, 1>(
                shared..lens[u],
                |i| key(rows[u], i),
                query,
                head_dim,
                args.scale,
                scores,
                stride,
            );
        }
        let factors: [f32; U] = array::from_fn(|u| soften(&mut scores[u * stride..][..stride], lens[u]));
        weigh::<HALF, U>(0..shared, |i| value(rows[0], i), scores, stride, head_dim, totals);
        for (u, factor) in factors.into_iter().enumerate() {
            let (scores, total) =
                (&scores[u * stride..][..stride], &mut totals[u * padded_dim..][..padded_dim]);
            weigh::<HALF, 1>(shared..lens[u], |i| value(rows[u], i), scores, stride, head_dim, total);
            let (w, head, _) = places[u];
            let out = out.span(w, head * head_dim..(head + 1) * head_dim);
            for at in (0..head_dim).step_by(16) {
                store(out, at, _mm512_mul_ps(load(total, at), _mm512_set1_ps(factor)));
            }
        }
    }
}

/// Scaled products of `U` queries with the keys of `positions`, block by block; the last block is filled up with
/// minus infinity. A product has one chain per lane, then the tree of `sum_rows`.
///
/// # Safety
/// `key` gives pointers to `head_dim` readable elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn score<const HALF: bool, const U: usize>(
    positions: Range<usize>,
    key: impl Fn(usize) -> *const u8,
    queries: &[f32],
    head_dim: usize,
    scale: f32,
    scores: &mut [f32],
    stride: usize,
) {
    let padded_dim = head_dim.next_multiple_of(16);
    assert!(
        queries.len() >= U * padded_dim
            && scores.len() >= (U - 1) * stride + positions.end.next_multiple_of(BLOCK)
    );
    for start in positions.clone().step_by(BLOCK) {
        let count = BLOCK.min(positions.end - start);
        let mut products = [[_mm512_setzero_ps(); BLOCK]; U];
        for i in 0..count {
            let key = key(start + i);
            let mut sums = [_mm512_setzero_ps(); U];
            for at in (0..head_dim).step_by(16) {
                // SAFETY: the mask keeps to the `head_dim` elements promised; queries are padded.
                unsafe {
                    let key = elements::<HALF>(key, at, first(head_dim - at));
                    for (u, sum) in sums.iter_mut().enumerate() {
                        let query = _mm512_loadu_ps(queries.as_ptr().add(u * padded_dim + at));
                        *sum = _mm512_fmadd_ps(key, query, *sum);
                    }
                }
            }
            for (products, sum) in products.iter_mut().zip(sums) {
                products[i] = sum;
            }
        }
        for (u, products) in products.iter().enumerate() {
            let block = _mm512_mul_ps(sum_rows(products), _mm512_set1_ps(scale));
            let block = _mm512_mask_mov_ps(_mm512_set1_ps(f32::NEG_INFINITY), first(count), block);
            store(&mut scores[u * stride + start..][..BLOCK], 0, block);
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
        let masks: [__mmask16; COLUMNS] = array::from_fn(|c| first(head_dim.saturating_sub(start + 16 * c)));
        // SAFETY: masks keep to `head_dim` elements; the assertion covers totals and weights.
        unsafe {
            let place =
                |totals: *mut f32, u: usize, c: usize| totals.wrapping_add(u * padded_dim + start + 16 * c);
            let totals = totals.as_mut_ptr();
            let mut sums: [[__m512; COLUMNS]; U] =
                array::from_fn(|u| array::from_fn(|c| _mm512_maskz_loadu_ps(masks[c], place(totals, u, c))));
            for position in positions.clone() {
                let value = value(position);
                let values: [__m512; COLUMNS] =
                    array::from_fn(|c| elements::<HALF>(value, start + 16 * c, masks[c]));
                for (u, sums) in sums.iter_mut().enumerate() {
                    let weight = _mm512_set1_ps(*weights.as_ptr().add(u * stride + position));
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = _mm512_fmadd_ps(weight, value, *sum);
                    }
                }
            }
            for (u, sums) in sums.into_iter().enumerate() {
                for (c, sum) in sums.into_iter().enumerate() {
                    _mm512_mask_storeu_ps(place(totals, u, c), masks[c], sum);
                }
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
