//! Attention of up to four units at once, which share the keys and values that they all see.

use super::lanes::{LANES, exp, first, halves, largest, load, store, sum, sum_rows};
use crate::{Attention, KvFormat, RowsMut, cpu::generic::ATTENTION_UNITS};
use std::{arch::x86_64::*, ops::Range};

/// Logical positions scored together; a block starts at a multiple of it.
const BLOCK: usize = LANES;

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
        let kv_head = args.place(unit).2;
        let most = ATTENTION_UNITS.min(units.end - unit);
        let mut count = 1;
        while count < most && args.place(unit + count).2 == kv_head {
            count += 1;
        }
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
#[target_feature(enable = "avx2,fma,f16c")]
fn batch<const HALF: bool, const U: usize>(
    args: &Attention<'_>,
    unit: usize,
    scratch: &mut [f32],
    out: &mut RowsMut<'_>,
) {
    let (kv, head_dim, tails, scale) = (args.kv, args.kv.head_dim(), args.tails, args.scale);
    let padded_dim = head_dim.next_multiple_of(LANES);
    let (queries, scratch) = scratch.split_at_mut(U * padded_dim);
    let (totals, scores) = scratch.split_at_mut(U * padded_dim);
    let stride = scores.len() / U / BLOCK * BLOCK;

    queries.fill(0.0);
    totals.fill(0.0);
    let (mut rows, mut lens) = ([0; U], [0; U]);
    for (u, query) in queries.chunks_exact_mut(padded_dim).enumerate() {
        let (w, head, _) = args.place(unit + u);
        (rows[u], lens[u]) = (w, tails.len(w));
        let raw = &args.queries.row(w)[head * head_dim..(head + 1) * head_dim];
        match args.rope {
            Some(rope) => rope.rotate(tails.positions[w] as usize, raw, &mut query[..head_dim]),
            None => query[..head_dim].copy_from_slice(raw),
        }
    }

    // Heads of one row share all it sees; rows share whole blocks of the prefix.
    let shared = if rows.iter().all(|&w| w == rows[0]) {
        lens[0]
    } else {
        rows.iter().map(|&w| tails.prefix[w] as usize).min().unwrap_or(0) / BLOCK * BLOCK
    };
    let kv_head = args.place(unit).2;
    let key = |w: usize, position| kv.key(kv_head, tails.slot(w, position)).cast_const();
    let value = |w: usize, position| kv.value(kv_head, tails.slot(w, position)).cast_const();
    // SAFETY: every key and value is followed by `head_dim` elements of the cache, in the format that `HALF` tells.
    unsafe {
        score::<HALF, U>(0..shared, |i| key(rows[0], i), queries, head_dim, scale, scores, stride);
        for u in 0..U {
            let (query, scores) =
                (&queries[u * padded_dim..][..padded_dim], &mut scores[u * stride..][..stride]);
            score::<HALF, 1>(shared..lens[u], |i| key(rows[u], i), query, head_dim, scale, scores, stride);
        }
        let mut factors = [0.0; U];
        for (u, factor) in factors.iter_mut().enumerate() {
            *factor = soften(&mut scores[u * stride..][..stride], lens[u]);
        }
        // More columns would not fit the registers of three or four units.
        if U > 2 {
            weigh::<HALF, U, 2>(0..shared, |i| value(rows[0], i), scores, stride, head_dim, totals);
        } else {
            weigh::<HALF, U, 4>(0..shared, |i| value(rows[0], i), scores, stride, head_dim, totals);
        }
        for (u, factor) in factors.into_iter().enumerate() {
            let (scores, total) =
                (&scores[u * stride..][..stride], &mut totals[u * padded_dim..][..padded_dim]);
            weigh::<HALF, 1, 4>(shared..lens[u], |i| value(rows[u], i), scores, stride, head_dim, total);
            let (w, head, _) = args.place(unit + u);
            let out = out.span(w, head * head_dim..(head + 1) * head_dim);
            for at in (0..head_dim).step_by(LANES) {
                store(out, at, _mm256_mul_ps(load(total, at), _mm256_set1_ps(factor)));
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
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score<const HALF: bool, const U: usize>(
    positions: Range<usize>,
    key: impl Fn(usize) -> *const u8,
    queries: &[f32],
    head_dim: usize,
    scale: f32,
    scores: &mut [f32],
    stride: usize,
) {
    let padded_dim = head_dim.next_multiple_of(LANES);
    assert!(
        queries.len() >= U * padded_dim
            && scores.len() >= (U - 1) * stride + positions.end.next_multiple_of(BLOCK)
    );
    for start in positions.clone().step_by(BLOCK) {
        let count = BLOCK.min(positions.end - start);
        let mut products = [[_mm256_setzero_ps(); BLOCK]; U];
        for i in 0..count {
            let key = key(start + i);
            let mut sums = [_mm256_setzero_ps(); U];
            for at in (0..head_dim).step_by(LANES) {
                // SAFETY: `head_dim` elements were promised; queries are padded.
                unsafe {
                    let key = elements::<HALF>(key, at, head_dim);
                    for (u, sum) in sums.iter_mut().enumerate() {
                        let query = _mm256_loadu_ps(queries.as_ptr().add(u * padded_dim + at));
                        *sum = _mm256_fmadd_ps(key, query, *sum);
                    }
                }
            }
            for (products, sum) in products.iter_mut().zip(sums) {
                products[i] = sum;
            }
        }
        for (u, products) in products.iter().enumerate() {
            let block = _mm256_mul_ps(sum_rows(products), _mm256_set1_ps(scale));
            let seen = _mm256_castsi256_ps(first(count));
            let block = _mm256_blendv_ps(_mm256_set1_ps(f32::NEG_INFINITY), block, seen);
            store(&mut scores[u * stride + start..][..BLOCK], 0, block);
        }
    }
}

/// Replaces scores by `exp(score - max)` and returns the inverse of their sum, which has one chain per lane.
#[target_feature(enable = "avx2,fma,f16c")]
fn soften(scores: &mut [f32], len: usize) -> f32 {
    if len == 0 {
        return 0.0;
    }
    let scores = &mut scores[..len.next_multiple_of(BLOCK)];
    let mut max = _mm256_set1_ps(f32::NEG_INFINITY);
    for block in scores.chunks_exact(BLOCK) {
        max = _mm256_max_ps(max, load(block, 0));
    }
    let max = _mm256_set1_ps(largest(max));
    let mut sums = _mm256_setzero_ps();
    for block in scores.chunks_exact_mut(BLOCK) {
        // The filling of the last block, minus infinity, becomes 0.
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
