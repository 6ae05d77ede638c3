//! The K formats of ggml: blocks of 256 elements whose sub-blocks have small integer scales, in units of the block's own.
//!
//! | format | bytes of a block |
//! |---|---|
//! | q4_k | f16 `d`, f16 `dmin`, 12 bytes of 6-bit scales and minima of 8 sub-blocks of 32, 128 bytes of nibbles |
//! | q6_k | 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed bytes: scales of sub-blocks of 16, f16 `d` |
//!
//! All products of codes and scales are exact in f32; only the difference of q4_k rounds. Source: ggml's
//! `block_q4_K` and `block_q6_K`.

use super::f16_at;

/// Elements in a block.
pub(crate) const K_BLOCK: usize = 256;
/// Elements of a q4_k sub-block.
pub(crate) const Q4_K_SUB: usize = 32;
/// Elements of a q6_k sub-block.
pub(crate) const Q6_K_SUB: usize = 16;
/// Bytes of a q4_k block.
pub(super) const Q4_K_BYTES: usize = 144;
/// Bytes of a q6_k block.
pub(super) const Q6_K_BYTES: usize = 210;
/// Place of the f16 scale in a q6_k block.
pub(crate) const Q6_K_D: usize = 208;
/// What a q6_k code of zero stands for, negated.
pub(crate) const Q6_K_BIAS: u8 = 32;

/// Scale and minimum of sub-block `s` of a q4_k block, in units of `d` and `dmin`: below 64.
pub(crate) fn q4_k_scale_min(block: &[u8], s: usize) -> (u8, u8) {
    let packed = &block[4..16];
    if s < 4 {
        (packed[s] & 63, packed[s + 4] & 63)
    } else {
        (packed[s + 4] & 15 | packed[s - 4] >> 6 << 4, packed[s + 4] >> 4 | packed[s] >> 6 << 4)
    }
}

/// Code `i` of a q4_k block: 32 low nibbles are a sub-block, their high nibbles the next.
pub(crate) fn q4_k_code(block: &[u8], i: usize) -> u8 {
    block[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15
}

/// Scale of sub-block `s` of a q6_k block, in units of `d`.
pub(crate) fn q6_k_scale(block: &[u8], s: usize) -> i8 {
    block[192 + s].cast_signed()
}

/// Code `i` of a q6_k block, below 64; it stands for 32 less. Of each half, quarters 0 and 1 are low nibbles, quarters 2
/// and 3 high nibbles of the same bytes.
pub(crate) fn q6_k_code(block: &[u8], i: usize) -> u8 {
    let (half, quarter, at) = (i / 128, i / 32 % 4, i % 32);
    let low = block[64 * half + 32 * (quarter % 2) + at] >> (quarter / 2 * 4) & 15;
    let high = block[128 + 32 * half + at] >> (2 * quarter) & 3;
    high << 4 | low
}

/// The 256 values of a q4_k block.
pub(super) fn dequantise_q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    for (s, out) in out.chunks_exact_mut(Q4_K_SUB).enumerate() {
        let (scale, min) = q4_k_scale_min(block, s);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        for (k, value) in out.iter_mut().enumerate() {
            *value = scale * f32::from(q4_k_code(block, s * Q4_K_SUB + k)) - min;
        }
    }
}

/// The 256 values of a q6_k block.
pub(super) fn dequantise_q6_k(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, Q6_K_D);
    for (s, out) in out.chunks_exact_mut(Q6_K_SUB).enumerate() {
        let scale = d * f32::from(q6_k_scale(block, s));
        for (k, value) in out.iter_mut().enumerate() {
            let code = q6_k_code(block, s * Q6_K_SUB + k);
            *value = scale * (f32::from(code) - f32::from(Q6_K_BIAS));
        }
    }
}

/// Appends a q4_k block: the grid of a sub-block spans its extremes and zero or below, without a search for a better one.
pub(super) fn quantise_q4_k(values: &[f32], out: &mut Vec<u8>) {
    let (mut steps, mut floors) = ([0.0f32; 8], [0.0f32; 8]);
    for ((step, floor), values) in steps.iter_mut().zip(&mut floors).zip(values.chunks_exact(Q4_K_SUB)) {
        let min = values.iter().copied().fold(0.0, f32::min);
        let max = values.iter().copied().fold(min, f32::max);
        (*step, *floor) = ((max - min) / 15.0, -min);
    }
    let start = out.len();
    let unit = |all: &[f32; 8]| half::f16::from_f32(all.iter().copied().fold(0.0, f32::max) / 63.0);
    let (d, dmin) = (unit(&steps), unit(&floors));
    out.extend([d.to_le_bytes(), dmin.to_le_bytes()].concat());
    let (d, dmin) = (d.to_f32(), dmin.to_f32());
    let six_bits = |x: f32, unit: f32| in_units(x, unit).min(63.0) as u8;
    let scales = steps.map(|step| six_bits(step, d));
    let mins = floors.map(|floor| six_bits(floor, dmin));
    out.extend((0..4).map(|s| scales[s] | scales[s + 4] >> 4 << 6));
    out.extend((0..4).map(|s| mins[s] | mins[s + 4] >> 4 << 6));
    out.extend((4..8).map(|s| scales[s] & 15 | mins[s] << 4));
    let code = |i: usize| {
        let (scale, min) = q4_k_scale_min(&out[start..], i / Q4_K_SUB);
        in_units(values[i] + dmin * f32::from(min), d * f32::from(scale)).clamp(0.0, 15.0) as u8
    };
    let codes: Vec<u8> = (0..K_BLOCK).map(code).collect();
    out.extend((0..128).map(|at| {
        let low = at / 32 * 64 + at % 32;
        codes[low] | codes[low + 32] << 4
    }));
}

/// Appends a q6_k block: the largest element of a sub-block is code 0, or as near as the scale's eight bits allow.
pub(super) fn quantise_q6_k(values: &[f32], out: &mut Vec<u8>) {
    let farther = |a: f32, b: f32| if b.abs() > a.abs() { b } else { a };
    let steps: Vec<f32> = values
        .chunks_exact(Q6_K_SUB)
        .map(|values| values.iter().copied().fold(0.0, farther) / -f32::from(Q6_K_BIAS))
        .collect();
    let stored = half::f16::from_f32(steps.iter().copied().fold(0.0, farther) / -128.0);
    let d = stored.to_f32();
    let scales: Vec<i8> = steps.iter().map(|step| in_units(*step, d).clamp(-128.0, 127.0) as i8).collect();
    let code = |i: usize| {
        let code = in_units(values[i], d * f32::from(scales[i / Q6_K_SUB])).clamp(-32.0, 31.0);
        (code + f32::from(Q6_K_BIAS)) as u8
    };
    let codes: Vec<u8> = (0..K_BLOCK).map(code).collect();
    out.extend((0..128).map(|at| {
        let low = at / 64 * 128 + at % 64;
        codes[low] & 15 | codes[low + 64] << 4
    }));
    out.extend((0..64).map(|at| {
        let first = at / 32 * 128 + at % 32;
        (0..4).fold(0, |bits, quarter| bits | codes[first + 32 * quarter] >> 4 << (2 * quarter))
    }));
    out.extend(scales.iter().map(|scale| scale.cast_unsigned()));
    out.extend(stored.to_le_bytes());
}

/// `x / unit` to the nearest whole number, or 0 if there is no unit.
fn in_units(x: f32, unit: f32) -> f32 {
    if unit == 0.0 { 0.0 } else { (x / unit).round() }
}

#[cfg(test)]
mod tests;
