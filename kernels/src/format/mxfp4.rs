//! MXFP4: a power of two and 32 floats of 4 bits (OCP Microscaling Formats 1.0, section 5.3; ggml's `block_mxfp4`).
//!
//! The floats are counted in halves, so the scale is half of what is stored: `2^(e - 128)`, kept as a bfloat16.

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{extreme, nearest, nibbles, push_nibbles},
};

/// The floats by code, in halves.
pub(super) const FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) const SPEC: Spec = Spec {
    name: "mxfp4",
    ggml_type: Some(39),
    block_len: 32,
    block_bytes: 17,
    elements: Elements::Codes {
        coding: Coding { bits: 4, meaning: Meaning::Table(&FLOATS), scales: Scales::BF16 },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = half_of_power(bytes[0]);
    nibbles(&bytes[1..], &mut block.codes[..32]);
}

/// The bfloat16 `2^(e - 128)`, which is subnormal for 0 and 1.
fn half_of_power(e: u8) -> u16 {
    if e < 2 { 0x20 << e } else { u16::from(e - 1) << 7 }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    // The largest value keeps its exponent: 4 is the largest power of two that the floats have.
    let exponent = (extreme(values).to_bits() >> 23 & 255).saturating_sub(2) as u8;
    out.push(exponent);
    let scale = super::bf16_to_f32(half_of_power(exponent));
    let codes: Vec<u8> = values.iter().map(|x| nearest(&FLOATS, x / scale)).collect();
    push_nibbles(&codes, out);
}
