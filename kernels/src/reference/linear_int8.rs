//! Matrix products of weight codes with activations as bytes: what [`Activations::Int8`] means, to the bit.
//!
//! The activations of a row are cut into blocks of 32 inputs, and each block becomes codes and a scale
//! ([`CodedBlock::of`]). The result of a row and an output starts at zero and takes the blocks in order. Of each,
//! with `d` the weights' scale, it takes two fused products of f32:
//! 1. the sum of the products of codes, an exact integer, by `d * scale` (a product of f32);
//! 2. for q4_1 and q4_k, the weights' minimum (of q4_k, minus `m * dmin`) by `scale * sum of the activations' codes`.
//!
//! The codes of q4_0 are those of the file minus 8; `d` of q4_k is `s * d`, its exact sub-block scale. Sums of integers
//! have no order, so every tier has the bits of this one.

use super::silu;
use crate::{
    Activations, Matrix, Rows, RowsMut, WeightFormat,
    format::{Q4_K_SUB, f16_at, nibble, q4_k_code, q4_k_scale_min},
};

/// Inputs that share a scale.
const BLOCK: usize = 32;

/// 32 activations as codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodedBlock {
    /// Multiples of the scale, from -127 to 127.
    pub codes: [i8; BLOCK],
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
    pub fn of(x: &[f32; BLOCK]) -> Self {
        if !x.iter().all(|x| x.is_finite()) {
            return Self { codes: [0; BLOCK], scale: f32::NAN };
        }
        let largest = x.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if largest < Self::SMALLEST {
            return Self { codes: [0; BLOCK], scale: 0.0 };
        }
        let inverse = 127.0 / largest;
        Self { codes: x.map(|x| (x * inverse).round_ties_even() as i8), scale: largest / 127.0 }
    }

    /// `scale * sum of codes`, the value that a minimum is multiplied by.
    pub fn sum(&self) -> f32 {
        self.scale * self.codes.iter().map(|code| i32::from(*code)).sum::<i32>() as f32
    }
}

/// `out = x weights^T` with int8 activations: `[W, K]` by `[N, K]` gives `[W, N]`.
///
/// # Panics
/// If shapes disagree, or weights in this format take no int8 activations ([`Activations::over`]).
pub fn linear_int8(x: Rows<'_>, weights: &Matrix<'_>, mut out: RowsMut<'_>) {
    assert!(weights.rows() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        let blocks = coded(x.row(w));
        for (n, out) in out.row(w).iter_mut().enumerate() {
            *out = dot(&blocks, weights, n);
        }
    }
}

/// `out = silu(x gate^T) * (x up^T)` with int8 activations, `[W, N]`.
///
/// # Panics
/// As [`linear_int8`].
pub fn linear_gated_int8(x: Rows<'_>, gate: &Matrix<'_>, up: &Matrix<'_>, mut out: RowsMut<'_>) {
    assert!(gate.rows() == out.columns() && up.rows() == out.columns() && x.width() == out.width());
    for w in 0..x.width() {
        let blocks = coded(x.row(w));
        for (n, out) in out.row(w).iter_mut().enumerate() {
            let [gate, up] = [gate, up].map(|weights| f64::from(dot(&blocks, weights, n)));
            *out = (silu(gate) * up) as f32;
        }
    }
}

fn coded(x: &[f32]) -> Vec<CodedBlock> {
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "{} activations are not blocks of {BLOCK}", x.len());
    blocks.iter().map(CodedBlock::of).collect()
}

/// Product of coded activations with row `n` of `weights`.
fn dot(x: &[CodedBlock], weights: &Matrix<'_>, n: usize) -> f32 {
    assert_eq!(BLOCK * x.len(), weights.columns());
    let format = weights.format();
    let per_block = format.block_len() / BLOCK;
    let mut total = 0.0_f32;
    for (b, x) in x.iter().enumerate() {
        let bytes = &weights.row(n)[b / per_block * format.block_bytes()..][..format.block_bytes()];
        let part = Part::of(format, bytes, b % per_block);
        let products = x.codes.iter().zip(part.codes).map(|(x, w)| i32::from(*x) * i32::from(w));
        total = (products.sum::<i32>() as f32).mul_add(part.d * x.scale, total);
        if let Some(min) = part.min {
            total = min.mul_add(x.sum(), total);
        }
    }
    total
}

/// 32 weights: value `i` is `codes[i] * d + min`.
struct Part {
    codes: [i8; BLOCK],
    d: f32,
    min: Option<f32>,
}

impl Part {
    /// Part `s` of a block of the file.
    fn of(format: WeightFormat, block: &[u8], s: usize) -> Self {
        let codes = |code: &dyn Fn(usize) -> i8| std::array::from_fn(code);
        let d = f16_at(block, 0);
        match format {
            WeightFormat::Q8_0 => Self { codes: codes(&|k| block[2 + k].cast_signed()), d, min: None },
            WeightFormat::Q4_0 => {
                Self { codes: codes(&|k| nibble(&block[2..], k).cast_signed() - 8), d, min: None }
            }
            WeightFormat::Q4_1 => Self {
                codes: codes(&|k| nibble(&block[4..], k).cast_signed()),
                d,
                min: Some(f16_at(block, 2)),
            },
            WeightFormat::Q4_K => {
                let (scale, min) = q4_k_scale_min(block, s);
                Self {
                    codes: codes(&|k| q4_k_code(block, s * Q4_K_SUB + k).cast_signed()),
                    d: d * f32::from(scale),
                    min: Some(-(f16_at(block, 2) * f32::from(min))),
                }
            }
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
                panic!("{format} weights take {} activations only", Activations::Int8.over(format))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_nearest_even_and_reach_the_largest_value() {
        let mut x = [0.0; BLOCK];
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
        let zero = CodedBlock { codes: [0; BLOCK], scale: 0.0 };
        assert_eq!(CodedBlock::of(&[0.0; BLOCK]), zero);
        assert_eq!(CodedBlock::of(&[-CodedBlock::SMALLEST.next_down(); BLOCK]), zero);
        assert_eq!(CodedBlock::of(&[f32::from_bits(1); BLOCK]), zero);
        for broken in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let mut x = [1.0; BLOCK];
            x[17] = broken;
            let coded = CodedBlock::of(&x);
            assert!(coded.scale.is_nan() && coded.sum().is_nan());
        }
    }
}
