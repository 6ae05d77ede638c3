//! Q5_K: as Q4_K, with 32 bytes of highest bits before the nibbles (ggml's `block_q5_K`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{set_highest, u16_at},
    k_scales::{self, Grids},
    q4_k::{push_nibbles, read_nibbles},
};

pub(super) const SPEC: Spec = Spec {
    name: "q5_k",
    ggml_type: Some(13),
    block_len: 256,
    block_bytes: 176,
    elements: Elements::Codes {
        coding: Coding { bits: 5, meaning: Meaning::Offset(0), scales: Scales::WithMins { len: 32 } },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    (block.d, block.dmin) = (u16_at(bytes, 0), u16_at(bytes, 2));
    k_scales::unpack(&bytes[4..16], block);
    read_nibbles(&bytes[48..], block);
    set_highest(&bytes[16..48], 4, &mut block.codes);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let Grids { d, dmin, scales, mins, codes } = Grids::with_mins(values, 32, 31.0, 63.0);
    out.extend([d.to_le_bytes(), dmin.to_le_bytes()].concat());
    k_scales::push(&scales, &mins, out);
    out.extend((0..32).map(|at| (0..8).fold(0, |bits, s| bits | (codes[32 * s + at] >> 4) << s)));
    push_nibbles(&codes, out);
}
