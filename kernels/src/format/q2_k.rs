//! Q2_K: 16 bytes of a 4-bit scale and a 4-bit minimum, 64 bytes of codes, f16 `d`, f16 `dmin` (ggml's `block_q2_K`).

use super::{Block, Coding, Elements, Meaning, Scales, Spec, coding::u16_at, k_scales::Grids};

pub(super) const SPEC: Spec = Spec {
    name: "q2_k",
    ggml_type: Some(10),
    block_len: 256,
    block_bytes: 84,
    elements: Elements::Codes {
        coding: Coding { bits: 2, meaning: Meaning::Offset(0), scales: Scales::WithMins { len: 16 } },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    (block.d, block.dmin) = (u16_at(bytes, 80), u16_at(bytes, 82));
    for (s, both) in bytes[..16].iter().enumerate() {
        (block.scales[s], block.mins[s]) = (both & 15, both >> 4);
    }
    read_two_bits(&bytes[16..80], block);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let Grids { d, dmin, scales, mins, codes } = Grids::with_mins(values, 16, 3.0, 15.0);
    out.extend(scales.iter().zip(&mins).map(|(scale, min)| scale | min << 4));
    push_two_bits(&codes, out);
    out.extend([d.to_le_bytes(), dmin.to_le_bytes()].concat());
}

/// Reads 256 codes: a byte has the codes of one place in each quarter of a half.
#[inline(always)]
pub(super) fn read_two_bits(bytes: &[u8], block: &mut Block) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(block.codes.chunks_exact_mut(128)) {
        for (quarter, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code = byte >> (2 * quarter) & 3;
            }
        }
    }
}

/// Appends 256 codes, the low two bits of each, as [`read_two_bits`] reads them.
pub(super) fn push_two_bits(codes: &[u8], out: &mut Vec<u8>) {
    out.extend((0..64).map(|at| {
        let first = at / 32 * 128 + at % 32;
        (0..4).fold(0, |bits, quarter| bits | (codes[first + 32 * quarter] & 3) << (2 * quarter))
    }));
}
