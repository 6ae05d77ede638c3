//! Q5_0: a scale and 32 codes of 5 bits, the highest bits apart.

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::{extreme, nibbles, push_nibbles, u16_at},
};

pub(super) const SPEC: Spec = Spec {
    name: "q5_0",
    ggml_type: Some(6),
    block_len: 32,
    block_bytes: 22,
    elements: Elements::Codes {
        coding: Coding { bits: 5, meaning: Meaning::Offset(16), scales: Scales::F16 },
        decode,
        encode,
    },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    codes(&bytes[2..], block);
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let d = extreme(values) / -16.0;
    out.extend(half::f16::from_f32(d).to_le_bytes());
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let codes: Vec<u8> = values.iter().map(|x| ((x * inverse + 16.5) as u8).min(31)).collect();
    push_codes(&codes, out);
}

/// Reads 32 codes: four bytes of highest bits, then nibbles.
#[inline(always)]
pub(super) fn codes(bytes: &[u8], block: &mut Block) {
    nibbles(&bytes[4..], &mut block.codes[..32]);
    for (byte, codes) in bytes[..4].iter().zip(block.codes.as_chunks_mut::<8>().0) {
        *codes = (u64::from_le_bytes(*codes) | spread(*byte) << 4).to_le_bytes();
    }
}

/// Bit `i` as the lowest bit of byte `i`.
#[inline(always)]
fn spread(bits: u8) -> u64 {
    let alone = (u64::from(bits) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    // Carries out of the low seven bits of every byte that is not zero; the highest is one already.
    (alone + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101
}

/// Appends 32 codes as [`codes`] reads them.
pub(super) fn push_codes(codes: &[u8], out: &mut Vec<u8>) {
    out.extend(
        codes
            .chunks_exact(8)
            .map(|eight| eight.iter().enumerate().fold(0, |bits, (i, code)| bits | (code >> 4) << i)),
    );
    push_nibbles(codes, out);
}
