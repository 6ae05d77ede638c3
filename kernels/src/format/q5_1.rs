//! Q5_1: a scale, a minimum and 32 codes of 5 bits.

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::u16_at,
    q4_1::codes_above_minimum,
    q5_0::{codes, push_codes},
};

pub(super) const SPEC: Spec = Spec {
    name: "q5_1",
    ggml_type: Some(7),
    block_len: 32,
    block_bytes: 24,
    elements: Elements::Codes {
        coding: Coding { bits: 5, meaning: Meaning::Offset(0), scales: Scales::F16_WITH_MIN },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    (block.d, block.dmin) = (u16_at(bytes, 0), u16_at(bytes, 2));
    codes(&bytes[4..], block);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    push_codes(&codes_above_minimum(values, 31, out), out);
}
