//! Matrix products of weight codes with activations as bytes: what [`Activations::Int8`] means, to the bit.
//!
//! The activations of a row are cut into blocks of 32 inputs, or of 256 where weights have blocks of 256, and each
//! becomes codes and a scale ([`CodedBlock::of`]). Sums of products of codes are exact integers. The result of a row
//! and an output starts at zero and takes the blocks in order, all in f32:
//! * of 32: adds, fused, the sum by `d * scale`, or, where halves have a `d` each, the sum of one half after the other;
//!   then, where weights have minima `m`, adds, fused, `m` by `scale * sum of the activations' codes`;
//! * of 256: the sum, of groups by their integer scales, rounded, by `d`; less, fused, the sum of the activations'
//!   codes of groups by their integer minima, rounded, by `dmin`; adds that, fused, by `scale`.
//!
//! Sums of integers have no order, so every tier has the bits of this one.

use super::gated;
#[cfg(doc)]
use crate::Activations;
use crate::{
    Matrix, Nonlinearity, Rows, RowsMut,
    format::{Block, Coding, Elements, Scales, bf16_to_f32, f16_to_f32},
};

/// Activations as codes.
#[derive(Clone, Debug, PartialEq)]
pub struct CodedBlock {
    /// Multiples of the scale, from -127 to 127.
    pub codes: Vec<i8>,
    /// What one stands for.
    pub scale: f32,
}

impl CodedBlock {
    /// Magnitudes that stay below it all through a block count as zeros: neither scale nor its inverse leaves the range
    /// of normal numbers.
    pub const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);

    /// Codes of a block. With `largest` its largest magnitude, all in f32, each operation rounded:
    /// * the scale is `largest / 127`;
    /// * a code is the integer nearest to `x * (127 / largest)`, the even one of two;
    /// * if `largest` is below 2^-100, scale and codes are zeros;
    /// * if a value is infinite or NaN, codes are zeros and the scale is NaN, and so is every result of the row.
    pub fn of(x: &[f32]) -> Self {
        if !x.iter().all(|x| x.is_finite()) {
            return Self { codes: vec![0; x.len()], scale: f32::NAN };
        }
        let largest = x.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if largest < Self::SMALLEST {
            return Self { codes: vec![0; x.len()], scale: 0.0 };
        }
        let inverse = 127.0 / largest;
        let codes = x.iter().map(|x| (x * inverse).round_ties_even() as i8).collect();
        Self { codes, scale: largest / 127.0 }
    }

    /// `scale * sum of codes`, the value that a minimum is multiplied by.
    pub fn sum(&self) -> f32 {
        self.scale * self.codes.iter().map(|code| i32::from(*code)).sum::<i32>() as f32
    }
}

/// `out = x weights^T` with int8 activations: `[W, K]` by `[N, K]` gives `[W, N]`.
///
/// # Panics
/// If shapes disagree, or the weights have no codes.
pub fn linear_int8(x: Rows<'_>, weights: &Matrix<'_>, mut out: RowsMut<'_>) {
    assert!(weights.rows() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        let blocks = coded(x.row(w), weights);
        for (n, out) in out.row(w).iter_mut().enumerate() {
            *out = dot(&blocks, weights, n);
        }
    }
}

/// `out = function(x gate^T) * (x up^T)` with int8 activations, `[W, N]`.
///
/// # Panics
/// As [`linear_int8`].
pub fn linear_gated_int8(
    function: Nonlinearity,
    x: Rows<'_>,
    gate: &Matrix<'_>,
    up: &Matrix<'_>,
    mut out: RowsMut<'_>,
) {
    assert!(gate.rows() == out.columns() && up.rows() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        let blocks = coded(x.row(w), gate);
        for (n, out) in out.row(w).iter_mut().enumerate() {
            let [gate, up] = [gate, up].map(|weights| f64::from(dot(&blocks, weights, n)));
            *out = gated(function, gate, up) as f32;
        }
    }
}

fn coded(x: &[f32], weights: &Matrix<'_>) -> Vec<CodedBlock> {
    x.chunks_exact(weights.format().block_len()).map(CodedBlock::of).collect()
}

/// Product of coded activations with row `n` of `weights`.
fn dot(x: &[CodedBlock], weights: &Matrix<'_>, n: usize) -> f32 {
    let format = weights.format();
    assert_eq!(format.block_len() * x.len(), weights.columns());
    let Elements::Codes { coding, decode, .. } = format.spec().elements else {
        panic!("{format} weights have no codes")
    };
    let mut block = Block::EMPTY;
    let blocks = weights.row(n).chunks_exact(format.block_bytes());
    x.iter().zip(blocks).fold(0.0, |total, (x, bytes)| {
        decode(bytes, &mut block);
        after(coding, &block, x, total)
    })
}

/// The result of a row and an output after one more block.
fn after(coding: Coding, block: &Block, x: &CodedBlock, total: f32) -> f32 {
    let len = coding.group_len();
    let groups = || x.codes.chunks_exact(len).zip(block.codes.chunks_exact(len)).enumerate();
    let products = |x: &[i8], codes: &[u8]| -> i32 {
        x.iter().zip(codes).map(|(x, code)| i32::from(*x) * coding.value(*code)).sum()
    };
    let sum_of = |x: &[i8]| -> i32 { x.iter().map(|x| i32::from(*x)).sum() };
    let d = f16_to_f32(block.d);
    match coding.scales {
        Scales::Block { unit, has_min } => {
            let sum = products(&x.codes, &block.codes);
            let total = (sum as f32).mul_add(unit.value(block.d) * x.scale, total);
            if has_min { unit.value(block.dmin).mul_add(x.sum(), total) } else { total }
        }
        Scales::Halves => groups().fold(total, |total, (g, (codes, weights))| {
            let d = bf16_to_f32(if g == 0 { block.d } else { block.dmin });
            (products(codes, weights) as f32).mul_add(d * x.scale, total)
        }),
        Scales::Signed { over, .. } => {
            let d = d / f32::from(over);
            let scaled = |(g, (x, codes)): (usize, (&[i8], &[u8]))| {
                i32::from(block.scales[g].cast_signed()) * products(x, codes)
            };
            let sum: i32 = groups().map(scaled).sum();
            (sum as f32 * d).mul_add(x.scale, total)
        }
        Scales::WithMins { .. } => {
            let scaled =
                |(g, (x, codes)): (usize, (&[i8], &[u8]))| i32::from(block.scales[g]) * products(x, codes);
            let sum: i32 = groups().map(scaled).sum();
            let mins: i32 = groups().map(|(g, (x, _))| i32::from(block.mins[g]) * sum_of(x)).sum();
            let value = (mins as f32).mul_add(-f16_to_f32(block.dmin), sum as f32 * d);
            value.mul_add(x.scale, total)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_nearest_even_and_reach_the_largest_value() {
        let mut x = [0.0; 32];
        x[..6].copy_from_slice(&[127.0, 0.5, 1.5, -2.5, 2.51, -127.0]);
        let CodedBlock { codes, scale } = CodedBlock::of(&x);
        assert_eq!((scale, &codes[..6]), (1.0, &[127, 0, 2, -2, 3, -127][..]));
        let coded = CodedBlock::of(&x.map(|x| x * 2f32.powi(120)));
        assert!(coded.codes == codes && coded.scale.is_finite());
        let CodedBlock { codes, scale: _ } = CodedBlock::of(&x.map(|x| x * CodedBlock::SMALLEST / 127.0));
        assert_eq!(codes[..2], [127, 0]);
    }

    #[test]
    fn what_is_too_small_is_zero_and_what_is_not_finite_is_seen() {
        let zero = CodedBlock { codes: vec![0; 32], scale: 0.0 };
        assert_eq!(CodedBlock::of(&[0.0; 32]), zero);
        assert_eq!(CodedBlock::of(&[-CodedBlock::SMALLEST.next_down(); 32]), zero);
        assert_eq!(CodedBlock::of(&[f32::from_bits(1); 32]), zero);
        for broken in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let mut x = [1.0; 32];
            x[17] = broken;
            let coded = CodedBlock::of(&x);
            assert!(coded.scale.is_nan() && coded.sum().is_nan());
        }
    }
}
