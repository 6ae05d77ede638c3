//! Rotation and storage of keys and values.

use crate::{AppendKv, KvFormat};
use std::ops::Range;

/// The largest finite half.
const F16_LIMIT: f32 = 65504.0;

/// Stores the given units.
pub(in crate::cpu) fn append_kv(args: &AppendKv<'_>, units: Range<usize>) {
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    for unit in units {
        let Some((w, head, slot)) = args.place(unit) else { continue };
        let span = head * head_dim..(head + 1) * head_dim;
        let (key, value) = (&args.keys.row(w)[span.clone()], &args.values.row(w)[span]);
        let position = args.positions[w] as usize;
        let turned = |i| args.rope.map_or(key[i], |rope| rope.element(position, key, i));
        // SAFETY: both point to the `head_dim` elements of (head, slot), which `KvLayer::from_raw` reserved to us.
        unsafe {
            store(kv.key(head, slot), kv.format(), head_dim, turned);
            store(kv.value(head, slot), kv.format(), head_dim, |i| value[i]);
        }
    }
}

/// # Safety
/// `len` elements at `to` are writable.
unsafe fn store(to: *mut u8, format: KvFormat, len: usize, element: impl Fn(usize) -> f32) {
    for i in 0..len {
        let value = element(i);
        // SAFETY: promised by the caller.
        unsafe {
            match format {
                KvFormat::F16 => {
                    to.cast::<half::f16>()
                        .add(i)
                        .write(half::f16::from_f32(value.clamp(-F16_LIMIT, F16_LIMIT)));
                }
                KvFormat::F32 => to.cast::<f32>().add(i).write(value),
            }
        }
    }
}
