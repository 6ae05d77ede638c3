//! IQ2_S: f16 `d`, 32 numbers of a grid of 10 bits, the lower 8 first, all signs, 4-bit scales of 16 elements (ggml's
//! `block_iq2_s`).

use super::{
    Block, Elements, Spec,
    coding::u16_at,
    grids::{Grid, Steps, iq2, to_iq2, two_scales},
    iq2_xs::CODING,
};

pub(super) const SPEC: Spec = Spec {
    name: "iq2_s",
    ggml_type: Some(22),
    block_len: 256,
    block_bytes: 82,
    elements: Elements::Codes { coding: CODING, decode, encode },
};

const GRID: Grid<8> = Grid(include_bytes!("grids/iq2_s.bin"));

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    for (i, codes) in block.codes.chunks_exact_mut(8).enumerate() {
        let high = usize::from(bytes[66 + i / 4] >> (2 * (i % 4)) & 3);
        iq2(&GRID, usize::from(bytes[2 + i]) | high << 8, bytes[34 + i], codes);
    }
    (0..8).for_each(|p| two_scales(bytes[74 + p], block, 2 * p));
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let steps = Steps::new(values, 16, 15, 43.0, 8.0);
    out.extend(steps.d.to_le_bytes());
    let found: Vec<(usize, u8)> = (0..32).map(|i| to_iq2(&GRID, steps.eight(values, i), false)).collect();
    out.extend(found.iter().map(|(number, _)| *number as u8));
    out.extend(found.iter().map(|(_, signs)| *signs));
    for four in found.chunks_exact(4) {
        out.push(four.iter().rev().fold(0, |bits, (number, _)| bits << 2 | (number >> 8) as u8));
    }
    out.extend(steps.bits.chunks_exact(2).map(|two| two[0] | two[1] << 4));
}
