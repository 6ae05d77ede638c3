//! Attention of each unit over its logical sequence.

use super::{exp::exp, sum_lanes};
use crate::{Attention, KvFormat, RowsMut, format::f16_to_f32};
use std::ops::Range;

/// Units that a tier may work on at once: what scratch is reserved for.
pub(in crate::cpu) const UNITS: usize = 4;
const LANES: usize = 16;

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
        let (w, head, kv_head) = args.place(unit);
        let span = head * head_dim..(head + 1) * head_dim;
        let raw = &args.queries.row(w)[span.clone()];
        match args.rope {
            Some(rope) => rope.rotate(args.tails.positions[w] as usize, raw, query),
            None => query.copy_from_slice(raw),
        }
        let out = out.span(w, span);
        out.fill(0.0);
        let scores = &mut scores[..args.tails.len(w)];
        for (position, score) in scores.iter_mut().enumerate() {
            let key = kv.key(kv_head, args.tails.slot(w, position));
            let mut lanes = [0.0; LANES];
            // SAFETY: `key` is followed by the `head_dim` elements of a slot of the cache.
            unsafe { visit(key, kv.format(), head_dim, |i, k| lanes[i % LANES] += query[i] * k) };
            *score = sum_lanes(lanes) * args.scale;
        }
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut lanes = [0.0; LANES];
        for chunk in scores.chunks_mut(LANES) {
            for (lane, score) in lanes.iter_mut().zip(chunk) {
                *score = exp(*score - max);
                *lane += *score;
            }
        }
        for (position, &weight) in scores.iter().enumerate() {
            let value = kv.value(kv_head, args.tails.slot(w, position));
            // SAFETY: as for the key.
            unsafe { visit(value, kv.format(), head_dim, |i, v| out[i] += weight * v) };
        }
        if !scores.is_empty() {
            let inverse = 1.0 / sum_lanes(lanes);
            out.iter_mut().for_each(|out| *out *= inverse);
        }
    }
}

/// Calls `see` with every element of a head, in order.
///
/// # Safety
/// `head` is followed by `len` readable elements.
#[inline(always)]
unsafe fn visit(head: *const u8, format: KvFormat, len: usize, mut see: impl FnMut(usize, f32)) {
    match format {
        KvFormat::F16 => {
            // SAFETY: promised by the caller; `KvLayer` is aligned to its element.
            let bits = unsafe { std::slice::from_raw_parts(head.cast::<u16>(), len) };
            bits.iter().enumerate().for_each(|(i, &bits)| see(i, f16_to_f32(bits)));
        }
        KvFormat::F32 => {
            // SAFETY: as above.
            let values = unsafe { std::slice::from_raw_parts(head.cast::<f32>(), len) };
            values.iter().enumerate().for_each(|(i, &value)| see(i, value));
        }
    }
}
