//! Rotation and storage of keys and values.

use crate::{AppendKv, KvFormat, KvLayer};
use std::ops::Range;

/// The largest finite half.
const F16_LIMIT: f32 = 65504.0;

/// Stores the given units.
pub(in crate::cpu) fn append_kv(args: &AppendKv<'_>, units: Range<usize>) {
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let mut turned = [0.0; KvLayer::MAX_HEAD_DIM];
    let turned = &mut turned[..head_dim];
    for unit in units {
        let Some((w, head, slot)) = args.place(unit) else { continue };
        let span = head * head_dim..(head + 1) * head_dim;
        let mut key = &args.keys.row(w)[span.clone()];
        if let Some(rope) = args.rope {
            rope.rotate(args.positions[w] as usize, key, turned);
            key = turned;
        }
        // SAFETY: both point to the `head_dim` elements of (head, slot), which `KvLayer::from_raw` reserved to us.
        unsafe {
            store(key, kv.format(), kv.key(head, slot));
            store(&args.values.row(w)[span], kv.format(), kv.value(head, slot));
        }
    }
}

/// # Safety
/// As many elements as `head` has are writable at `to`.
unsafe fn store(head: &[f32], format: KvFormat, to: *mut u8) {
    for (i, value) in head.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe {
            match format {
                KvFormat::F16 => {
                    to.cast::<half::f16>()
                        .add(i)
                        .write(half::f16::from_f32(value.clamp(-F16_LIMIT, F16_LIMIT)));
                }
                KvFormat::F32 => to.cast::<f32>().add(i).write(*value),
            }
        }
    }
}
