//! IQ1_M: 32 numbers of IQ1_S's grid, the lower 8 bits first; then four bits for each: the rest of the number, and
//! whether its elements are an eighth more or less; then scales of 3 bits of 16 elements, four to a u16, whose highest
//! four bits together are the f16 `d` (ggml's `block_iq1_m`).

use super::{
    Block, Elements, Spec,
    coding::u16_at,
    grids::{Steps, iq1, to_iq1},
    iq1_s::{CODING, GRID},
};

pub(super) const SPEC: Spec = Spec {
    name: "iq1_m",
    ggml_type: Some(29),
    block_len: 256,
    block_bytes: 56,
    elements: Elements::Codes { coding: CODING, decode, encode },
};

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    let scales = [0, 1, 2, 3].map(|i| u16_at(bytes, 48 + 2 * i));
    block.d = (0..4).fold(0, |d, i| d | scales[i] >> 12 << (4 * i));
    for (g, scale) in block.scales.iter_mut().enumerate() {
        *scale = 2 * (scales[g / 4] >> (3 * (g % 4)) & 7) as u8 + 1;
    }
    for (i, codes) in block.codes.chunks_exact_mut(8).enumerate() {
        let rest = usize::from(bytes[32 + i / 2] >> (4 * (i % 2)));
        iq1(&GRID, usize::from(bytes[i]) | (rest & 7) << 8, rest & 8 == 0, codes);
    }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let steps = Steps::new(values, 16, 7, 9.0, 8.0);
    let mut rests = [0; 16];
    for i in 0..32 {
        let x = steps.eight(values, i);
        let (less, more) = (to_iq1(&GRID, &x, false), to_iq1(&GRID, &x, true));
        let is_less = less.1 < more.1;
        let number = if is_less { less.0 } else { more.0 };
        out.push(number as u8);
        rests[i / 2] |= ((number >> 8) as u8 | u8::from(is_less) << 3) << (4 * (i % 2));
    }
    out.extend(rests);
    for (i, four) in steps.bits.chunks_exact(4).enumerate() {
        let scales = four.iter().rev().fold(0, |bits, s| bits << 3 | u16::from(*s));
        out.extend((scales | steps.d.to_bits() >> (4 * i) << 12).to_le_bytes());
    }
}
