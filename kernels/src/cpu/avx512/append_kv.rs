//! Rotation and storage of keys and values.

use super::lanes::load;
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
    let mut halves = [0u16; KvLayer::MAX_HEAD_DIM + 15];
    for head in units {
        for (w, slot) in args.stored() {
            let key = args.turned_key(w, head, turned);
            let value = args.value(w, head);
            // SAFETY: elements of (head, slot), which `KvLayer::from_raw` reserved to us.
            unsafe {
                match kv.format() {
                    KvFormat::F16 => {
                        round(key, &mut halves);
                        scatter(&halves[..head_dim], kv.key(head, slot).cast());
                        round(value, &mut halves);
                        kv.value(head, slot)
                            .cast::<u16>()
                            .copy_from_nonoverlapping(halves.as_ptr(), head_dim);
                    }
                    KvFormat::F32 => {
                        scatter(key, kv.key(head, slot).cast());
                        kv.value(head, slot).cast::<f32>().copy_from_nonoverlapping(value.as_ptr(), head_dim);
                    }
                }
            }
        }
    }
}

/// Rounds to halves, and what is beyond them to the largest.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn round(head: &[f32], halves: &mut [u16; KvLayer::MAX_HEAD_DIM + 15]) {
    for at in (0..head.len()).step_by(16) {
        // The second operand is kept if it is NaN.
        let lanes = _mm512_min_ps(_mm512_set1_ps(F16_LIMIT), load(head, at));
        let lanes = _mm512_max_ps(_mm512_set1_ps(-F16_LIMIT), lanes);
        let lanes = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes);
        let to = &mut halves[at..at + 16];
        // SAFETY: `to` has 16 elements.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), lanes) };
    }
}

/// Writes the elements of a key, as far apart as a block of keys has them.
///
/// # Safety
/// The elements are writable.
#[inline]
unsafe fn scatter<T: Copy>(key: &[T], to: *mut T) {
    for (i, element) in key.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { to.add(i * KvLayer::KEY_BLOCK).write(*element) };
    }
}
