//! Activations as codes, and products of codes: the class of [`linear_int8`](crate::reference::linear_int8).

use super::linear::Sums;
use crate::{
    WeightFormat,
    cpu::{
        activations::{CODED, GROUP, Layout, MINUS_SUM, NIBBLE_ORDER, SCALE, SCALED_SUM},
        packing::{
            BLOCK, TILE, block_bytes, block_columns, nibble_at, pair_at,
            superblocks::{CODES, Q4_K_CODES, q4_k_scale_min},
        },
    },
    format::f16_to_f32,
    reference::CodedBlock,
};

/// Adding it to a number of at most 22 bits leaves the nearest integer in the low bits, the even one of two.
const TO_INTEGER: f32 = 12_582_912.0;

/// Writes a row of a block in either layout of codes: [`CodedBlock::of`], in loops that become vectors of whichever
/// features the caller enables.
#[inline(always)]
pub(in crate::cpu) fn write_codes(layout: Layout, values: &[f32; BLOCK], to: &mut [u8]) {
    // As integers, magnitudes have the order of the numbers, and what is not finite comes last.
    let mut largest = 0;
    for value in values {
        largest = largest.max(value.to_bits() & 0x7fff_ffff);
    }
    let (scale, inverse) = scale_and_inverse(largest);
    let mut codes = [0_i8; BLOCK];
    let mut sum = 0;
    for (code, value) in codes.iter_mut().zip(values) {
        *code = (value * inverse + TO_INTEGER).to_bits() as i8;
        sum += i32::from(*code);
    }
    // Not a number times zero is none.
    if scale.is_nan() {
        (codes, sum) = ([0; BLOCK], 0);
    }
    for (i, to) in to[..BLOCK].iter_mut().enumerate() {
        let k = if layout == Layout::Int8Nibbles { i / 8 * 8 + NIBBLE_ORDER[i % 8] } else { i };
        *to = codes[k].cast_unsigned();
    }
    to[SCALE..SCALED_SUM].copy_from_slice(&scale.to_ne_bytes());
    to[SCALED_SUM..MINUS_SUM].copy_from_slice(&(scale * sum as f32).to_ne_bytes());
    to[MINUS_SUM..CODED].copy_from_slice(&(-sum).to_ne_bytes());
}

/// Scale of a block and what its values are multiplied by, from the bits of its largest magnitude.
#[inline(always)]
pub(in crate::cpu) fn scale_and_inverse(largest: u32) -> (f32, f32) {
    let magnitude = f32::from_bits(largest);
    if !magnitude.is_finite() {
        (f32::NAN, 0.0)
    } else if magnitude < CodedBlock::SMALLEST {
        (0.0, 0.0)
    } else {
        (magnitude / 127.0, 127.0 / magnitude)
    }
}

/// Sums over blocks in order, one chain per output.
pub(super) fn accumulate_codes(format: WeightFormat, tile: &[u8], x: &[u8], rows: usize) -> Sums {
    let mut sums = [[0.0; TILE]; GROUP];
    let mut weights = Weights { codes: [[0; TILE]; BLOCK], d: [0.0; TILE], min: None };
    let per_block = block_columns(format) / BLOCK;
    for (b, x) in x.chunks_exact(rows * CODED).enumerate() {
        let block = &tile[b / per_block * block_bytes(format)..][..block_bytes(format)];
        weights.unpack(format, block, b % per_block);
        for (sums, x) in sums.iter_mut().zip(x.chunks_exact(CODED)) {
            weights.add_products(x, sums);
        }
    }
    sums
}

/// 32 columns of a tile: codes `[k][n]`, scales and minima `[n]`.
struct Weights {
    codes: [[i16; TILE]; BLOCK],
    d: [f32; TILE],
    min: Option<[f32; TILE]>,
}

impl Weights {
    /// Part `s` of a packed block.
    fn unpack(&mut self, format: WeightFormat, block: &[u8], s: usize) {
        let half = |at: usize| f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]));
        let halves = |at: usize| -> [f32; TILE] { std::array::from_fn(|n| half(at + 2 * n)) };
        self.d = halves(0);
        match format {
            WeightFormat::Q8_0 => {
                for (k, codes) in self.codes.iter_mut().enumerate() {
                    for (n, code) in codes.iter_mut().enumerate() {
                        *code = i16::from(block[2 * TILE + pair_at(n, k)].cast_signed());
                    }
                }
            }
            WeightFormat::Q4_0 => self.unpack_nibbles(&block[2 * TILE..], 8),
            WeightFormat::Q4_1 => {
                self.min = Some(halves(2 * TILE));
                self.unpack_nibbles(&block[4 * TILE..], 0);
            }
            WeightFormat::Q4_K => {
                let dmin = halves(2 * TILE);
                let mut negative = [0.0; TILE];
                for n in 0..TILE {
                    let (scale, min) = q4_k_scale_min(block, s, n);
                    self.d[n] *= f32::from(scale);
                    negative[n] = -(dmin[n] * f32::from(min));
                }
                self.min = Some(negative);
                self.unpack_nibbles(&block[CODES + s * Q4_K_CODES..], 0);
            }
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16 | WeightFormat::Q6_K => {
                unreachable!("a format of another class")
            }
        }
    }

    fn unpack_nibbles(&mut self, packed: &[u8], bias: i16) {
        for (k, codes) in self.codes.iter_mut().enumerate() {
            for (n, code) in codes.iter_mut().enumerate() {
                let (at, shift) = nibble_at(n, k);
                *code = i16::from(packed[at] >> shift & 15) - bias;
            }
        }
    }

    /// Adds the products with a row of a block to its sums.
    fn add_products(&self, x: &[u8], sums: &mut [f32; TILE]) {
        let number = |at: usize| f32::from_ne_bytes([x[at], x[at + 1], x[at + 2], x[at + 3]]);
        let (scale, scaled_sum) = (number(SCALE), number(SCALED_SUM));
        let mut products = [0_i32; TILE];
        for (codes, x) in self.codes.iter().zip(x) {
            let x = i16::from(x.cast_signed());
            for (product, code) in products.iter_mut().zip(codes) {
                *product += i32::from(code * x);
            }
        }
        for ((sum, product), d) in sums.iter_mut().zip(products).zip(self.d) {
            *sum = (product as f32).mul_add(d * scale, *sum);
        }
        if let Some(min) = self.min {
            for (sum, min) in sums.iter_mut().zip(min) {
                *sum = min.mul_add(scaled_sum, *sum);
            }
        }
    }
}
