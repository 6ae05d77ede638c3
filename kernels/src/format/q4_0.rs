//! Q4_0: a scale and 32 nibbles.

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{extreme, nibbles, push_nibbles, u16_at},
};

pub(super) const SPEC: Spec = Spec {
    name: "q4_0",
    ggml_type: Some(2),
    block_len: 32,
    block_bytes: 18,
    elements: Elements::Codes {
        coding: Coding { bits: 4, meaning: Meaning::Offset(8), scales: Scales::F16 },
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
    let d = extreme(values) / -8.0;
    out.extend(half::f16::from_f32(d).to_le_bytes());
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let codes: Vec<u8> = values.iter().map(|x| ((x * inverse + 8.5) as u8).min(15)).collect();
    push_nibbles(&codes, out);
}
