//! Scores: products of queries with blocks of keys.

use super::{BLOCK, MOST_UNITS, element::Element, partition::STRIDE, team::Team};
use crate::cpu::lanes::{Lanes, Work};
use std::{marker::PhantomData, ops::Range};

/// Writes the scores of `units` queries (`[D, U]`) with the keys of blocks of slots, `[U, STRIDE]`. Meanwhile it asks
/// for as many bytes from `ahead` on, wherever that is.
///
/// # Panics
/// If the blocks are not in the cache, or there is no room.
#[inline(always)]
pub(super) fn score<S: Lanes, E: Element>(
    s: S,
    team: &Team<'_>,
    units: usize,
    blocks: Range<usize>,
    queries: &[f32],
    scores: &mut [f32],
    ahead: *const u8,
) {
    if blocks.is_empty() {
        return;
    }
    let kv = &team.args.kv;
    assert!(blocks.end <= kv.blocks() && queries.len() == units * kv.head_dim());
    assert!(scores.len() >= (units - 1) * STRIDE + blocks.len() * BLOCK && blocks.len() * BLOCK <= STRIDE);
    let block = Blocks {
        keys: kv.key_block(team.kv_head, blocks.start),
        scales: if E::IS_SCALED {
            kv.key_scale(team.kv_head, blocks.start * BLOCK)
        } else {
            std::ptr::null()
        },
        block_bytes: kv.block_bytes(),
        count: blocks.len(),
        head_dim: kv.head_dim(),
        queries: queries.as_ptr(),
        scale: team.args.scoring.scale,
        scores: scores.as_mut_ptr(),
        ahead,
    };
    macro_rules! by_units {
        ($($u:literal)*) => {
            match units {
                $( $u if $u <= S::UNITS => s.call(Score::<E, $u> { of: block, element: PhantomData }), )*
                _ => unreachable!("a batch of {units} units, {MOST_UNITS} at most"),
            }
        };
    }
    by_units!(1 2 3 4 5 6);
}

/// Blocks of keys, queries and room for their scores, all readable or writable.
#[derive(Clone, Copy)]
struct Blocks {
    keys: *const u8,
    /// Of the blocks' slots, if keys have scales.
    scales: *const f32,
    block_bytes: usize,
    count: usize,
    head_dim: usize,
    queries: *const f32,
    scale: f32,
    scores: *mut f32,
    ahead: *const u8,
}

/// Scores of `U` units.
struct Score<E, const U: usize> {
    of: Blocks,
    element: PhantomData<E>,
}

impl<E: Element, const U: usize> Work for Score<E, U> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let mut b = 0;
        // SAFETY: `score` checked that all blocks, queries and scores are there.
        unsafe {
            // As many blocks at a time as registers have room for sums: they share the broadcast of a query's element.
            macro_rules! together {
                ($($n:literal)*) => {
                    $(while S::SUMS / U >= $n && b + $n <= self.of.count {
                        self.some::<S, $n>(s, b);
                        b += $n;
                    })*
                };
            }
            together!(8 4 2);
            while b < self.of.count {
                self.some::<S, 1>(s, b);
                b += 1;
            }
        }
    }
}

impl<E: Element, const U: usize> Score<E, U> {
    /// Scores of `B` blocks from `first` on: each has one chain over the elements.
    ///
    /// # Safety
    /// The blocks are there.
    #[inline(always)]
    unsafe fn some<S: Lanes, const B: usize>(&self, s: S, first: usize) {
        let Blocks { keys, scales, block_bytes, head_dim, queries, scale, scores, ahead, .. } = self.of;
        let keys: [*const u8; B] = std::array::from_fn(|b| keys.wrapping_add((first + b) * block_bytes));
        let mut sums = [[s.splat(0.0); U]; B];
        let mut ahead = ahead.wrapping_add(first * block_bytes);
        for i in 0..head_dim {
            for line in 0..(B * BLOCK * E::BYTES).div_ceil(64) {
                s.prefetch(ahead.wrapping_add(64 * line));
            }
            ahead = ahead.wrapping_add(B * BLOCK * E::BYTES);
            for (keys, sums) in keys.iter().zip(&mut sums) {
                // SAFETY: promised by the caller: element `i` of keys and queries.
                let lanes = unsafe { E::load(s, keys.add(i * BLOCK * E::BYTES)) };
                for (u, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let query = s.splat(unsafe { *queries.add(i * U + u) });
                    *sum = s.fused(query, lanes, *sum);
                }
            }
        }
        for (b, sums) in sums.into_iter().enumerate() {
            let mut factor = s.splat(scale);
            if E::IS_SCALED {
                // SAFETY: promised by the caller: the scales of the block's slots.
                factor = s.mul(factor, unsafe { s.load(scales.add((first + b) * BLOCK)) });
            }
            for (u, sum) in sums.into_iter().enumerate() {
                let to = scores.wrapping_add(u * STRIDE + (first + b) * BLOCK);
                // SAFETY: promised by the caller: room for the scores.
                unsafe { s.store(to, s.mul(sum, factor)) };
            }
        }
    }
}
