//! Attention of each unit over its logical sequence.

use super::{exp::exp, sum_lanes};
use crate::{Attention, KvFormat, KvLayer, RowsMut, cpu::batch::Batch, format::f16_to_f32};
use std::ops::Range;

/// Slots scored together.
const BLOCK: usize = KvLayer::KEY_BLOCK;

/// Computes the given units. `scratch` holds a query and the scores.
pub(in crate::cpu) fn attention(
    args: &Attention<'_>,
    units: Range<usize>,
    scratch: &mut [f32],
    out: &mut RowsMut<'_>,
) {
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let (query, scores) = scratch.split_at_mut(head_dim);
    for unit in units {
        let batch = Batch::<1>::new(args, unit);
        batch.turn_query(0, query);
        for (block, scores) in scores.chunks_exact_mut(BLOCK).take(batch.blocks).enumerate() {
            scores.copy_from_slice(&score(args, batch.kv_head, block, query));
        }
        batch.order(0, scores, |slot| score(args, batch.kv_head, slot / BLOCK, query)[slot % BLOCK]);

        let (w, columns) = batch.place(0);
        let out = out.span(w, columns);
        out.fill(0.0);
        let scores = &mut scores[..batch.len(0)];
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut lanes = [0.0; BLOCK];
        for chunk in scores.chunks_mut(BLOCK) {
            for (lane, score) in lanes.iter_mut().zip(chunk) {
                *score = exp(*score - max);
                *lane += *score;
            }
        }
        for (position, &weight) in scores.iter().enumerate() {
            let value = kv.value(batch.kv_head, batch.slot(0, position));
            for (i, out) in out.iter_mut().enumerate() {
                // SAFETY: `value` is followed by the `head_dim` elements of a slot of the cache.
                *out += weight * unsafe { element(value, kv.format(), i) };
            }
        }
        if !scores.is_empty() {
            let inverse = 1.0 / sum_lanes(lanes);
            out.iter_mut().for_each(|out| *out *= inverse);
        }
    }
}

/// Scaled products of a query with the keys of a block; each has one chain over the elements.
fn score(args: &Attention<'_>, kv_head: usize, block: usize, query: &[f32]) -> [f32; BLOCK] {
    let keys = args.kv.key_block(kv_head, block);
    let mut sums = [0.0; BLOCK];
    for (i, query) in query.iter().enumerate() {
        for (slot, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `keys` is followed by `head_dim` elements of the block's slots.
            *sum += query * unsafe { element(keys, args.kv.format(), i * BLOCK + slot) };
        }
    }
    sums.map(|sum| sum * args.scale)
}

/// Element `i` after `first`.
///
/// # Safety
/// It is in the cache.
#[inline(always)]
unsafe fn element(first: *const u8, format: KvFormat, i: usize) -> f32 {
    match format {
        // SAFETY: promised by the caller.
        KvFormat::F16 => f16_to_f32(unsafe { first.cast::<u16>().add(i).read() }),
        // SAFETY: as above.
        KvFormat::F32 => unsafe { first.cast::<f32>().add(i).read() },
    }
}
