//! Scales and minima of a packed block, and a row's total by them, whatever summed the products of its bytes.

use super::{Vector, unpack::Codes};
use crate::{
    cpu::{
        activations::Coded,
        packing::{CodeLayout, PART, TILE},
    },
    format::{Kind, Scales, Unit},
};

/// Constants of a kernel.
pub(super) struct Of<V, K>(V, K);

impl<V: Vector, K: Kind> Of<V, K> {
    pub(super) const LAYOUT: CodeLayout = K::LAYOUT;
    /// Vectors of outputs in a tile.
    pub(super) const VECTORS: usize = TILE / V::LANES;
    /// Whether bytes are taken with their signs.
    pub(super) const SIGNED: bool = V::PRODUCTS.signs_wide() && K::IS_WIDE;
    /// Whether their magnitudes are wanted as well.
    pub(super) const MAGNITUDES: bool = Self::SIGNED && V::PRODUCTS.is_split();
    /// Whether inputs `0..16` and `16..32` of a part are summed apart.
    pub(super) const HALVES: bool = K::CODING.group_len() == 16
        || V::PRODUCTS.is_split() && !Self::SIGNED && K::BIAS == 0 && K::LARGEST > 15;
    /// Rows of two tiles whose sums stay in registers.
    pub(super) const FEW: usize = V::FEW[if K::CODING.has_groups() { 0 } else { 1 }];
    const UNIT: Unit = match K::CODING.scales {
        Scales::Block { unit, .. } => unit,
        Scales::Halves => Unit::BF16,
        Scales::Signed { .. } | Scales::WithMins { .. } => Unit::F16,
    };
    /// What the unit of groups is divided by.
    const OVER: u8 = match K::CODING.scales {
        Scales::Signed { over, .. } => over,
        Scales::Block { .. } | Scales::Halves | Scales::WithMins { .. } => 1,
    };
}

/// The number that outputs `n` on of a block are scaled by.
///
/// # Safety
/// `block` is a packed block.
#[inline(always)]
pub(super) unsafe fn number<V: Vector, K: Kind>(v: V, block: *const u8, n: usize) -> V::Floats {
    // SAFETY: promised by the caller.
    unsafe {
        let stored = v.numbers(Of::<V, K>::UNIT, block.add(Of::<V, K>::LAYOUT.d + 2 * n));
        if const { Of::<V, K>::OVER == 1 } {
            return stored;
        }
        // A power of two: nothing is rounded.
        let factor = const { 1.0 / Of::<V, K>::OVER as f32 };
        v.product(stored, v.splat(std::ptr::from_ref(&factor).cast()))
    }
}

/// The second number of outputs `n` on: a minimum, its unit, or the scale of the second half.
///
/// # Safety
/// `block` is a packed block with second numbers.
#[inline(always)]
pub(super) unsafe fn second<V: Vector, K: Kind>(v: V, block: *const u8, n: usize) -> V::Floats {
    // SAFETY: promised by the caller.
    unsafe { v.numbers(Of::<V, K>::UNIT, block.add(Of::<V, K>::LAYOUT.dmin + 2 * n)) }
}

/// The integer scales of part `p` for outputs `n` on: of its groups of 32 or 16.
///
/// # Safety
/// `block` is a packed block with groups, and `p` below 8.
#[inline(always)]
pub(super) unsafe fn scales<V: Vector, K: Kind>(v: V, block: *const u8, p: usize, n: usize) -> [V::Scale; 2] {
    let by_part = const { PART / K::CODING.group_len() };
    // SAFETY: promised by the caller.
    let scale = |g: usize| unsafe {
        let at = block.add(Of::<V, K>::LAYOUT.scales + (by_part * p + g) * TILE + n);
        match K::CODING.scales {
            Scales::Signed { .. } => v.signed(at),
            Scales::WithMins { len: 16 } => v.low_nibbles(at),
            Scales::WithMins { .. } | Scales::Block { .. } | Scales::Halves => v.unsigned(at),
        }
    };
    [scale(0), scale(by_part - 1)]
}

/// Scale and second number of a block of 32 for outputs `n` on; the scale again if it has one number.
///
/// # Safety
/// `block` is a packed block without groups.
#[inline(always)]
pub(super) unsafe fn unit<V: Vector, K: Kind>(v: V, block: *const u8, n: usize) -> [V::Floats; 2] {
    // SAFETY: promised by the caller.
    unsafe {
        let d = number::<V, K>(v, block, n);
        if const { K::CODING.has_second() } { [d, second::<V, K>(v, block, n)] } else { [d, d] }
    }
}

/// A row's total after a block of 32 whose halves have scales of their own.
///
/// # Safety
/// `row` is the row of the block in a prepared group.
#[inline(always)]
unsafe fn after_halves<V: Vector>(
    v: V,
    total: V::Floats,
    [first, last]: [V::Ints; 2],
    [d, second]: [V::Floats; 2],
    row: *const u8,
) -> V::Floats {
    // SAFETY: promised by the caller.
    let x = unsafe { v.splat(row.add(Coded::SCALE)) };
    let total = v.fma(v.floats(first), v.product(d, x), total);
    v.fma(v.floats(last), v.product(second, x), total)
}

/// A row's total after a block of 32 with one scale.
///
/// # Safety
/// `row` is the row of the block in a prepared group.
#[inline(always)]
pub(super) unsafe fn after_block<V: Vector, K: Kind>(
    v: V,
    total: V::Floats,
    ints: V::Ints,
    [d, min]: [V::Floats; 2],
    row: *const u8,
) -> V::Floats {
    // SAFETY: promised by the caller.
    unsafe {
        let scale = v.product(d, v.splat(row.add(Coded::SCALE)));
        let total = v.fma(v.floats(ints), scale, total);
        if const { K::CODING.has_min() } {
            v.fma(min, v.splat(row.add(Coded::SCALED_SUM)), total)
        } else {
            total
        }
    }
}

/// Sums of one row over a part: whole, or by halves.
pub(super) type Two<V> = [<V as Vector>::Sum; 2];

/// The sum over a part, not scaled.
#[inline(always)]
pub(super) fn whole<V: Vector, K: Kind>(v: V, sums: Two<V>) -> V::Ints {
    if const { Of::<V, K>::SIGNED } {
        v.total_signed(sums[0])
    } else if const { Of::<V, K>::HALVES } {
        v.add(v.total(sums[0]), v.total(sums[1]))
    } else {
        v.total(sums[0])
    }
}

/// A row's total after a block of 32, with the sums over it.
///
/// # Safety
/// `row` is the row of the block in a prepared group.
#[inline(always)]
pub(super) unsafe fn after<V: Vector, K: Kind>(
    v: V,
    total: V::Floats,
    sums: Two<V>,
    unit: [V::Floats; 2],
    row: *const u8,
) -> V::Floats {
    const { assert!(!(Of::<V, K>::SIGNED && matches!(K::CODING.scales, Scales::Halves)), "halves of narrow codes") }
    // SAFETY: promised by the caller.
    unsafe {
        if const { matches!(K::CODING.scales, Scales::Halves) } {
            after_halves(v, total, [v.total(sums[0]), v.total(sums[1])], unit, row)
        } else {
            after_block::<V, K>(v, total, whole::<V, K>(v, sums), unit, row)
        }
    }
}

/// The sum over a part, each group by its scale.
#[inline(always)]
pub(super) fn scaled<V: Vector, K: Kind>(v: V, sums: Two<V>, scales: [V::Scale; 2]) -> V::Ints {
    if const { Of::<V, K>::SIGNED } {
        let of = |half: usize| v.times(v.total_signed(sums[half]), v.scale(scales[half]));
        if const { Of::<V, K>::HALVES } { v.add(of(0), of(1)) } else { of(0) }
    } else if const { Of::<V, K>::HALVES } {
        v.add(v.scaled(sums[0], scales[0]), v.scaled(sums[1], scales[1]))
    } else {
        v.scaled(sums[0], scales[0])
    }
}

/// Adds blocks of 256 to the totals of rows.
#[derive(Clone, Copy)]
pub(super) struct Close<V: Vector> {
    d: V::Floats,
    dmin: V::Floats,
    mins: [V::Bytes; 8],
}

impl<V: Vector> Close<V> {
    /// Pairs of groups with minima.
    const fn pairs<K: Kind>() -> usize {
        if K::CODING.has_min() { 128 / K::CODING.group_len() } else { 0 }
    }

    /// Units and minima for outputs `n` on.
    ///
    /// # Safety
    /// `block` is a packed block with groups.
    #[inline(always)]
    pub(super) unsafe fn new<K: Kind>(v: V, block: *const u8, n: usize) -> Self {
        // SAFETY: promised by the caller.
        unsafe {
            let layout = Of::<V, K>::LAYOUT;
            let d = number::<V, K>(v, block, n);
            let mut close = Self { d, dmin: d, mins: [v.pairs(block); 8] };
            if const { K::CODING.has_min() } {
                close.dmin = second::<V, K>(v, block, n);
                for (p, mins) in close.mins[..Self::pairs::<K>()].iter_mut().enumerate() {
                    *mins = if const { K::CODING.group_len() == 16 } {
                        let at = block.add(layout.scales + 2 * p * TILE + n);
                        v.high_nibbles(at, at.add(TILE))
                    } else {
                        v.pairs(block.add(layout.mins + 2 * (p * TILE + n)))
                    };
                }
            }
            close
        }
    }

    /// A row's total.
    ///
    /// # Safety
    /// `row` is what is prepared of the row for the whole block.
    #[inline(always)]
    pub(super) unsafe fn total<K: Kind>(
        self,
        v: V,
        total: V::Floats,
        ints: V::Ints,
        row: *const u8,
    ) -> V::Floats {
        let mut value = v.product(v.floats(ints), self.d);
        // SAFETY: promised by the caller.
        unsafe {
            if const { K::CODING.has_min() } {
                let mut mins = v.no_ints();
                for (p, pairs) in self.mins[..Self::pairs::<K>()].iter().enumerate() {
                    mins = v.add_pairs(mins, *pairs, row.add(4 + 4 * p));
                }
                value = v.fnma(v.floats(mins), self.dmin, value);
            }
            v.fma(value, v.splat(row), total)
        }
    }
}
