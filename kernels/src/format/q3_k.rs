//! Q3_K: 32 bytes of highest bits, 64 bytes of low bit pairs, 12 bytes of 6-bit scales, f16 `d` (ggml's `block_q3_K`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{in_units, set_highest, u16_at},
    k_scales::signed_scales,
    q2_k::{push_two_bits, read_two_bits},
};

pub(super) const SPEC: Spec = Spec {
    name: "q3_k",
    ggml_type: Some(11),
    block_len: 256,
    block_bytes: 110,
    elements: Elements::Codes {
        coding: Coding { bits: 3, meaning: Meaning::Offset(4), scales: Scales::Signed { len: 16, over: 1 } },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 108);
    let packed = &bytes[96..108];
    for (s, scale) in block.scales.iter_mut().enumerate() {
        let low = packed[s % 8] >> (s / 8 * 4) & 15;
        let high = packed[8 + s % 4] >> (s / 4 * 2) & 3;
        *scale = (high << 4 | low).wrapping_sub(32);
    }
    read_two_bits(&bytes[32..96], block);
    set_highest(&bytes[..32], 2, &mut block.codes);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let (d, scales) = signed_scales(values, 16, -4.0, 32.0);
    let code = |(i, x): (usize, &f32)| {
        (in_units(*x, d.to_f32() * f32::from(scales[i / 16])).clamp(-4.0, 3.0) + 4.0) as u8
    };
    let codes: Vec<u8> = values.iter().enumerate().map(code).collect();
    out.extend((0..32).map(|at| (0..8).fold(0, |bits, s| bits | (codes[32 * s + at] >> 2) << s)));
    push_two_bits(&codes, out);
    let stored: Vec<u8> = scales.iter().map(|scale| (scale + 32).cast_unsigned()).collect();
    out.extend((0..8).map(|s| stored[s] & 15 | stored[s + 8] << 4));
    out.extend((0..4).map(|s| (0..4).fold(0, |bits, i| bits | (stored[4 * i + s] >> 4) << (2 * i))));
    out.extend(d.to_le_bytes());
}
