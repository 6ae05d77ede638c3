//! IQ4_XS: f16 `d`, 6-bit scales of 8 sub-blocks of 32, nibbles that choose as in IQ4_NL (ggml's `block_iq4_xs`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{nearest, nibbles, push_nibbles, u16_at},
    iq4_nl::STEPS,
    k_scales::signed_scales,
};

pub(super) const SPEC: Spec = Spec {
    name: "iq4_xs",
    ggml_type: Some(23),
    block_len: 256,
    block_bytes: 136,
    elements: Elements::Codes {
        coding: Coding {
            bits: 4,
            meaning: Meaning::Table(&STEPS),
            scales: Scales::Signed { len: 32, over: 1 },
        },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    let high = u16_at(bytes, 2);
    for (s, scale) in block.scales[..8].iter_mut().enumerate() {
        let low = bytes[4 + s / 2] >> (s % 2 * 4) & 15;
        *scale = ((high >> (2 * s) & 3) as u8 * 16 + low).wrapping_sub(32);
    }
    for (bytes, codes) in bytes[8..].chunks_exact(16).zip(block.codes.chunks_exact_mut(32)) {
        nibbles(bytes, codes);
    }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let (d, scales) = signed_scales(values, 32, f32::from(STEPS[0]), 32.0);
    out.extend(d.to_le_bytes());
    let stored: Vec<u8> = scales.iter().map(|scale| (scale + 32).cast_unsigned()).collect();
    let high =
        stored.iter().enumerate().fold(0u16, |bits, (s, scale)| bits | u16::from(scale >> 4) << (2 * s));
    out.extend(high.to_le_bytes());
    out.extend(stored.chunks_exact(2).map(|two| two[0] & 15 | two[1] << 4));
    for (values, scale) in values.chunks_exact(32).zip(scales) {
        let step = d.to_f32() * f32::from(scale);
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        let codes: Vec<u8> = values.iter().map(|x| nearest(&STEPS, x * inverse)).collect();
        push_nibbles(&codes, out);
    }
}
