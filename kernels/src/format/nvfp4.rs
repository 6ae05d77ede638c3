//! NVFP4 with the scales of a matrix in its blocks: two bf16 and 32 floats of 4 bits, of which each 16 share one.
//!
//! No file has it so: files have a float of 8 bits for each 16 and a number for the whole matrix, whose product is
//! rounded to the nearest bf16 when they are read. The floats are counted in halves, as those of MXFP4 are, so what is
//! stored is half of a scale.

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{extreme, nearest, nibbles, push_nibbles, u16_at},
    mxfp4::FLOATS,
};

pub(super) const SPEC: Spec = Spec {
    name: "nvfp4",
    ggml_type: None,
    block_len: 32,
    block_bytes: 20,
    elements: Elements::Codes {
        coding: Coding { bits: 4, meaning: Meaning::Table(&FLOATS), scales: Scales::Halves },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    (block.d, block.dmin) = (u16_at(bytes, 0), u16_at(bytes, 2));
    nibbles(&bytes[4..], &mut block.codes[..32]);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let largest = FLOATS[7];
    let mut codes = Vec::with_capacity(32);
    for group in values.chunks(16) {
        let scale = half::bf16::from_f32(extreme(group).abs() / f32::from(largest));
        out.extend(scale.to_le_bytes());
        let unit = scale.to_f32();
        codes.extend(group.iter().map(|x| if unit == 0.0 { 0 } else { nearest(&FLOATS, x / unit) }));
    }
    push_nibbles(&codes, out);
}
