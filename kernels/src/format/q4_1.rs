//! Q4_1: a scale, a minimum and 32 nibbles.

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{nibbles, push_nibbles, u16_at},
};

pub(super) const SPEC: Spec = Spec {
    name: "q4_1",
    ggml_type: Some(3),
    block_len: 32,
    block_bytes: 20,
    elements: Elements::Codes {
        coding: Coding { bits: 4, meaning: Meaning::Offset(0), scales: Scales::F16_WITH_MIN },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    (block.d, block.dmin) = (u16_at(bytes, 0), u16_at(bytes, 2));
    nibbles(&bytes[4..], &mut block.codes[..32]);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    push_nibbles(&codes_above_minimum(values, 15, out), out);
}

/// Appends scale and minimum of a grid of `steps` steps from the least to the greatest value; gives the codes.
pub(super) fn codes_above_minimum(values: &[f32], steps: u8, out: &mut Vec<u8>) -> Vec<u8> {
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (max - min) / f32::from(steps);
    out.extend(half::f16::from_f32(d).to_le_bytes());
    out.extend(half::f16::from_f32(min).to_le_bytes());
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    values.iter().map(|x| (((x - min) * inverse + 0.5) as u8).min(steps)).collect()
}
