//! IQ4_NL: a scale and 32 nibbles that choose one of 16 uneven steps (ggml's `block_iq4_nl`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{extreme, nearest, nibbles, push_nibbles, u16_at},
};

/// The steps, ggml's `kvalues_iq4nl`.
pub(super) const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) const SPEC: Spec = Spec {
    name: "iq4_nl",
    ggml_type: Some(20),
    block_len: 32,
    block_bytes: 18,
    elements: Elements::Codes {
        coding: Coding { bits: 4, meaning: Meaning::Table(&STEPS), scales: Scales::F16 },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    nibbles(&bytes[2..], &mut block.codes[..32]);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let d = half::f16::from_f32(extreme(values) / f32::from(STEPS[0]));
    out.extend(d.to_le_bytes());
    let inverse = if d.to_f32() == 0.0 { 0.0 } else { 1.0 / d.to_f32() };
    let codes: Vec<u8> = values.iter().map(|x| nearest(&STEPS, x * inverse)).collect();
    push_nibbles(&codes, out);
}
