//! IQ2_XS: f16 `d`, 32 numbers of a grid with seven signs each, 4-bit scales of 16 elements (ggml's `block_iq2_xs`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::u16_at,
    grids::{Grid, IQ2_STEPS, Steps, eighth_sign, iq2, to_iq2, two_scales},
};

pub(super) const SPEC: Spec = Spec {
    name: "iq2_xs",
    ggml_type: Some(17),
    block_len: 256,
    block_bytes: 74,
    elements: Elements::Codes { coding: CODING, decode, encode },
};

/// That of all IQ2. A scale is `(s + 1/2) / 4` of the unit, or `2 s + 1` eighths of it.
pub(super) const CODING: Coding =
    Coding { bits: 3, meaning: Meaning::Table(&IQ2_STEPS), scales: Scales::Signed { len: 16, over: 8 } };
const GRID: Grid<8> = Grid(include_bytes!("grids/iq2_xs.bin"));

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    for (i, codes) in block.codes.chunks_exact_mut(8).enumerate() {
        let number = u16_at(bytes, 2 + 2 * i);
        iq2(&GRID, usize::from(number & 511), eighth_sign(u32::from(number >> 9)), codes);
    }
    (0..8).for_each(|p| two_scales(bytes[66 + p], block, 2 * p));
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let steps = Steps::new(values, 16, 15, 43.0, 8.0);
    out.extend(steps.d.to_le_bytes());
    for i in 0..32 {
        let (number, signs) = to_iq2(&GRID, steps.eight(values, i), true);
        out.extend((number as u16 | u16::from(signs & 127) << 9).to_le_bytes());
    }
    out.extend(steps.bits.chunks_exact(2).map(|two| two[0] | two[1] << 4));
}
