//! Q8_0: a scale and 32 signed bytes.

use super::{Block, Coding, Elements, Meaning, Scales, Spec, coding::u16_at};

pub(super) const SPEC: Spec = Spec {
    name: "q8_0",
    ggml_type: Some(8),
    block_len: 32,
    block_bytes: 34,
    elements: Elements::Codes {
        coding: Coding { bits: 8, meaning: Meaning::Offset(128), scales: Scales::F16 },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    block.codes.iter_mut().zip(&bytes[2..]).for_each(|(code, byte)| *code = byte ^ 0x80);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let d = values.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 127.0;
    out.extend(half::f16::from_f32(d).to_le_bytes());
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    out.extend(values.iter().map(|x| ((x * inverse).round() as i8).cast_unsigned()));
}
