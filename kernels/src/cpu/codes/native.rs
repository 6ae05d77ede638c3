//! Products of codes with activations in f32.
//!
//! Numeric class: the integers that codes stand for, as f32, times activations, fused, are summed by group of weights
//! in four chains, by the remainder of the input's number by 4; the chains, joined as `(a + b) + (c + d)`, are added to
//! the total, fused, by the group's scale; then the group's minimum times the sum of its activations, fused. That sum
//! is made of sums of 16 activations in the same chains.

use super::{
    Operands, Sums, Vector, fetch,
    scales::{number, second},
    unpack::{Codes, quad},
};
use crate::{
    cpu::{
        activations::{F32_ROW, F32_SUMS},
        packing::{CodeLayout, PART, TILE},
    },
    format::{Kind, Scales},
};

/// Rows whose sums stay in registers.
const FEW: usize = 4;

/// Writes `sums[t][r][n]` for the rows of a group.
///
/// # Safety
/// `operands` names as many tiles of the kind as there are sums, and a group of at most [`super::MANY`] rows in the
/// layout of f32 with sums.
#[inline(always)]
pub(in crate::cpu) unsafe fn native<V: Vector, K: Kind>(v: V, operands: Operands, sums: &mut [Sums]) {
    for (t, sums) in sums.iter_mut().enumerate() {
        let operands = operands.of_tile(const { K::LAYOUT }, t);
        if const { V::FEW[1] == 0 } {
            for first in 0..operands.rows {
                // SAFETY: promised by the caller.
                unsafe { few::<V, K, 1>(v, operands, first, &mut sums.0[first..]) };
            }
            continue;
        }
        for first in (0..operands.rows).step_by(FEW) {
            let sums = &mut sums.0[first..];
            // SAFETY: promised by the caller.
            unsafe {
                match operands.rows - first {
                    1 => few::<V, K, 1>(v, operands, first, sums),
                    2 => few::<V, K, 2>(v, operands, first, sums),
                    3 => few::<V, K, 3>(v, operands, first, sums),
                    _ => few::<V, K, FEW>(v, operands, first, sums),
                }
            }
        }
    }
}

/// Scale and minimum of group `g` of a block for outputs `n` on; the scale again without minima.
///
/// # Safety
/// `block` is a packed block with such a group.
#[inline(always)]
unsafe fn group<V: Vector, K: Kind>(v: V, block: *const u8, g: usize, n: usize) -> [V::Floats; 2] {
    let layout: CodeLayout = const { K::LAYOUT };
    // SAFETY: promised by the caller.
    unsafe {
        let scale = block.add(layout.scales + g * TILE + n);
        let d = number::<V, K>(v, block, n);
        match const { K::CODING.scales } {
            Scales::Block { has_min: false, .. } => [d; 2],
            Scales::Block { has_min: true, .. } => [d, second::<V, K>(v, block, n)],
            Scales::Halves if g == 0 => [d; 2],
            Scales::Halves => [second::<V, K>(v, block, n); 2],
            Scales::Signed { .. } => [v.product(d, v.floats(v.scale(v.signed(scale)))); 2],
            Scales::WithMins { len } => {
                let (by, mins) = if len == 16 {
                    let first = block.add(layout.scales + g / 2 * 2 * TILE + n);
                    (v.low_nibbles(scale), v.high_nibbles(first, first.add(TILE)))
                } else {
                    (v.unsigned(scale), v.pairs(block.add(layout.mins + 2 * (g / 2 * TILE + n))))
                };
                let min = v.product(second::<V, K>(v, block, n), v.floats(v.one_of_pair(mins, g % 2)));
                [v.product(d, v.floats(v.scale(by))), min]
            }
        }
    }
}

/// Rows `first..first + R` of a group.
///
/// # Safety
/// As [`native`].
#[inline(always)]
unsafe fn few<V: Vector, K: Kind, const R: usize>(
    v: V,
    operands: Operands,
    first: usize,
    sums: &mut [[f32; TILE]],
) {
    let Operands { mut tile, blocks, x, rows, fetching, .. } = operands;
    let layout: CodeLayout = const { K::LAYOUT };
    let by_part = const { PART / K::CODING.group_len() };
    let mut x = x.wrapping_add(first * F32_ROW);
    let mut totals = [[v.zero(); 2]; R];
    for _ in 0..blocks {
        for p in 0..layout.parts {
            fetch(layout, tile, p, fetching);
            for i in 0..const { TILE / V::LANES } {
                // SAFETY: the block of the tile and its rows are inside what the caller named.
                unsafe {
                    let codes = tile.add(layout.codes + p * layout.part_bytes + 4 * V::LANES * i);
                    for g in 0..by_part {
                        let quads = const { K::CODING.group_len() / 4 };
                        let mut chains = [[v.zero(); 4]; R];
                        for q in g * quads..(g + 1) * quads {
                            let signed = v.minus(quad::<V, K>(v, codes, q), K::BIAS);
                            for (k, values) in v.four_floats(signed).into_iter().enumerate() {
                                for (r, chains) in chains.iter_mut().enumerate() {
                                    let x = v.splat(x.add(r * F32_ROW + 4 * (4 * q + k)));
                                    chains[k] = v.fma(values, x, chains[k]);
                                }
                            }
                        }
                        let [scale, min] = group::<V, K>(v, tile, p * by_part + g, V::LANES * i);
                        for (r, (total, [a, b, c, d])) in totals.iter_mut().zip(chains).enumerate() {
                            let sum = v.sum(v.sum(a, b), v.sum(c, d));
                            total[i] = v.fma(sum, scale, total[i]);
                            if const { K::CODING.has_min() } {
                                let sums = x.add(r * F32_ROW + F32_SUMS);
                                let of_group = if by_part == 1 {
                                    v.sum(v.splat(sums), v.splat(sums.add(4)))
                                } else {
                                    v.splat(sums.add(4 * g))
                                };
                                total[i] = match const { K::CODING.scales } {
                                    Scales::WithMins { .. } => v.fnma(min, of_group, total[i]),
                                    Scales::Block { .. } | Scales::Halves | Scales::Signed { .. } => {
                                        v.fma(min, of_group, total[i])
                                    }
                                };
                            }
                        }
                    }
                }
            }
            x = x.wrapping_add(rows * F32_ROW);
        }
        tile = tile.wrapping_add(layout.bytes);
    }
    for (total, sums) in totals.iter().zip(sums) {
        for (i, total) in total.iter().take(TILE / V::LANES).enumerate() {
            // SAFETY: a row has the outputs of a tile.
            unsafe { v.store(sums.as_mut_ptr().add(V::LANES * i), *total) };
        }
    }
}
