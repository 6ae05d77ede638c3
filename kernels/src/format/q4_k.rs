//! Q4_K: f16 `d`, f16 `dmin`, 12 bytes of scales and minima of 8 sub-blocks of 32, 128 bytes of nibbles (ggml's
//! `block_q4_K`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{nibbles, u16_at},
    k_scales::{self, Grids},
};

pub(super) const SPEC: Spec = Spec {
    name: "q4_k",
    ggml_type: Some(12),
    block_len: 256,
    block_bytes: 144,
    elements: Elements::Codes {
        coding: Coding { bits: 4, meaning: Meaning::Offset(0), scales: Scales::WithMins { len: 32 } },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    (block.d, block.dmin) = (u16_at(bytes, 0), u16_at(bytes, 2));
    k_scales::unpack(&bytes[4..16], block);
    read_nibbles(&bytes[16..], block);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let Grids { d, dmin, scales, mins, codes } = Grids::with_mins(values, 32, 15.0, 63.0);
    out.extend([d.to_le_bytes(), dmin.to_le_bytes()].concat());
    k_scales::push(&scales, &mins, out);
    push_nibbles(&codes, out);
}

/// Reads 256 nibbles: 32 low nibbles are a sub-block, their high nibbles the next.
#[inline(always)]
pub(super) fn read_nibbles(bytes: &[u8], block: &mut Block) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(block.codes.chunks_exact_mut(64)) {
        nibbles(bytes, codes);
    }
}

/// Appends 256 codes, the low four bits of each, as [`read_nibbles`] reads them.
pub(super) fn push_nibbles(codes: &[u8], out: &mut Vec<u8>) {
    out.extend((0..128).map(|at| {
        let low = at / 32 * 64 + at % 32;
        codes[low] & 15 | codes[low + 32] << 4
    }));
}
