//! Rotation and storage of keys and values.

use crate::{AppendKv, KvLayer};
use std::ops::Range;

/// Stores the given units.
pub(in crate::cpu) fn append_kv(args: &AppendKv<'_>, units: Range<usize>) {
    let (kv, head_dim) = (args.kv, args.kv.head_dim());
    let mut turned = [0.0; KvLayer::MAX_HEAD_DIM];
    let turned = &mut turned[..head_dim];
    for head in units {
        for (w, slot) in args.stored() {
            let key = args.turned_key(w, head, turned);
            let value = args.value(w, head);
            for i in 0..head_dim {
                // SAFETY: elements of (head, slot), which `KvLayer::from_raw` reserved to us.
                unsafe {
                    kv.write(kv.key(head, slot), i * KvLayer::KEY_BLOCK, key[i]);
                    kv.write(kv.value(head, slot), i, value[i]);
                }
            }
        }
    }
}
