//! Rows of f32 to and from the storage formats, rounding each block to nearest as ggml's reference does.

use half::{bf16, f16};
use ygg_kernels::WeightFormat;

const BLOCK: usize = 32;

/// Appends one row in `format`; `row` is a whole number of blocks.
pub(super) fn encode(format: WeightFormat, row: &[f32], out: &mut Vec<u8>) {
    match format {
        WeightFormat::F32 => row.iter().for_each(|x| out.extend(x.to_le_bytes())),
        WeightFormat::F16 => row.iter().for_each(|x| out.extend(f16::from_f32(*x).to_le_bytes())),
        WeightFormat::BF16 => row.iter().for_each(|x| out.extend(bf16::from_f32(*x).to_le_bytes())),
        WeightFormat::Q8_0 => blocks(row).for_each(|block| q8_0(block, out)),
        WeightFormat::Q4_0 => blocks(row).for_each(|block| q4_0(block, out)),
        WeightFormat::Q4_1 => blocks(row).for_each(|block| q4_1(block, out)),
    }
}

fn blocks(row: &[f32]) -> impl Iterator<Item = &[f32; BLOCK]> {
    let (blocks, rest) = row.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "a row is whole blocks");
    blocks.iter()
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

fn q8_0(block: &[f32; BLOCK], out: &mut Vec<u8>) {
    let scale = block.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
    out.extend(f16::from_f32(scale).to_le_bytes());
    out.extend(block.iter().map(|x| ((x * inverse(scale)).round() as i8).cast_unsigned()));
}

fn q4_0(block: &[f32; BLOCK], out: &mut Vec<u8>) {
    let extreme = block.iter().fold(0.0f32, |most, x| if x.abs() > most.abs() { *x } else { most });
    let scale = extreme / -8.0;
    out.extend(f16::from_f32(scale).to_le_bytes());
    nibbles(block, out, |x| (x * inverse(scale) + 8.5) as u8);
}

fn q4_1(block: &[f32; BLOCK], out: &mut Vec<u8>) {
    let least = block.iter().copied().fold(f32::INFINITY, f32::min);
    let most = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (most - least) / 15.0;
    out.extend(f16::from_f32(scale).to_le_bytes());
    out.extend(f16::from_f32(least).to_le_bytes());
    nibbles(block, out, |x| ((x - least) * inverse(scale) + 0.5) as u8);
}

/// The first half of a block in the low nibbles, the second in the high ones.
fn nibbles(block: &[f32; BLOCK], out: &mut Vec<u8>, code: impl Fn(f32) -> u8) {
    let (low, high) = block.split_at(BLOCK / 2);
    let code = |x: &f32| code(*x).min(15);
    out.extend(low.iter().zip(high).map(|(l, h)| code(l) | code(h) << 4));
}

/// The values that an encoded row stands for.
pub(super) fn decode(format: WeightFormat, bytes: &[u8]) -> Vec<f32> {
    let half_at = |block: &[u8], at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let nibble = |codes: &[u8], i: usize| if i < 16 { codes[i] & 15 } else { codes[i - 16] >> 4 };
    match format {
        WeightFormat::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        WeightFormat::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        WeightFormat::BF16 => bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        WeightFormat::Q8_0 => bytes
            .chunks_exact(34)
            .flat_map(|b| b[2..].iter().map(move |q| f32::from(q.cast_signed()) * half_at(b, 0)))
            .collect(),
        WeightFormat::Q4_0 => bytes
            .chunks_exact(18)
            .flat_map(|b| (0..BLOCK).map(move |i| (f32::from(nibble(&b[2..], i)) - 8.0) * half_at(b, 0)))
            .collect(),
        WeightFormat::Q4_1 => bytes
            .chunks_exact(20)
            .flat_map(|b| {
                (0..BLOCK).map(move |i| f32::from(nibble(&b[4..], i)) * half_at(b, 0) + half_at(b, 2))
            })
            .collect(),
    }
}
