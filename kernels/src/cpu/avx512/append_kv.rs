//! Rotation and storage of keys and values.

use super::lanes::{first, load};
use crate::{AppendKv, KvFormat, KvLayer};
use std::{arch::x86_64::*, ops::Range};

/// The largest finite half.
const F16_LIMIT: f32 = 65504.0;

/// Stores the given units.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn store(head: &[f32], format: KvFormat, to: *mut u8) {
    for at in (0..head.len()).step_by(16) {
        let (lanes, mask) = (load(head, at), first(head.len() - at));
        // SAFETY: the mask keeps to the elements that the caller promised.
        unsafe {
            match format {
                KvFormat::F16 => {
                    // The second operand is kept if it is NaN.
                    let lanes = _mm512_min_ps(_mm512_set1_ps(F16_LIMIT), lanes);
                    let lanes = _mm512_max_ps(_mm512_set1_ps(-F16_LIMIT), lanes);
                    let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes);
                    _mm256_mask_storeu_epi16(to.cast::<i16>().wrapping_add(at), mask, halves);
                }
                KvFormat::F32 => _mm512_mask_storeu_ps(to.cast::<f32>().wrapping_add(at), mask, lanes),
            }
        }
    }
}
