//! Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed bytes: scales of sub-blocks of 16, f16 `d`
//! (ggml's `block_q6_K`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{in_units, nibbles, u16_at},
    k_scales::signed_scales,
};

pub(super) const SPEC: Spec = Spec {
    name: "q6_k",
    ggml_type: Some(14),
    block_len: 256,
    block_bytes: 210,
    elements: Elements::Codes {
        coding: Coding { bits: 6, meaning: Meaning::Offset(32), scales: Scales::Signed { len: 16, over: 1 } },
        decode,
        encode,
    },
};

/// Of each half of the codes, quarters 0 and 1 are low nibbles, quarters 2 and 3 high nibbles of the same bytes.
#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 208);
    block.scales.copy_from_slice(&bytes[192..208]);
    let halves = bytes[..128].chunks_exact(64).zip(bytes[128..192].chunks_exact(32));
    for ((low, high), codes) in halves.zip(block.codes.chunks_exact_mut(128)) {
        nibbles(low, codes);
        for (quarter, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, byte) in codes.iter_mut().zip(high) {
                *code |= (byte >> (2 * quarter) & 3) << 4;
            }
        }
    }
}

/// The largest element of a sub-block is code 0, or as near as the scale's eight bits allow.
fn encode(values: &[f32], out: &mut Vec<u8>) {
    let (d, scales) = signed_scales(values, 16, -32.0, 128.0);
    let code = |(i, x): (usize, &f32)| {
        let code = in_units(*x, d.to_f32() * f32::from(scales[i / 16])).clamp(-32.0, 31.0);
        (code + 32.0) as u8
    };
    let codes: Vec<u8> = values.iter().enumerate().map(code).collect();
    out.extend((0..128).map(|at| {
        let low = at / 64 * 128 + at % 64;
        codes[low] & 15 | codes[low + 64] << 4
    }));
    out.extend((0..64).map(|at| {
        let first = at / 32 * 128 + at % 32;
        (0..4).fold(0, |bits, quarter| bits | codes[first + 32 * quarter] >> 4 << (2 * quarter))
    }));
    out.extend(scales.iter().map(|scale| scale.cast_unsigned()));
    out.extend(d.to_le_bytes());
}
