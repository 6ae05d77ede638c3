//! Rotation and storage of keys and values.

use super::rope::turn_head;
use crate::{AppendKv, KvFormat};

/// Stores every row that has a slot.
pub fn append_kv(args: &AppendKv<'_>) {
    args.check();
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let mut turned = vec![0.0; head_dim];
    for unit in 0..args.units() {
        let Some((w, head, slot)) = args.place(unit) else { continue };
        let span = head * head_dim..(head + 1) * head_dim;
        let (key, value) = (&args.keys.row(w)[span.clone()], &args.values.row(w)[span]);
        match args.rope {
            Some(rope) => turn_head(key, args.positions[w] as usize, rope, &mut turned),
            None => turned.copy_from_slice(key),
        }
        for i in 0..head_dim {
            // SAFETY: both point to the `head_dim` elements of (head, slot), which `KvLayer::from_raw` reserved to us.
            unsafe {
                store(kv.key(head, slot), i, kv.format(), turned[i]);
                store(kv.value(head, slot), i, kv.format(), value[i]);
            }
        }
    }
}

/// # Safety
/// Element `i` after `head` is writable.
unsafe fn store(head: *mut u8, i: usize, format: KvFormat, value: f32) {
    match format {
        KvFormat::F16 => {
            let limit = half::f16::MAX.to_f32();
            // SAFETY: promised by the caller.
            unsafe { head.cast::<half::f16>().add(i).write(half::f16::from_f32(value.clamp(-limit, limit))) }
        }
        // SAFETY: promised by the caller.
        KvFormat::F32 => unsafe { head.cast::<f32>().add(i).write(value) },
    }
}
