//! Rotation and storage of keys and values.

use super::rope::turn_head;
use crate::AppendKv;

/// Stores every row that has a slot.
pub fn append_kv(args: &AppendKv<'_>) {
    args.check();
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let mut turned = vec![0.0; head_dim];
    for head in 0..args.units() {
        for (w, slot) in args.stored() {
            let span = head * head_dim..(head + 1) * head_dim;
            let (key, value) = (&args.keys.row(w)[span.clone()], &args.values.row(w)[span]);
            match args.rope {
                Some(rope) => turn_head(key, args.positions[w] as usize, rope, &mut turned),
                None => turned.copy_from_slice(key),
            }
            // SAFETY: elements of (head, slot), which `KvLayer::from_raw` reserved to us.
            unsafe { kv.write(head, slot, &turned, value) };
        }
    }
}
