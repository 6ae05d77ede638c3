//! Attention of each row over its logical sequence (arXiv 1706.03762, section 3.2, with grouped heads).

use super::{capped, rope::turn_head};
use crate::{Attention, RowsMut};

/// `out` (`[W, H * D]`): softmax of the scores, and of the head's sink if there are some, times the values; zeros for a
/// row that sees nothing.
pub fn attention(args: &Attention<'_>, mut out: RowsMut<'_>) {
    args.check(&out);
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let mut query = vec![0.0; head_dim];
    let mut scores = Vec::new();
    for unit in 0..args.units() {
        let (w, head, kv_head) = args.place(unit);
        let span = head * head_dim..(head + 1) * head_dim;
        query.copy_from_slice(&args.queries.row(w)[span.clone()]);
        if let Some(rope) = args.rope {
            turn_head(&args.queries.row(w)[span.clone()], args.tails.positions[w] as usize, rope, &mut query);
        }
        // SAFETY: nobody appends to the memory promised to `KvLayer::from_raw` while it is read.
        let elements = |slot: usize, i: usize| unsafe { kv.read(kv_head, slot, i) };
        let len = args.tails.len(w);
        let slots = || (args.scoring.first_of(len)..len).map(|position| args.tails.slot(w, position));
        scores.clear();
        scores.extend(slots().map(|slot| {
            let dot: f64 = (0..head_dim).map(|i| f64::from(query[i]) * f64::from(elements(slot, i).0)).sum();
            let score = dot * f64::from(args.scoring.scale);
            args.scoring.softcap.map_or(score, |cap| capped(f64::from(cap), score))
        }));
        let sink = args.sinks.map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[head]));
        let max = scores.iter().copied().fold(sink, f64::max);
        let sum = scores.iter().chain([&sink]).map(|score| (score - max).exp()).sum::<f64>();
        for (i, out) in out.span(w, span).iter_mut().enumerate() {
            let weighted = scores.iter().zip(slots());
            let total: f64 = weighted.map(|(s, slot)| (s - max).exp() * f64::from(elements(slot, i).1)).sum();
            *out = if scores.is_empty() { 0.0 } else { (total / sum) as f32 };
        }
    }
}
