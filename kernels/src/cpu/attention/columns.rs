//! Weighted sums of values, some columns at a time.

use super::{MOST_UNITS, element::Element, partition::STRIDE, team::Team};
use crate::cpu::lanes::{LANES, Lanes, Work};
use std::{marker::PhantomData, ops::Range};

/// Adds the values of slots, by weights (`[U, STRIDE]`, from the first slot's on), to the totals of `units` units
/// (`[U, padded D]`): one chain for each element. Meanwhile it asks for as many bytes from `ahead` on, wherever that
/// is.
///
/// # Panics
/// If the slots are not in the cache, or there are not as many weights and totals.
#[inline(always)]
pub(super) fn weigh<S: Lanes, E: Element>(
    s: S,
    team: &Team<'_>,
    units: usize,
    slots: Range<usize>,
    weights: &[f32],
    totals: &mut [f32],
    ahead: *const u8,
) {
    if slots.is_empty() {
        return;
    }
    let kv = &team.args.kv;
    assert!(slots.end <= kv.slots() && weights.len() >= (units - 1) * STRIDE + slots.len());
    assert!(totals.len() >= units * kv.head_dim().next_multiple_of(LANES));
    let values = Values {
        values: kv.value(team.kv_head, slots.start),
        count: slots.len(),
        head_dim: kv.head_dim(),
        weights: weights.as_ptr(),
        totals: totals.as_mut_ptr(),
        ahead,
    };
    macro_rules! by_units {
        ($($u:literal)*) => {
            match units {
                $( $u if $u <= S::UNITS => s.call(Weigh::<E, $u> { of: values, element: PhantomData }), )*
                _ => unreachable!("a batch of {units} units, {MOST_UNITS} at most"),
            }
        };
    }
    by_units!(1 2 3 4 5 6);
}

/// Values of consecutive slots, weights and totals, all readable or writable.
#[derive(Clone, Copy)]
struct Values {
    values: *const u8,
    count: usize,
    head_dim: usize,
    weights: *const f32,
    totals: *mut f32,
    ahead: *const u8,
}

/// Sums of `U` units.
struct Weigh<E, const U: usize> {
    of: Values,
    element: PhantomData<E>,
}

impl<E: Element, const U: usize> Work for Weigh<E, U> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let whole = self.of.head_dim / LANES;
        let mut c = 0;
        // SAFETY: `weigh` checked that all values, weights and totals are there.
        unsafe {
            // As many vectors at a time as registers have room for sums: they share the broadcast of a weight.
            macro_rules! together {
                ($($n:literal)*) => {
                    $(while S::SUMS / U >= $n && c + $n <= whole {
                        self.some::<S, $n>(s, c, 0);
                        c += $n;
                    })*
                };
            }
            together!(8 4 2);
            while c < whole {
                self.some::<S, 1>(s, c, 0);
                c += 1;
            }
            let rest = self.of.head_dim % LANES;
            if rest > 0 {
                self.some::<S, 1>(s, c, rest);
            }
        }
    }
}

impl<E: Element, const U: usize> Weigh<E, U> {
    /// Sums of `C` vectors of columns, from vector `first` on; only the first `rest` lanes of one, if that is not 0.
    ///
    /// # Safety
    /// The columns are there.
    #[inline(always)]
    unsafe fn some<S: Lanes, const C: usize>(&self, s: S, first: usize, rest: usize) {
        let Values { values, count, head_dim, weights, totals, ahead } = self.of;
        let total = |u: usize, c: usize| {
            totals.wrapping_add(u * head_dim.next_multiple_of(LANES) + (first + c) * LANES)
        };
        let mut sums = [[s.splat(0.0); U]; C];
        for (c, sums) in sums.iter_mut().enumerate() {
            for (u, sum) in sums.iter_mut().enumerate() {
                // SAFETY: promised by the caller: the totals of these columns.
                *sum = unsafe { s.load(total(u, c)) };
            }
        }
        let mut values = values.wrapping_add(first * LANES * E::BYTES);
        let mut ahead = ahead.wrapping_add(first * LANES * E::BYTES * count);
        for i in 0..count {
            for line in 0..(C * LANES * E::BYTES).div_ceil(64) {
                s.prefetch(ahead.wrapping_add(64 * line));
            }
            ahead = ahead.wrapping_add(C * LANES * E::BYTES);
            for (c, sums) in sums.iter_mut().enumerate() {
                let from = values.wrapping_add(c * LANES * E::BYTES);
                // SAFETY: promised by the caller: the columns of position `i`.
                let lanes =
                    unsafe { if rest == 0 { E::load(s, from) } else { E::load_first(s, from, rest) } };
                for (u, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: promised by the caller: the weights of position `i`.
                    let weight = s.splat(unsafe { *weights.add(u * STRIDE + i) });
                    *sum = s.fused(weight, lanes, *sum);
                }
            }
            values = values.wrapping_add(head_dim * E::BYTES);
        }
        for (c, sums) in sums.into_iter().enumerate() {
            for (u, sum) in sums.into_iter().enumerate() {
                // SAFETY: as for the loads.
                unsafe { s.store(total(u, c), sum) };
            }
        }
    }
}
