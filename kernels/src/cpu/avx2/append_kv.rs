//! Rotation and storage of keys and values.

use super::lanes::{LANES, load};
use crate::{AppendKv, KvFormat, KvLayer};
use std::{arch::x86_64::*, ops::Range};

/// The largest finite half.
const F16_LIMIT: f32 = 65504.0;

/// Stores the given units.
#[target_feature(enable = "avx2,fma,f16c")]
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
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn store(head: &[f32], format: KvFormat, to: *mut u8) {
    match format {
        KvFormat::F32 => {
            // SAFETY: promised by the caller; the cache is none of the rows.
            unsafe { to.cast::<f32>().copy_from_nonoverlapping(head.as_ptr(), head.len()) }
        }
        KvFormat::F16 => {
            for at in (0..head.len()).step_by(LANES) {
                // The second operand is kept if it is NaN.
                let lanes = _mm256_min_ps(_mm256_set1_ps(F16_LIMIT), load(head, at));
                let lanes = _mm256_max_ps(_mm256_set1_ps(-F16_LIMIT), lanes);
                let mut halves = [0u16; LANES];
                let count = LANES.min(head.len() - at);
                // SAFETY: `halves` has 16 bytes, and the caller promised the elements up to `at + count`.
                unsafe {
                    _mm_storeu_si128(
                        halves.as_mut_ptr().cast(),
                        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes),
                    );
                    to.cast::<u16>().add(at).copy_from_nonoverlapping(halves.as_ptr(), count);
                }
            }
        }
    }
}
