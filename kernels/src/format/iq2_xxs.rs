//! IQ2_XXS: f16 `d`; each 32 elements have four numbers of a grid, four times seven signs and a scale of 4 bits (ggml's
//! `block_iq2_xxs`). Stored again as `IQ2_XS`, whose groups have 16 elements.

use super::{
    Block, Coding, Elements, Spec,
    coding::u16_at,
    grids::{Grid, Steps, eighth_sign, iq2, to_iq2},
    iq2_xs,
};

pub(super) const SPEC: Spec = Spec {
    name: "iq2_xxs",
    ggml_type: Some(16),
    block_len: 256,
    block_bytes: 66,
    elements: Elements::Codes { coding: CODING, decode, encode },
};

const CODING: Coding = iq2_xs::CODING;
const GRID: Grid<8> = Grid(include_bytes!("grids/iq2_xxs.bin"));

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    for (p, (bytes, codes)) in bytes[2..].chunks_exact(8).zip(block.codes.chunks_exact_mut(32)).enumerate() {
        let rest = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        block.scales[2 * p..][..2].fill(2 * (rest >> 28) as u8 + 1);
        for (i, codes) in codes.chunks_exact_mut(8).enumerate() {
            iq2(&GRID, bytes[i].into(), eighth_sign(rest >> (7 * i)), codes);
        }
    }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let steps = Steps::new(values, 32, 15, 43.0, 8.0);
    out.extend(steps.d.to_le_bytes());
    for (p, s) in steps.bits.iter().enumerate() {
        let mut rest = u32::from(*s) << 28;
        for i in 0..4 {
            let (number, signs) = to_iq2(&GRID, steps.eight(values, 4 * p + i), true);
            out.push(number as u8);
            rest |= u32::from(signs & 127) << (7 * i);
        }
        out.extend(rest.to_le_bytes());
    }
}
