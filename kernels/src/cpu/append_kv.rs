//! Rotation and storage of keys and values. Equal in every tier.

use super::lanes::{LANES, Lanes, Work};
use crate::{AppendKv, KvFormat, KvLayer, kv::codes::encode};
use std::ops::Range;

/// The largest finite half.
const F16_LIMIT: f32 = 65504.0;

/// Elements of the longest head, in whole vectors.
const ROOM: usize = KvLayer::MAX_HEAD_DIM.next_multiple_of(LANES);

/// Stores the given units.
pub(super) struct Append<'a> {
    pub(super) args: &'a AppendKv<'a>,
    pub(super) units: Range<usize>,
}

impl Work for Append<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { args, units } = self;
        let (kv, head_dim) = (args.kv, args.kv.head_dim());
        let mut turned = [0.0; ROOM];
        let turned = &mut turned[..head_dim];
        let (mut halves, mut codes) = ([0; ROOM], [0; ROOM]);
        for head in units {
            for (w, slot) in args.stored() {
                let key = args.turned_key(w, head, turned);
                let value = args.value(w, head);
                // SAFETY: elements of (head, slot), which `KvLayer::from_raw` reserved to us.
                unsafe {
                    match kv.format() {
                        KvFormat::F16 => {
                            round(s, key, &mut halves);
                            scatter(&halves[..head_dim], kv.key(head, slot).cast());
                            round(s, value, &mut halves);
                            let to = kv.value(head, slot).cast::<u16>();
                            to.copy_from_nonoverlapping(halves.as_ptr(), head_dim);
                        }
                        KvFormat::Q8 => {
                            *kv.key_scale(head, slot) = encode(key, &mut codes);
                            scatter(&codes[..head_dim], kv.key(head, slot).cast());
                            *kv.value_scale(head, slot) = encode(value, &mut codes);
                            let to = kv.value(head, slot).cast::<i8>();
                            to.copy_from_nonoverlapping(codes.as_ptr(), head_dim);
                        }
                        KvFormat::F32 => {
                            scatter(key, kv.key(head, slot).cast());
                            let to = kv.value(head, slot).cast::<f32>();
                            to.copy_from_nonoverlapping(value.as_ptr(), head_dim);
                        }
                    }
                }
            }
        }
    }
}

/// Rounds to halves, and what is beyond them to the largest.
#[inline(always)]
fn round<S: Lanes>(s: S, head: &[f32], halves: &mut [u16; ROOM]) {
    for at in (0..head.len()).step_by(LANES) {
        let lanes = s.min(s.splat(F16_LIMIT), s.load_part(head, at));
        let lanes = s.max(s.splat(-F16_LIMIT), lanes);
        halves[at..at + LANES].copy_from_slice(&s.halves(lanes));
    }
}

/// Writes the elements of a key, as far apart as a block of keys has them.
///
/// # Safety
/// The elements are writable.
#[inline(always)]
unsafe fn scatter<T: Copy>(key: &[T], to: *mut T) {
    for (i, element) in key.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { to.add(i * KvLayer::KEY_BLOCK).write(*element) };
    }
}
